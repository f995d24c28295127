"""Recipes: what is accepted, what is refused and how, and what their hash covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutelage.data import presets
from tutelage.planning import Sanitise
from tutelage.privacy import accounting
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.units import Unit
from tutelage.recipes.recipe import Recipe, parse, read
from tutelage.recipes.run import EMBEDDED, carried, classes, embedded, is_benchmark, run

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
    events = how.planned(budget, recipe.aggregation.queries, recipe.teachers.shards, classes(recipe))
    assert accounting.admits(events, budget.epsilon * (1 + 1e-9), budget.delta)  # every question, even if a test lets all pass
    assert recipe.privacy.unit == ("patient" if recipe.data.set.startswith("diabetes") else "record")


def test_published_noise_is_the_papers() -> None:
    for name in ("mnist-lnmax-100", "mnist-lnmax-1000", "svhn-lnmax-500", "svhn-lnmax-1000", "adult-lnmax", "diabetes-lnmax"):
        recipe = embedded(f"pate/{name}")
        assert (recipe.aggregation.method, recipe.aggregation.gamma, recipe.teachers.shards) == ("lnmax", 1 / 20, 250)
        assert recipe.privacy.delta == (1e-6 if "svhn" in name else 1e-5)
    for name, threshold, test in (("mnist", 200, 150), ("svhn", 300, 200), ("adult", 300, 200)):
        recipe = embedded(f"pate/{name}-confident")
        mechanism, screen = recipe.how().built(recipe.budget(), recipe.aggregation.queries, 250, classes(recipe))
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
