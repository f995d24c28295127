"""Recipes: what is accepted, what is refused and how, and what their hash covers."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from pathlib import Path

import pytest

from tutelage.data import presets
from tutelage.planning import Sanitise
from tutelage.privacy import accounting
from tutelage.privacy.bounds import Ball, Binary, Cube, OneHot, Orthant
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.units import Unit
from tutelage.recipes import codecs
from tutelage.recipes.recipe import Recipe, parse, read
from tutelage.recipes.run import DEMO, EMBEDDED, bound, carried, classes, embedded, is_benchmark, run

SMALL = """
name = "small"
[data]
set = "digits"
[privacy]
epsilon = 8
delta = 1e-5
[teachers]
shards = 10
[aggregation]
queries = 20
"""
MASKS = """
name = "masks"
[data]
set = "scenes"
size = 16
private = 24
public = 10
test = 6
[privacy]
epsilon = 8
delta = 1e-5
[teachers]
kind = "unet"
shards = 3
[codec]
kind = "region-votes"
regions = 4
[aggregation]
method = "gnmax"
queries = 6
[student]
learner = "masks"
"""
VOTES = 'kind = "region-votes"\nregions = 4\n[aggregation]\nmethod = "gnmax"'


def coded(table: str) -> str:
    """Give the recipe for masks another codec."""
    return MASKS.replace(VOTES, f'{table}\n[aggregation]\nmethod = "mean"')


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_recipes_are_valid_and_named_as_their_files(name: str) -> None:
    recipe = embedded(name)
    assert recipe.name == name
    assert recipe.tuned_on != "not stated"
    assert is_benchmark(recipe)
    assert classes(recipe) == 10


def test_embedded_recipes_differ_in_their_mechanism_alone() -> None:
    plain, laplace, confident = (embedded(name).model_dump(exclude={"name", "aggregation"}) for name in EMBEDDED)
    assert plain == laplace == confident


def test_an_unknown_embedded_recipe_is_refused() -> None:
    with pytest.raises(
        RecipeError, match=r"`name` must be one of 'digits', 'digits-lnmax', .*Got 'pate/mnist-our' instead\. Did"
    ):
        embedded("pate/mnist-our")


@pytest.mark.parametrize("name", [name for name in carried() if name.startswith("pate/")])
def test_recipes_of_the_papers_can_be_paid_for(name: str) -> None:
    recipe = embedded(name)
    assert f"pate/{recipe.name}" == name
    assert recipe.tuned_on != "not stated"
    assert is_benchmark(recipe)
    how, budget = recipe.how(), recipe.budget()
    events = how.planned(budget, recipe.aggregation.queries, recipe.teachers.shards, OneHot(classes(recipe)))
    assert accounting.admits(events, budget.epsilon * (1 + 1e-9), budget.delta)  # every question, even if a test lets all pass
    assert recipe.privacy.unit == ("patient" if recipe.data.set.startswith("diabetes") else "record")


def test_published_noise_is_the_papers() -> None:
    for name in ("mnist-lnmax-100", "mnist-lnmax-1000", "svhn-lnmax-500", "svhn-lnmax-1000", "adult-lnmax", "diabetes-lnmax"):
        recipe = embedded(f"pate/{name}")
        assert (recipe.aggregation.method, recipe.aggregation.gamma, recipe.teachers.shards) == ("lnmax", 1 / 20, 250)
        assert recipe.privacy.delta == (1e-6 if "svhn" in name else 1e-5)
    for name, threshold, test in (("mnist", 200, 150), ("svhn", 300, 200), ("adult", 300, 200)):
        recipe = embedded(f"pate/{name}-confident")
        mechanism, screen = recipe.how().built(recipe.budget(), recipe.aggregation.queries, 250, OneHot(classes(recipe)))
        assert screen is not None
        assert (mechanism.sigma, screen.threshold, screen.sigma) == (40.0, threshold, test)  # type: ignore[union-attr]


def test_defaults() -> None:
    recipe = parse(SMALL)
    assert recipe.privacy.epsilon == 8.0  # a whole number is a number
    assert (recipe.seed, recipe.tuned_on, recipe.privacy.unit) == (0, "not stated", "record")
    assert (recipe.teachers.kind, recipe.student.learner, recipe.student.kind) == ("forest", "supervised", None)
    assert (recipe.aggregation.method, recipe.aggregation.threshold, recipe.aggregation.test_ratio) == ("gnmax", 0.6, 3.0)


def test_everything_reaches_the_budget_and_the_aggregation() -> None:
    text = SMALL.replace("delta = 1e-5", 'delta = 1e-6\nunit = "institution"\nunit_teachers = 2') + (
        'method = "confident-gnmax"\nsigma = 30.0\nthreshold = 0.4\ntest_ratio = 2.0\nanswers = 5\n'
        "[aggregation.sanitise]\norder = 3.0\nbeta = 0.02\nsigma = 20.0\n"
    )
    recipe = parse(text)
    assert (recipe.budget().epsilon, recipe.budget().delta, recipe.budget().unit) == (8.0, 1e-6, Unit("institution", 2))
    how = recipe.how()
    assert (how.method, how.sigma, how.threshold, how.test_ratio, how.answers) == ("confident-gnmax", 30.0, 0.4, 2.0, 5)
    assert how.sanitise == Sanitise(3.0, 0.02, 20.0)


def test_the_hash_covers_all_that_shapes_the_result() -> None:
    base = parse(SMALL)
    assert base.sha256 == parse(SMALL + "# a comment\n").sha256
    for old, new in (("= 20", "= 21"), ("= 10", "= 11"), ("1e-5", "1e-6"), ('"small"', '"other"')):
        assert parse(SMALL.replace(old, new)).sha256 != base.sha256
    assert parse("seed = 1\n" + SMALL).sha256 != base.sha256


def test_the_hash_leaves_out_where_files_lie() -> None:
    here, there = (parse(SMALL.replace('set = "digits"', f'set = "digits"\ndirectory = "{place}"')) for place in ("a", "b"))
    assert here.sha256 == there.sha256 == parse(SMALL).sha256


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shards = 10", "shard = 10", "`teachers.shard` must be a known key. Got an unknown one instead. Did you mean `shards`?"),
        ("shards = 10", "shards = 10\nxyzzy = 1", "Got an unknown one instead. Known here: augmentation, batch, kind,"),
        ("[data]", "[date]", "Did you mean `data`?"),
        ("queries = 20", "queries = 20\n[aggregation.sanitise]\nbeat = 1.0", "`aggregation.sanitise.beat` must be a known key"),
        ("queries = 20", "queries = 20\n[aggregation.sanitise]\nbeat = 1.0", "Did you mean `beta`?"),
        ("epsilon = 8", "epsilon = 0", "`privacy.epsilon` must be greater than 0. Got 0 instead."),
        ("epsilon = 8", "epsilon = inf", "`privacy.epsilon` must be a finite number. Got inf instead."),
        ("epsilon = 8", 'epsilon = "8"', "`privacy.epsilon` must be a valid number. Got '8' instead."),
        ("epsilon = 8", "epsilon = true", "`privacy.epsilon` must be a valid number. Got True instead."),
        ("epsilon = 8", "", "`privacy.epsilon` must be given. Got nothing instead."),
        ("delta = 1e-5", "delta = 0", "`privacy.delta` must be greater than 0. Got 0 instead."),
        ("delta = 1e-5", "delta = 1.0", "`privacy.delta` must be less than 1. Got 1.0 instead."),
        ("shards = 10", "shards = 0", "`teachers.shards` must be greater than or equal to 1. Got 0 instead."),
        ("shards = 10", "shards = true", "`teachers.shards` must be a valid integer. Got True instead."),
        ("shards = 10", "shards = 10.0", "`teachers.shards` must be a valid integer. Got 10.0 instead."),
        ("queries = 20", 'queries = 20\nmethod = "max"', "`aggregation.method` must be one of 'gnmax', 'lnmax',"),
        ("queries = 20", "queries = 20\nthreshold = 200.0", "`aggregation.threshold` must be a share of the teachers"),
        ('"small"', '""', "`name` must not be empty. Got '' instead."),
        ('[data]\nset = "digits"', "", "`data` must be given"),
        ('[data]\nset = "digits"', 'data = "digits"', "`data` must be a table, [data]. Got 'digits' instead."),
        ('name = "small"', 'name = "small"\nseed = 1.5', "`seed` must be a valid integer. Got 1.5 instead."),
        ("queries = 20", "queries = 401", "`aggregation.queries` must be between 1 and the public pool's 400 records. Got 401"),
        ("shards = 10", "shards = 1001", "`teachers.shards` must be between 1 and the 1000 places of the roster. Got 1001"),
        ("shards = 10", 'shards = 10\nkind = "convnet"\nwidths = [7]', "`teachers.widths` must be multiples of 8. Got (7,)"),
        ("queries = 20", "queries = 20\nqueries = 21", "`recipe` must be valid TOML"),
    ],
)  # fmt: skip
def test_bad_recipes_name_the_key_the_rule_and_the_value(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(RecipeError) as refused:
        parse(SMALL.replace(old, new))
    assert message in str(refused.value)
    assert "pydantic" not in str(refused.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(RecipeError) as refused:
        parse(SMALL.replace("epsilon = 8", "epsilon = -1").replace("shards = 10", "shards = 0"))
    assert len(str(refused.value).splitlines()) == 2


def test_files_that_are_no_recipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(SMALL, encoding="utf-8")
    assert read(tmp_path / "good.toml") == parse(SMALL)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match=r"Got other bytes than text in bytes\.toml"):
        read(tmp_path / "bytes.toml")
    with pytest.raises(RecipeError, match=r"`recipe` must be a readable TOML file\. Got «No such file or directory»"):
        read(tmp_path / "none.toml")
    with pytest.raises(RecipeError, match="Got «Is a directory»"):
        read(tmp_path)


@pytest.mark.parametrize("key", ["split", "directory"])
def test_keys_that_would_be_ignored_are_refused(key: str, tmp_path: Path) -> None:
    recipe = parse(SMALL.replace('set = "digits"', f'set = "digits"\n{key} = "x"'))
    with pytest.raises(RecipeError, match=f"`data.{key}` must stay open for 'digits'"):
        run(recipe, tmp_path / "run")


def test_unknown_sets_and_kinds_are_refused(tmp_path: Path) -> None:
    for old, new, rule in (
        ('"digits"', '"fashion"', "Got 'fashion' instead. Did you mean 'fashion-mnist'?"),
        ('"digits"', '"mnist"\nsplit = "halves"', "`data.split` must be one of 'paper', 'half', 'votes'. Got 'halves' instead."),
        ('"digits"', '"mnist"', "`data` must be the folder with the files of 'mnist': --data DIR. Got nothing instead."),
        ("shards = 10", 'shards = 10\nkind = "forrest"', "Did you mean 'forest'?"),
    ):
        with pytest.raises(RecipeError, match=rule.replace("?", r"\?")):
            run(parse(SMALL.replace(old, new)), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_classes_are_known_without_reading() -> None:
    for name in presets.names():
        assert classes(parse(SMALL.replace('"digits"', f'"{name}"'))) == presets.classes(name) >= 2


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse(SMALL).name = "other"  # type: ignore[misc]


def test_every_key_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "reference" / "recipe.md").read_text(encoding="utf-8")
    for name, field in Recipe.model_fields.items():
        assert f"`{name}`" in text or f"`[{name}]`" in text, name
        for inner in getattr(field.annotation, "model_fields", {}):
            assert f"`{inner}`" in text or f"`[{name}.{inner}]`" in text, f"{name}.{inner}"


# ── masks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [name for name in carried() if name.startswith("segmentation/")])
def test_recipes_for_masks_can_be_paid_for(name: str) -> None:
    recipe = embedded(name)
    assert f"segmentation/{recipe.name}" == name
    assert recipe.tuned_on != "not stated"
    assert is_benchmark(recipe) == (name == DEMO)  # a folder may hold anything, whatever its recipe is called
    (held, known), budget = bound(recipe), recipe.budget()
    assert known
    events = recipe.how().planned(budget, recipe.aggregation.queries, recipe.teachers.shards, held)
    assert accounting.admits(events, budget.epsilon * (1 + 1e-9), budget.delta)
    with pytest.raises(RecipeError, match="must be one with labels"):
        classes(recipe)


@pytest.mark.parametrize(
    ("table", "held", "known"),
    [
        ('kind = "dct"\nkept = 20\nnorm = 3.0', Ball(20, 3.0), True),
        ('kind = "dct"\nkept = 20', Ball(20, 1.0), False),
        ('kind = "wavelet"\nkept = 20', Ball(20, 1.0), False),
        ('kind = "pca"\ncomponents = 5\nnorm = 2.0', Ball(5, 2.0), True),
        ('kind = "blocks"\nblock = [8, 6]\ncomponents = 5', Ball(30, 1.0), False),
        ('kind = "blocks"\nblock = [8, 6]\nnorm = 2.0', Ball(6 * 48, 2.0), True),
        ('kind = "pixels"', Binary(256), True),
        ('kind = "pixels"\nbound = "orthant"', Orthant(256, 1.0), False),
        ('kind = "flips"\nnorm = 4.0\nfilter = { kind = "dct", kept = 9 }', Orthant(256, 4.0), True),
        ('kind = "autoencoder"\ndim = 7\nactivation = "tanh"', Cube(7), True),
        ('kind = "autoencoder"\ndim = 7', Ball(7, 1.0), True),
    ],
)  # fmt: skip
def test_bounds_are_known_without_reading(table: str, held: object, known: bool) -> None:
    assert bound(parse(coded(table))) == (held, known)
    assert bound(parse(MASKS)) == (OneHot(5), True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"scenes"', '"scene"', "Got 'scene' instead. Did you mean 'scenes'?"),
        ("size = 16\n", "", "`data.size` must be given for 'scenes'. Got nothing instead."),
        ("size = 16", "size = [16, 16, 16]", "`data.size` must be one whole number for 'scenes'. Got (16, 16, 16) instead."),
        ("size = 16", "size = 4", "`data.size` must be a whole number ≥ 8. Got 4 instead."),
        ("size = 16", "size = 16\nsplit = 'half'", "`data.split` must stay open for 'scenes'. Got a value instead."),
        ("size = 16", "size = 16\ntarget = 'fish'", "`data.target` must be one of bird, cat, dog. Got 'fish' instead."),
        ("size = 16", "size = 16\ndirectory = 'x'", '`data.directory` must come with silhouettes = "templates"'),
        ("private = 24", "privat = 24", "`data.privat` must be a known key. Got an unknown one instead. Did you mean `private`?"),
        ('"scenes"\nsize = 16', '"brats"\nsize = [9, 9, 9]\nnoise = 3.0', "`data.noise` must stay open for 'brats'."),
        ('"scenes"\nsize = 16', '"hippocampus"\nsize = 16', "`data.size` must be three whole numbers for 'hippocampus'."),
        ('kind = "unet"', 'kind = "convnet"', "`teachers.kind` must be 'unet' or 'regions' for 'scenes', whose"),
        ('kind = "unet"', 'kind = "forest"\nsteps = 3', "`teachers.kind` must be 'unet' or 'regions' for 'scenes', whose"),
        ('kind = "unet"', 'kind = "une"', "Did you mean 'unet'?"),
        ('learner = "masks"', 'learner = "supervised"', "`student.learner` must be 'masks' or 'latent' for 'scenes', whose"),
        ('learner = "masks"', 'learner = "latent"', "`codec.kind` must be one of 'dct', 'pca', 'blocks', 'wavelet', 'flips', 'r"),
        ('learner = "masks"', 'learner = "masks"\nkind = "forest"', "`student.kind` must be one of 'unet', 'regions'. Got 'fo"),
        ('learner = "masks"', 'learner = "masks"\n[student.latent]\nsteps = 3', "`student.latent` must stay open for"),
        ('[codec]\nkind = "region-votes"\nregions = 4\n', "", "`codec` must be given for 'scenes'. Got nothing instead."),
        ('kind = "region-votes"', 'kind = "region-vote"', "Got 'region-vote' instead. Did you mean 'region-votes'?"),
        ('kind = "region-votes"\n', "", "`codec.kind` must be given. Got nothing instead."),
        ("regions = 4", "region = 4", "`codec.region` must be a known key. Got an unknown one instead. Did you mean `regions`?"),
        ("regions = 4", "regions = 4\nkept = 3", "`codec.kept` must be a known key."),
        ("regions = 4", "regions = 4\nshare = 1.5", "`codec.share` must be less than or equal to 1. Got 1.5 instead."),
        ('"gnmax"', '"mean"', "`aggregation.method` must be 'gnmax' for the codec 'region-votes'. Got 'mean' instead."),
        ("regions = 4", "regions = 1", "`codec.regions` must be greater than or equal to 2. Got 1 instead."),
        ("queries = 6", "queries = 11", "`aggregation.queries` must be between 1 and the public pool's 10 records. Got 11"),
        ("shards = 3", "shards = 25", "`teachers.shards` must be between 1 and the 24 places of the roster. Got 25 instead."),
        ("shards = 3", "shards = 3\nwidths = [7, 16]", "`teachers.widths` must be multiples of 8. Got (7, 16) instead."),
        ('learner = "masks"', 'learner = "masks"\nwidths = [8, 12]', "`student.widths` must be multiples of 8. Got (8, 12)"),
        ("queries = 6", "queries = 6\nrounds = 3", "`aggregation.rounds` must stay open for masks. Got 3 instead."),
        ("queries = 6", 'queries = 6\nquestions = "uncertain"', "`aggregation.questions` must be 'first' or 'prototypes'"),
        ("queries = 6", 'queries = 6\nquestions = "seen"', "`aggregation.questions` must be 'first' or 'prototypes'"),
        ("queries = 6", "queries = 6\n[aggregation.selection]\nthreshold = 1.0\nanswers = 3", "`aggregation.selection` must st"),
        (VOTES, 'kind = "dct"\nkept = 5\n[aggregation]', "`aggregation.method` must be 'mean' for the codec 'dct'. Got 'gnmax'"),
    ],
)  # fmt: skip
def test_bad_recipes_for_masks_name_the_key_the_rule_and_the_value(old: str, new: str, message: str) -> None:
    assert old in MASKS
    with pytest.raises(RecipeError) as refused:
        parse(MASKS.replace(old, new))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('kind = "dct"\nkept = 5\nnorm = 2.0\nquantile = 0.9', "`codec.quantile` must stay open where `norm` is given."),
        ('kind = "pixels"\nnorm = 2.0', "`codec.norm` and `quantile` must stay open for the bound 'binary'."),
        ('kind = "flips"\nnorm = 2.0', "`codec.filter` must be given. Got nothing instead."),
        ('kind = "flips"\nfilter = { kind = "pixels" }', "`codec.filter.kind` must be one of 'dct', 'pca', 'blocks', 'wavelet'."),
        ('kind = "flips"\nfilter = { kind = "dct", kept = 5, norm = 2.0 }', "`codec.filter.norm` must stay open"),
        ('kind = "flips"\nfilter = { kind = "dct", keep = 5 }', "`codec.filter.keep` must be a known key."),
        ('kind = "autoencoder"\ndim = 5\nnorm = 2.0', "`codec.norm` must stay open where the activation is not 'clip'."),
        ('kind = "pca"\ncomponents = 5\nnoise = 2.0', "`codec.noise` must be a known key."),
        ('kind = "dct"\nkept = 257', "`codec.kept` must be at most the 256 pixels. Got 257 instead."),
        ('kind = "blocks"\nblock = [8, 8]', "`components` of blocks must be given where neither their `norm` nor"),
        ('kind = "blocks"\nblock = [8]\ncomponents = 2', "`codec.block` must have 2 sizes, one per side of a mask. Got (8,)"),
        (
            'kind = "flips"\nfilter = { kind = "blocks", block = [8, 8, 8], components = 2 }',
            "`codec.filter.block` must have 2 sizes",
        ),
        ('kind = "wavelet"\nkept = 5\nchosen = "coarse"', "`codec.norm` must be given for the coarsest coefficients"),
        ('kind = "wavelet"\nkept = 257\nnorm = 2.0', "`codec.kept` must be at most the 256 coefficients. Got 257 instead."),
        ('kind = "wavelet"\nkept = 5\nchosen = "teachers"', "`codec.chosen` must be 'public' or 'coarse'. Got 'teachers'"),
        ('kind = "rescaled"\ninner = { kind = "regions", regions = 4 }', "`codec.inner.kind` must be one of 'dct', 'pca', 'blo"),
        ('kind = "rescaled"\ninner = { kind = "pixels" }', "`codec.inner.bound` must be 'orthant' inside of 'rescaled'."),
        ('kind = "rescaled"\ninner = { kind = "pca" }', "`codec.inner.components` must be given inside of 'rescaled'."),
        (
            'kind = "rescaled"\ninner = { kind = "flips", filter = { kind = "pca", components = 3, shrink = true } }',
            "`codec.inner.filter.shrink` must stay open inside of 'rescaled'",
        ),
        ('kind = "rescaled"', "`codec.inner` must be given. Got nothing instead."),
        ('kind = "guided"\ninner = { kind = "region-votes", regions = 4 }', "`codec.inner.kind` must be one of"),
        ('kind = "guided"\ninner = { kind = "dct", kept = 5 }\nwidths = [7]', "`codec.widths` must be multiples of 8. Got (7,)"),
        ('kind = "guided"\ninner = { kind = "dct", kept = 5 }\nnorm = 3.0', "`codec.norm` must be a known key."),
        ('kind = "regions"\nregions = 4\nmethod = "greys"', "`codec.method` must be 'superpixels' or 'levels'. Got 'greys'"),
    ],
)  # fmt: skip
def test_codecs_refuse_what_they_would_ignore(table: str, message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        parse(coded(table))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('set = "digits"', 'set = "digits"\nsize = 8', "`data.size` must stay open for 'digits'. Got a value instead."),
        ("[teachers]", '[teachers]\nkind = "unet"', "`teachers.kind` must be one for labels, which 'digits' has."),
        ("[aggregation]", '[codec]\nkind = "dct"\n[aggregation]', "`codec` must stay open for 'digits'. Got a table instead."),
    ],
)  # fmt: skip
def test_labels_have_no_use_for_the_words_of_masks(old: str, new: str, message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        parse(SMALL.replace(old, new))
    assert message in str(refused.value)


def test_settings_of_masks_are_checked_where_there_is_torch() -> None:
    pytest.importorskip("torch")
    from tutelage.nets.warps import SCENES, VOLUMES
    from tutelage.recipes import learners, segmenters

    table = '\n[student.masks]\nsteps = 7\nthreshold = 0.4\naugmentation = "scenes"'
    found = segmenters.settings(parse(MASKS + table))
    assert (found["training"].steps, found["training"].batch, found["training"].augmentation) == (7, 4, SCENES)
    assert (found["threshold"], found["window"]) == (0.4, None)
    latent = coded('kind = "dct"\nkept = 5').replace('"masks"\n', '"latent"\n')
    latent = latent.replace('name = "latent"', 'name = "masks"')
    found = segmenters.settings(
        parse(latent + '[student.latent]\nfree = "head"\nagain = "none"\n[student.latent.begin]\nsteps = 9')
    )
    how = found["settings"]
    assert (how.free, how.again, how.begin.steps, how.begin.augmentation) == ("head", None, 9, VOLUMES)
    for extra, message in (
        (
            "\n[student.masks]\nstep = 3",
            "`student.masks.step` must be a known key.",
        ),
        ("\n[student.masks]\nsteps = 0", "`student.masks.steps` must be a whole number ≥ 1. Got 0 instead."),
        (
            '\n[student.masks]\naugmentation = "scene"',
            "Got 'scene' instead. Did you mean 'scenes'?",
        ),
        ("\n[student.masks]\naugmentation = { rotate = 3.0 }", "`student.masks.augmentation.rotate` must be a known key"),
    ):
        with pytest.raises(RecipeError) as refused:
            learners.check(parse(MASKS + extra))
        assert message in str(refused.value)
    with pytest.raises(RecipeError, match=r"`teachers.augmentation` must be one of .* Got 'digits' instead"):
        learners.check(parse(MASKS.replace("shards = 3", 'shards = 3\naugmentation = "digits"')))


def test_networks_that_look_at_regions_need_regions_of_flat_images() -> None:
    both = MASKS.replace('"unet"', '"regions"').replace('learner = "masks"', 'learner = "masks"\nkind = "regions"')
    assert parse(both).student.kind == "regions"
    student = MASKS.replace('learner = "masks"', 'learner = "masks"\nkind = "regions"')
    brats = ('"scenes"\nsize = 16', '"brats"\nroster = "r"\nsize = [9, 9, 9]')
    linear = 'kind = "dct"\nkept = 5\n[aggregation]\nmethod = "mean"'
    for text, message in (
        (coded('kind = "dct"\nkept = 5').replace('"unet"', '"regions"'), "for `teachers.kind` 'regions'. Got 'dct' instead."),
        (student.replace(VOTES, linear), "`codec.kind` must be 'region-votes' for `student.kind` 'regions'. Got 'dct'"),
        (
            student.replace(*brats),
            "`student.kind` must be 'unet' for volumes.",
        ),
        (student.replace('"masks"\nkind', '"latent"\nkind').replace(VOTES, linear), "`codec.kind` must be 'region-votes' for"),
    ):
        with pytest.raises(RecipeError) as refused:
            parse(text)
        assert message in str(refused.value)


def test_settings_of_regions_are_checked_where_there_is_torch() -> None:
    pytest.importorskip("torch")
    from tutelage.nets.augmentation import Augmentation
    from tutelage.nets.crops import SILHOUETTES
    from tutelage.recipes import learners, segmenters
    from tutelage.recipes.regions import cut

    both = MASKS.replace('"unet"', '"regions"').replace('learner = "masks"', 'learner = "masks"\nkind = "regions"')
    assert segmenters.training(parse(both)).augmentation == SILHOUETTES
    narrow = both.replace("shards = 3", 'shards = 3\nprecision = "bfloat16"')
    assert [segmenters.training(parse(text)).precision for text in (both, narrow)] == ["auto", "bfloat16"]
    found = segmenters.settings(parse(both + "[student.masks]\nsteps = 7\nmembers = 5\naugmentation = { shift = 1.0 }"))
    assert (found["training"].steps, found["training"].augmentation) == (7, Augmentation(shift=1.0))
    assert (found["members"], found["threshold"]) == (5, None)
    read = cut(parse(both.replace("regions = 4", 'regions = 6\nmethod = "levels"\nshare = 0.4')))
    assert (read.shape, read.regions, read.method, read.share) == ((16, 16), 6, "levels", 0.4)
    for text, message in (
        (both + "[student.masks]\nwindow = [8, 8]", "`student.masks.window` must be a known key."),
        (both + "[student.masks]\nmembers = 0", "`student.masks.members` must be greater than or equal to 1. Got 0 instead."),
        (both + "[student.masks]\nrate = -1.0", "`student.masks.rate` must be > 0. Got -1.0 instead."),
        (both + '[student.masks]\naugmentation = "scenes"', "one of 'none', 'silhouettes'. Got 'scenes' instead."),
        (
            both.replace("shards = 3", 'shards = 3\naugmentation = "scenes"'),
            "`teachers.augmentation` must be one of 'none', 'sil",
        ),
        (both.replace("shards = 3", "shards = 3\nwidths = [7]"), "`teachers.widths` must be multiples of 8"),
        (
            both.replace('kind = "regions"\n', 'kind = "regions"\nwidths = [7]\n').replace(
                'kind = "regions"\nwidths = [7]\nshards', 'kind = "regions"\nshards'
            ),
            "`student.widths` must be multiples of 8",
        ),
    ):
        with pytest.raises(RecipeError) as refused:
            learners.check(parse(text))
        assert message in str(refused.value)


def test_the_recipe_of_scenes_asks_as_many_questions_as_the_rule_says() -> None:
    import math

    from tutelage.privacy import accounting

    recipe = embedded("segmentation/scenes")
    mu = float(accounting.epsilon_mu(recipe.privacy.epsilon, recipe.privacy.delta))
    most = (0.4 * recipe.teachers.shards * mu / (2 * 1.5)) ** 2  # benchmarks/scenes.py, `asked`
    assert recipe.aggregation.queries == 2 ** int(math.log2(most))
    assert (recipe.teachers.kind, recipe.student.kind) == ("regions", "regions")


def test_every_key_of_a_codec_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "reference" / "recipe.md").read_text(encoding="utf-8")
    for kind, section in codecs.SECTIONS.items():
        assert f'"{kind}"' in text
        for key in section.model_fields:
            assert f"`{key}`" in text, f"{kind}.{key}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MASKS + "[alignment]\n", "`alignment` must stay open for 'scenes', whose images show no one organ"),
        (SMALL + "[alignment]\n", "`alignment` must stay open for 'digits', whose images show no one organ"),
        ("window = 8", "`alignment.window` must be odd"),
        ("window = 1", "`alignment.window` must be greater than or equal to 3"),
        ("knots = 2", "`alignment.knots` must be greater than or equal to 3"),
        ("stiffness = -0.1", "`alignment.stiffness` must be greater than or equal to 0"),
        ("bend = 1", "`alignment.bend` must be a known key"),
    ],
)
def test_alignment_is_for_scans_alone_and_knows_its_keys(text: str, message: str) -> None:
    if "[" not in text:
        carried_text = resources.files("tutelage.recipes").joinpath("segmentation/hippocampus.toml").read_text(encoding="utf-8")
        text = carried_text.replace("[alignment]\n", f"[alignment]\n{text}\n")
    with pytest.raises(RecipeError, match=re.escape(message)):
        parse(text)


def test_recipes_for_labels_keep_their_hash() -> None:
    """Books of earlier runs are opened by it: keys that came with masks are hashed where they are given alone."""
    content = parse(SMALL).model_dump(mode="json", exclude={"data": {"directory"}})
    older = {key: value for key, value in content.items() if key not in ("codec", "alignment")}
    older["data"] = {key: content["data"][key] for key in ("set", "split")}
    newer = ("masks", "latent", "linear", "heir", "network", "window", "selection")
    for place in ("teachers", "aggregation", "student"):
        older[place] = {key: value for key, value in content[place].items() if key not in newer}
    assert parse(SMALL).sha256 == hashlib.sha256(json.dumps(older, sort_keys=True).encode()).hexdigest()
    assert parse(MASKS).sha256 != parse(MASKS.replace("size = 16", "size = 17")).sha256
    assert parse(MASKS).sha256 != parse(MASKS.replace("regions = 4", "regions = 5")).sha256


# ── masks: what is left open ──────────────────────────────────────────────────────────────────────────────────────────

DCT = 'kind = "dct"\nkept = 5'
GUIDED = f'kind = "guided"\n[codec.inner]\n{DCT}'


@pytest.mark.parametrize(
    ("table", "learner"),
    [
        (DCT, "latent"),
        ('kind = "pca"', "latent"),
        ('kind = "flips"\nfilter = { kind = "dct", kept = 5 }', "latent"),
        (f"kind = 'rescaled'\n[codec.inner]\n{DCT}", "latent"),
        ('kind = "rescaled"\n[codec.inner]\nkind = "pixels"\nbound = "orthant"', "masks"),
        ('kind = "pixels"', "masks"),
        ('kind = "regions"\nregions = 4', "masks"),
        ('kind = "autoencoder"\ndim = 4', "masks"),
        (GUIDED, "masks"),
    ],
)
def test_the_codec_says_who_learns_where_the_recipe_does_not(table: str, learner: str) -> None:
    text = coded(table).replace('[student]\nlearner = "masks"\n', "")
    assert parse(text).student.learner == learner
    assert parse(text).sha256 == parse(text + f"[student]\nlearner = '{learner}'").sha256
    assert parse(text + "[student]\nlearner = 'masks'").student.learner == "masks"
    assert parse(SMALL).student.learner == "supervised"


def test_votes_for_regions_teach_what_is_decoded_from_them() -> None:
    assert parse(MASKS.replace('[student]\nlearner = "masks"\n', "")).student.learner == "masks"


def test_a_plan_says_who_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tutelage.pricing import price_recipe

    path = tmp_path / "masks.toml"
    path.write_text(coded(DCT).replace('[student]\nlearner = "masks"\n', ""), encoding="utf-8")
    price_recipe(path, None, None)
    said = " ".join(capsys.readouterr().out.split())
    assert "student: 'latent' learns from codes, which it never decodes (the default here)" in said
    path.write_text(coded(DCT), encoding="utf-8")
    price_recipe(path, None, None)
    assert "(the default is 'latent' here)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("table", "expected", "known"),
    [
        ('kind = "pca"', Ball(256, 1.0), False),
        ('kind = "pca"\nrank = 9\nnorm = 3.0', Ball(9, 3.0), True),
        ('kind = "regions"\nregions = 4\nnorm = 3.0', Orthant(256, 3.0), True),
        ('kind = "wavelet"\nkept = 7\nnorm = 3.0', Ball(7, 3.0), True),
        (f"kind = 'rescaled'\nnorm = 2.0\n[codec.inner]\n{DCT}", Ball(5, 2.0), True),
        ('kind = "rescaled"\n[codec.inner]\nkind = "flips"\nfilter = { kind = "dct", kept = 5 }', Orthant(256, 1.0), False),
        (f"{GUIDED}\nnorm = 3.0", Ball(5, 3.0), True),
        ('kind = "guided"\n[codec.inner]\nkind = "autoencoder"\ndim = 4\nactivation = "tanh"', Cube(4), True),
    ],
)
def test_a_codec_s_bound_is_known_before_any_data(table: str, expected: object, known: bool) -> None:
    assert bound(parse(coded(table))) == (expected, known)


@pytest.mark.parametrize("unit", ["record", "institution"])
def test_volumes_know_patients_alone(unit: str) -> None:
    text = (
        coded(DCT)
        .replace('"scenes"\nsize = 16', '"brats"\nroster = "r"\nsize = [9, 9, 9]')
        .replace("delta = 1e-5", "delta = 1e-5\nunit = 'patient'")
    )
    assert parse(text).privacy.unit == "patient"
    with pytest.raises(RecipeError, match=f"`privacy.unit` must be 'patient' for 'brats', which knows no other. Got '{unit}'"):
        parse(text.replace("'patient'", f"'{unit}'"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shards = 3", 'shards = 3\nnetwork = "sisi"', "`teachers.network` must be one of 'sisi-2d', 'brats-2d', 'brats-sl"),
        ("shards = 3", 'shards = 3\nnetwork = "brats-3d"', "`teachers.network` must be one for 2 sides. Got 'brats-3d' instead."),
        ("shards = 3", 'shards = 3\nnetwork = "sisi-2d"\nwidths = [8]', "`teachers.widths` must stay open for a network"),
        ("shards = 3", "shards = 3\nwindow = [8, 8, 8]", "`teachers.window` must have 2 sizes, one per side. Got (8, 8, 8)"),
        ('learner = "masks"', 'learner = "masks"\nnetwork = "brats-3d"', "`student.network` must be one for 2 sides."),
        ('kind = "unet"', 'kind = "regions"\nwindow = [8, 8]', "`teachers.window` must stay open where there is no U-Net."),
    ],
)  # fmt: skip
def test_networks_of_the_papers_are_held_to_the_data(old: str, new: str, message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        parse(MASKS.replace(old, new, 1))
    assert message in str(refused.value)


@pytest.mark.parametrize("learner", ["masks", "latent"])
def test_a_student_s_window_is_one_that_its_network_can_look_through(learner: str) -> None:
    """Before, a student that learns from codes was refused only when its teachers had been paid for."""
    pytest.importorskip("torch")
    from tutelage.recipes import segmenters

    text = coded(DCT).replace('learner = "masks"', f'learner = "{learner}"')
    with pytest.raises(RecipeError, match=r"`student.widths` must not halve a \(2, 2\) image to nothing."):
        segmenters.check(parse(text + f"\n[student.{learner}]\nwindow = [2, 2]"))


@pytest.mark.parametrize("learner", ["masks", "latent"])
def test_a_student_s_window_has_as_many_sides_as_a_mask(learner: str) -> None:
    pytest.importorskip("torch")
    from tutelage.recipes import segmenters

    text = coded(DCT).replace('learner = "masks"', f'learner = "{learner}"')
    for window, right in (("[8, 8]", True), ("[8, 8, 8]", False)):
        recipe = parse(text + f"\n[student.{learner}]\nwindow = {window}")
        if right:
            segmenters.check(recipe)
        else:
            with pytest.raises(
                RecipeError, match=rf"`student.{learner}.window` must have 2 sizes, one per side. Got \(8, 8, 8\)"
            ):
                segmenters.check(recipe)


def test_the_words_for_networks_are_those_that_can_be_built() -> None:
    pytest.importorskip("torch")
    from tutelage.nets.presets import PRESETS, Preset
    from tutelage.recipes import names

    told = {name: (Preset(name).sides, settings["in_channels"]) for name, (_, settings) in PRESETS.items()}
    assert dict(names.PRESETS) == told


def test_networks_and_decoders_that_do_not_fit_are_refused_before_data_is_read() -> None:
    pytest.importorskip("monai")
    from tutelage.recipes import learners, segmenters

    fitting = MASKS.replace("shards = 3", 'shards = 3\nnetwork = "sisi-2d"').replace("size = 16", "size = 24")
    learners.check(parse(fitting))
    with pytest.raises(RecipeError, match=r"`teachers.network` must fit images of \(20, 20\), which it halves several times"):
        learners.check(parse(fitting.replace("size = 24", "size = 20")))
    with pytest.raises(RecipeError, match=r"`codec.widths` must not halve"):
        learners.check(parse(coded(f"widths = [8, 8, 8, 8, 8, 8]\n{GUIDED}")))
    with pytest.raises(RecipeError, match=r"`codec.augmentation` must be one of 'none', 'scenes', 'volumes'. Got 'digits'"):
        learners.check(parse(coded(f'augmentation = "digits"\n{GUIDED}')))
    learners.check(parse(coded(f"augmentation = {{ shift = 2.0 }}\n{GUIDED}")))
    found = segmenters.settings(parse(MASKS + '[student.masks]\nthreshold = "public"'))
    assert found["threshold"] == "public"
    with pytest.raises(RecipeError, match=r"`student.masks.threshold"):
        segmenters.settings(parse(MASKS + '[student.masks]\nthreshold = "private"'))


def test_a_latent_student_takes_the_networks_of_the_papers_and_refuses_others_at_once() -> None:
    pytest.importorskip("monai")
    from torch import nn

    from tutelage.nets.presets import Preset
    from tutelage.students.latent import LatentStudent

    LatentStudent(Preset("sisi-2d"))
    with pytest.raises(RecipeError, match=r"`network` must be one that `UNet` or a `Preset` built\. Got Conv2d instead"):
        LatentStudent(lambda: nn.Conv2d(1, 1, 1))
