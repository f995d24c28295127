"""From a recipe to a run: a closed table of names, nothing looked up at run time."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from tutelage.codecs.votes import Votes
from tutelage.data import overlap, presets
from tutelage.data.dataset import Private, Public
from tutelage.data.digits import digits
from tutelage.data.provenance import Provenance
from tutelage.privacy.bounds import Bound, OneHot
from tutelage.privacy.errors import LedgerError, RecipeError
from tutelage.recipes import codecs, coders, learners, linear, own, sets
from tutelage.recipes.beginnings import Beginnings
from tutelage.recipes.laid import laid
from tutelage.recipes.learned import answered, begin_anew
from tutelage.recipes.recipe import Recipe, parse, with_roster
from tutelage.recipes.sections import unknown
from tutelage.recipes.written import written
from tutelage.runs import RunFolder
from tutelage.sharing import ledger_of
from tutelage.tasks.checks import check_place
from tutelage.transfer import Outcome, Progress, transfer

DEMO = "segmentation/scenes-demo"  # what `tutelage demo` runs
EMBEDDED = ("digits", "digits-lnmax", "digits-confident")  # what `tutelage demo --only digits` runs
_FOLDERS = ("pate", "segmentation")
_OWN = "digits"  # the one data set that needs no files


def run(
    recipe: Recipe,
    out: str | Path,
    *,
    data: str | Path | None = None,
    public_data: bool = False,
    device: str = "auto",
    engine: str = "auto",
    ledger: str | Path | None = None,
    resume: bool = False,
    pages: Callable[[RunFolder], object] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Carry out a recipe into a run folder; `data` is where the files lie, in place of the recipe's own directory.

    `public_data` declares that the patients who are drawn from it for the public pool and the test are public. `ledger` is a file
    that several runs on the same data share; `pages` writes pages into the release before it is published.
    """
    learners.require(recipe, device=device, engine=engine)
    check_place(out, sets.folders(recipe.data, data) if recipe.about_masks else ())
    recipe, folder = rostered(recipe, data), RunFolder(out)
    folder.check(resume=resume)
    if resume:
        _check_begun(recipe, folder)
    private, public, test, origin = gathered(recipe, data, progress, public_data=public_data, kept=folder.private / "scans")
    overlap.refuse(private, public, test)  # before a codec learns from the pool, and before its scans are moved
    number = 0 if recipe.about_masks else classes(recipe)
    if recipe.features is not None or recipe.about_masks or linear.chosen(recipe):
        folder.create(resume=resume)  # a folder that holds another run is refused before features or a codec go into it
        with folder.locked():
            if folder.begun:
                with ledger_of(folder, recipe.budget(), ledger):
                    pass  # a ledger that is lost or older is refused before a release is taken back
            folder.reopen()
            begin_anew(folder)
    told = origin.told()
    if recipe.alignment is not None:
        settings = recipe.alignment.model_dump(exclude_none=True)
        public, told["alignment"] = laid(public, settings, folder, device=device, progress=progress)
        told["hashes"]["moved"] = public.sha256
    teachers, student = _learners(recipe, private, public, number, folder, device=device, engine=engine, progress=progress)
    outcome = transfer(
        private,
        public,
        teachers=teachers,
        student=student,
        codec=_codec(recipe, public, folder, device=device),
        budget=recipe.budget(),
        shards=recipe.teachers.shards,
        queries=recipe.aggregation.queries,
        aggregation=recipe.how(),
        questions=learners.questions(recipe),
        test=test,
        out=out,
        seed=recipe.seed,
        ledger=ledger,
        purpose=recipe.sha256,
        recipe=written(recipe),
        tuned_on=recipe.tuned_on,
        benchmark=is_benchmark(recipe),
        data=told,
        declared=_declared(recipe, data),
        truth=not recipe.about_masks or sets.shows_truth(recipe.data, public_data=public_data),
        resume=resume,
        pages=pages,
        progress=progress,
    )
    with outcome.folder.locked():
        outcome.folder.write_inside(outcome.folder.inside_data, json.dumps(origin.inside(private), indent=2) + "\n")
    return outcome


def again(
    recipe: Recipe, private: Private, public: Public, out: Path, *, shards: int, device: str = "auto", engine: str = "auto"
) -> Any:
    """Repeat the walk on these records and give its model, without scores or controls: what an audit compares.

    `out` is a folder that its caller throws away, and the ledger with it.
    """
    folder, number = RunFolder(out).create(), 0 if recipe.about_masks else classes(recipe)
    if recipe.alignment is not None:
        public, _ = laid(public, recipe.alignment.model_dump(exclude_none=True), folder, device=device, progress=None)
    teachers, student = _learners(recipe, private, public, number, folder, device=device, engine=engine, progress=None)
    return transfer(
        private, public, teachers=teachers, student=student, codec=_codec(recipe, public, folder, device=device),
        budget=recipe.budget(), shards=shards, queries=recipe.aggregation.queries, aggregation=recipe.how(),
        questions=learners.questions(recipe), out=out, controls=False, seed=recipe.seed, truth=False,
    ).model  # fmt: skip


def _declared(recipe: Recipe, data: str | Path | None) -> tuple[str, ...]:
    """Say what counts as public on the owner's word."""
    if own.has(recipe.data):
        return own.declared(recipe.data)
    return sets.declared(recipe.data, data or recipe.data.directory) if recipe.about_masks else ()


def _check_begun(recipe: Recipe, folder: RunFolder) -> None:
    """Refuse to go on, before anything is read or fitted, with a folder that another recipe began."""
    if folder.state.get("run") not in (None, recipe.sha256):
        raise LedgerError(
            "`recipe` must be the one that this folder was begun with. Got one that was changed since instead: take a new --out."
        )


def unanswered(recipe: Recipe, outcome: Outcome) -> list[str]:
    """Say that the budget ended before the questions did. Where a test decides what is answered, silence is usual."""
    answered, asked = outcome.guarantee["labels"]["released"], recipe.aggregation.queries
    if recipe.how().adaptive or answered >= asked:
        return []
    return [f"{answered:,} of {asked:,} questions were answered: the budget was used up."]


def _learners(
    recipe: Recipe, private: Private, public: Public, number: int, folder: RunFolder, *, device: str, engine: str, progress: Any
) -> tuple[Any, Any]:
    if linear.chosen(recipe):
        say = progress or (lambda what, done, total: None)
        from tutelage.recipes import corrected

        return corrected.learners(recipe, public, number, folder, device=device, say=say)
    begin = Beginnings(recipe, public, folder.release, device=device, progress=progress)
    kept = folder.private / "teachers"
    teachers = learners.teachers(recipe, private, number, begin, device=device, engine=engine, checkpoint=kept)
    return teachers, learners.student(recipe, public, number, begin, device=device)


def _codec(recipe: Recipe, public: Public, folder: RunFolder, *, device: str) -> Any:
    if recipe.about_masks:
        return coders.codec(recipe, public, device=device, kept=folder.release, begun=answered(folder))
    return linear.codec(recipe, classes(recipe)) if linear.chosen(recipe) else Votes(classes(recipe))


def carried() -> tuple[str, ...]:
    """Name the recipes that the package carries."""
    home = resources.files("tutelage.recipes")
    files = ((place, file) for place in _FOLDERS for file in home.joinpath(place).iterdir())
    found = [f"{place}/{file.name}" for place, file in files if file.name.endswith(".toml")]
    return (*EMBEDDED, *sorted(name.removesuffix(".toml") for name in found))


def embedded(name: str) -> Recipe:
    """Read a recipe that the package carries."""
    if name not in carried():
        raise unknown("name", name, carried())
    return parse(resources.files("tutelage.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8"), name=name)


def is_benchmark(recipe: Recipe) -> bool:
    """Tell whether the 'private' data of this recipe is public anyway, so that its private controls may be shown.

    All sets of labels are: they can be downloaded by anybody, and their files are recognised. Scenes are where they are drawn.
    """
    if recipe.about_masks:
        return sets.is_public(recipe.data)
    return recipe.data.set in (_OWN, *presets.names())


def bound(recipe: Recipe) -> tuple[Bound, bool]:
    """Give what bounds a ballot, without reading data, and whether its size is known already."""
    if recipe.about_masks:
        return codecs.bound(recipe)
    return (linear.codec(recipe, classes(recipe)).bound if linear.chosen(recipe) else OneHot(classes(recipe))), True


def classes(recipe: Recipe) -> int:
    """Give the number of classes of a recipe's data set, without reading it; refuse a split that is not known."""
    name, split = recipe.data.set, recipe.data.split
    if name == _OWN:
        return 10
    if recipe.about_masks:
        raise RecipeError(f"`data.set` must be one with labels. Got {name!r}, whose targets are masks, instead.")
    if own.has(recipe.data):
        return len(recipe.data.classes or ())
    if split is not None and split not in presets.splits(name):
        raise unknown("data.split", split, presets.splits(name))
    return presets.classes(name)


def loaded(recipe: Recipe, given: str | Path | None, progress: Progress | None = None) -> tuple[Private, Public, Public]:
    """Read or draw the private records, the public pool and the test part."""
    private, public, test, _ = gathered(recipe, given, progress)
    return private, public, test


def rostered(recipe: Recipe, given: str | Path | None) -> Recipe:
    """Read the roster of a recipe that was not read from a file of its own: it is a file of the data folder."""
    directory = given if given is not None else recipe.data.directory
    recipe = with_roster(recipe, None if directory is None else Path(directory))
    given_ids = recipe.about_masks or own.has(recipe.data)
    if directory is not None and given_ids and recipe.data.roster is not None and recipe.roster is None:
        raise RecipeError("`data.roster` must be the list itself where a run is made. Got its hash alone instead.")
    return recipe


def gathered(
    recipe: Recipe,
    given: str | Path | None,
    progress: Progress | None = None,
    *,
    public_data: bool = False,
    kept: Path | None = None,
) -> tuple[Private, Public, Public, Provenance]:
    """Read or draw the three parts, and say what they are; volumes larger than memory lie in `kept` for as long as they are."""
    if public_data and not (recipe.about_masks or own.has(recipe.data)):
        raise RecipeError(f"`public_data` must stay off for {recipe.data.set!r}, whose targets are no masks. Got it instead.")
    directory, benchmark, name = given if given is not None else recipe.data.directory, is_benchmark(recipe), recipe.data.set
    recipe = rostered(recipe, given)
    if recipe.about_masks:
        private, public, test = sets.load(
            recipe.data, directory, seed=recipe.seed, public_data=public_data, kept=kept, roster=recipe.roster, progress=progress
        )
        return private, public, test, Provenance(name, None, benchmark, public, test)
    if own.has(recipe.data):
        given_of = {"unit": recipe.privacy.unit, "seed": recipe.seed, "roster": recipe.roster, "public_data": public_data}
        private, public, test = own.load(recipe.data, directory, **given_of)
        return private, public, test, Provenance(name, None, benchmark, public, test)
    classes(recipe)  # an unknown split is refused before a file is looked for
    if recipe.data.set == _OWN:
        for key, value in (("split", recipe.data.split), ("directory", directory)):
            if value is not None:
                raise RecipeError(f"`data.{key}` must stay open for 'digits', which is embedded. Got a value instead.")
        private, public, test = digits(seed=recipe.seed)
        return private, public, test, Provenance(name, None, benchmark, public, test)
    if directory is None:
        raise RecipeError(f"`data` must be the folder with the files of {recipe.data.set!r}: --data DIR. Got nothing instead.")
    published = recipe.data.roster == sets.PUBLISHED
    study = presets.load(name, directory, split=recipe.data.split, published=published, progress=progress)
    origin = Provenance(name, study.split, benchmark, study.public, study.test, study.hashes)
    return study.private, study.public, study.test, origin
