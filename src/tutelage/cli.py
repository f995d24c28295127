"""The command line: parses, calls, prints. Tables for people, --json for programs."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from click.core import ParameterSource

from tutelage import __version__, outcomes, planning, solving
from tutelage.console import Commands, unforeseen
from tutelage.console import bars as _bars
from tutelage.console import console as _console
from tutelage.console import emit as _emit
from tutelage.console import say as _say
from tutelage.console import warn as _warn
from tutelage.deployment import commands as deployment
from tutelage.distilling import distill
from tutelage.drafting import commands as drafting
from tutelage.federation import commands as federated
from tutelage.privacy.errors import Error, RecipeError
from tutelage.privacy.units import Adjacency, Unit
from tutelage.reproduction import commands as reproducing

app = typer.Typer(
    name="tutelage",
    cls=Commands,
    help="Train models that may be published from data that may not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables would print private values
)
app.add_typer(reproducing.reproduce_app, name="reproduce")
app.add_typer(federated.federation_app, name="federation")

Data = Annotated[Path | None, typer.Option("--data", help="Folder with the data set's files (or where to download them).")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda: where networks learn.")]
Engine = Annotated[
    str, typer.Option(help="auto, sequential, stacked, recorded, processes or ray: how teachers that are networks learn.")
]
_READ = "\nWhat was read of the private data, and what was cleaned, is counted in private/data.json."
BOUNDS = ("ball", "orthant", "cube", "simplex", "onehot", "binary")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]


def _print_version(asked: bool) -> None:
    if asked:
        _say(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    """Train models that may be published from data that may not."""


def main() -> None:
    """Run the command line; every failure becomes one message: exit code 2 for what the caller can correct, 1 for the rest."""
    try:
        app()
        sys.stdout.flush()
    except Error as error:
        _fail(type(error).__name__, str(error), code=2)
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except OSError as error:
        name = error.filename or "a file"
        _fail("OSError", f"files must be readable and writable. Got «{error.strerror}» for {name} instead.", code=2)
    except Exception as error:
        kind, said = unforeseen(error).split(" ", 1)
        _fail(kind, f"failed {said}", code=1)


def _fail(kind: str, message: str, *, code: int) -> None:
    if "--json" in sys.argv:
        sys.stderr.write(json.dumps({"error": kind, "message": message}, ensure_ascii=False) + "\n")
    else:
        console = _console(stderr=True)
        console.print(f"[bold red]{kind}[/]: ", end="")
        console.print(message, markup=False, highlight=False, soft_wrap=True)
    raise SystemExit(code) from None


# ── plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def plan(
    context: typer.Context,
    recipe: Annotated[Path | None, typer.Argument(help="A recipe, or its name, to price before any data is touched.")] = None,
    teachers: Annotated[int | None, typer.Option(help="K, the number of teachers.")] = None,
    queries: Annotated[int | None, typer.Option(help="N, the number of answers.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise on the mean (codes) or on the counts (votes).")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε of the whole plan.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; keep it far below one over the number of units.")] = None,
    bound: Annotated[str, typer.Option(help="ball, orthant, cube, simplex, onehot or binary; 'votes' for noisy max.")] = "ball",
    dimension: Annotated[int, typer.Option(help="Coordinates of a code.")] = 16,
    norm: Annotated[str, typer.Option(help="Norm (or half side) of the bound; 'open' to solve for it.")] = "1",
    unit: Annotated[str, typer.Option(help="record, patient or institution.")] = "record",
    unit_teachers: Annotated[int, typer.Option(help="How many teachers one unit's data can reach.")] = 1,
    adjacency: Annotated[str, typer.Option(help="replace-one, or add-remove for whole institutions.")] = "replace-one",
    records: Annotated[int | None, typer.Option(help="Number of private units, for the warning about δ.", min=1)] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for plots.")] = None,
    plot_format: Annotated[str, typer.Option("--format", help="svg or png.")] = "svg",
    choose: Annotated[
        bool, typer.Option("--choose", help=r"Choose a recipe's \[aggregation] on public or simulated votes.")
    ] = False,
    teacher_accuracy: Annotated[float | None, typer.Option(help="Simulate teachers that are right this often.")] = None,
    teacher_agreement: Annotated[float | None, typer.Option(help="How often two simulated teachers say the same.")] = None,
    student_accuracy: Annotated[
        float | None, typer.Option(help="Simulate a student that is right this often, for Interactive-GNMax.")
    ] = None,
    votes: Annotated[
        Path | None,
        typer.Option(help="Votes, and maybe a student, to choose on (.npz, .npy): PUBLIC or simulated, never private."),
    ] = None,
    penalty: Annotated[float, typer.Option(help="How many right answers one wrong answer undoes.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Solve for the one thing left open: teachers, queries, sigma, epsilon, delta or norm; or price a recipe or choose for it."""
    whom = Unit(unit, unit_teachers)
    if choose:
        simulated = ("teacher_accuracy", "teacher_agreement", "student_accuracy")
        _only(context, "a choice", "recipe", "epsilon", "choose", *simulated, "votes", "penalty")
        from tutelage.choosing import choose_for

        choose_for(
            recipe, epsilon, teacher_accuracy, teacher_agreement, votes, penalty, student=student_accuracy, as_json=as_json
        )
    elif recipe is not None:
        _only(context, "a recipe", "recipe", "epsilon", "records")
        from tutelage.pricing import price_recipe

        price_recipe(recipe, epsilon, records, as_json=as_json)
    elif bound == "votes":
        _only(context, "votes", "bound", "queries", "sigma", "epsilon", "delta", "unit", "unit_teachers", "records")
        # A noisy max is a Gaussian answer of sensitivity √2 per teacher that a unit reaches, whatever the number of teachers.
        asked = planning.MeanPlan(1, queries, sigma, epsilon, delta, "onehot", 2, 1.0, whom)
        solving.show_votes(asked, records, as_json=as_json)
    else:
        if bound not in BOUNDS:
            raise RecipeError(f"`bound` must be one of {', '.join(BOUNDS)} or votes. Got {bound!r} instead.")
        size, side = _norm(norm), _adjacency(adjacency)
        asked = planning.MeanPlan(teachers, queries, sigma, epsilon, delta, bound, dimension, size, whom, side)
        solving.show_means(asked, records, plots, plot_format, as_json=as_json)


def _only(context: typer.Context, what: str, *allowed: str) -> None:
    """Refuse options that would be ignored: a figure that looks as if it counted is worse than an error."""
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    strangers = [name for name in given if name not in (*allowed, "as_json")]
    if strangers:
        names = ", ".join("--" + name.replace("plot_format", "format").replace("_", "-") for name in strangers)
        listed = ", ".join("--" + name.replace("_", "-") for name in allowed if name not in ("recipe", "choose"))
        why = " How many teachers there are does not enter." if what == "votes" and "teachers" in strangers else ""
        raise RecipeError(f"options for {what} must be among {listed}, --json. Got {names} instead.{why}")


def _norm(text: str) -> float | None:
    try:
        return None if text == "open" else float(text)
    except ValueError:
        raise RecipeError(f"`norm` must be a number or 'open'. Got {text!r} instead.") from None


def _adjacency(text: str) -> Adjacency:
    try:
        return Adjacency(text)
    except ValueError:
        raise RecipeError(f"`adjacency` must be 'replace-one' or 'add-remove'. Got {text!r} instead.") from None


# ── run, demo, report, verify ─────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="The recipe: a TOML file, or the name of one that the package carries.")],
    folder: Annotated[Path, typer.Option("--out", help="The run folder to make: release/ and private/.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an existing run; what was answered is not paid for again.")
    ] = False,
    data: Data = None,
    public_data: Annotated[
        bool,
        typer.Option("--public-data", help="Patients of the folder who are drawn for the public pool and the test are public."),
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger that all runs on the same data share; its budget covers them together (default: its own)."),
    ] = None,
    device: Device = "auto",
    engine: Engine = "auto",
    as_json: AsJson = False,
) -> None:
    """Carry out a recipe: teachers, the curator, a student, its controls, a guarantee and a report."""
    from tutelage.recipes.run import unanswered
    from tutelage.recipes.shelf import taken
    from tutelage.runs import RunFolder

    read = taken(recipe)
    if resume:
        RunFolder(folder).check_there()
    chosen = {"data": data, "public_data": public_data, "device": device, "engine": engine, "ledger": ledger}
    outcome = _carried_out(read, folder, resume=resume, quiet=as_json, chosen=chosen)
    said = unanswered(read, outcome)
    if as_json:
        _emit({**outcomes.summary(outcome), "warnings": said})
        return
    outcomes.show([(outcome.folder.root.name, outcome)])
    _warn(said)
    _next(read, outcome)
    _say(f"\nOpen {outcome.folder.report}; what may leave is in release/, nothing else.{_READ}")
    _say(f"{outcome.folder.inside_data} says what was read of the private data, and what was left out.")


def _next(recipe: Any, outcome: Any) -> None:
    """Say what to try where a student does not beat what costs no privacy."""
    from tutelage.drafting.advice import bought_nothing
    from tutelage.tasks.table import reading

    if reading(outcome.guarantee["task"]).verdict(outcomes.published(outcome)):
        _say("\n".join(bought_nothing(recipe)))


@app.command()
def demo(
    only: Annotated[
        str | None,
        typer.Option(help="scenes (private segmentation), digits (PATE), images (a generator) or nopool (no public pool)."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Where the run folder goes (default: runs/demo).")] = None,
    templates: Annotated[
        Path | None, typer.Option(help="Folder with bird/, cat/ and dog/: scenes of these silhouettes in place of drawn ones.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take the whole walk on embedded data: private segmentation of drawn scenes, ending in a page with every stage."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for pictures this small a second thread waits more than it works
    from tutelage.recipes.learners import has_torch
    from tutelage.recipes.run import DEMO, EMBEDDED, embedded
    from tutelage.recipes.shelf import check_templates, of_templates

    chosen = only or ("scenes" if has_torch() else "digits")  # without networks there are digits
    if chosen not in ("scenes", "digits", "images", "nopool"):
        raise RecipeError(f"`only` must be 'scenes', 'digits', 'images' or 'nopool'. Got {only!r} instead.")
    if chosen in ("images", "nopool") and templates is None:
        _demonstrated(chosen, folder or Path(f"runs/demo-{chosen}"), as_json=as_json)
        return
    if templates is not None and chosen != "scenes":
        raise RecipeError("`templates` must come with the scenes. Got digits instead.")
    if templates is not None:
        check_templates(templates)
    names, place = ((DEMO,), "runs/demo") if chosen == "scenes" else (EMBEDDED, "runs/demo-digits")
    place = place if templates is None else "runs/demo-templates"
    runs = []
    for name in names:
        recipe = embedded(name) if templates is None else of_templates(embedded(name))
        if not as_json:
            _say(_announced(recipe), style="bold", stderr=True)
        goal = Path(f"{folder or place}{name.removeprefix(names[0])}")
        runs.append((recipe.name, _carried_out(recipe, goal, resume=True, quiet=as_json, chosen={"data": templates})))
    if as_json:
        _emit({name: outcomes.summary(outcome) for name, outcome in runs})
        return
    outcomes.show(runs)
    _say(f"\nOpen {runs[0][1].folder.report}; what may leave is in release/, nothing else.{_READ}")
    if len(runs) > 1:
        _say("Each run has a book and a budget of its own: on one private data set the three would add up.")


def _demonstrated(only: str, folder: Path, *, as_json: bool) -> None:
    from tutelage.report.page import pages
    from tutelage.tasks.statistics.demo import TITLES, demonstrate

    if not as_json:
        _say(TITLES[only], style="bold", stderr=True)
    with _bars(as_json) as say:
        outcome = demonstrate(only, folder, functools.partial(pages, name=only), say)
    if as_json:
        _emit(outcomes.summary(outcome))
        return
    outcomes.show([(only, outcome)])
    _say(f"\nOpen {outcome.folder.report}; what may leave is in release/, nothing else.{_READ}")


def _announced(recipe: Any) -> str:
    shards = recipe.teachers.shards
    if not recipe.about_masks:
        return f"{recipe.name}: 1,000 private digits, {shards} teachers of {1000 // shards} digits each"
    scenes = recipe.data.private
    return f"{recipe.name}: {scenes:,} private scenes, {shards} U-Nets of {scenes // shards:,} scenes each; a few minutes"


def _carried_out(recipe: Any, folder: Path, *, resume: bool, quiet: bool, chosen: dict[str, Any] | None = None) -> Any:
    from tutelage.recipes.run import run as carry_out
    from tutelage.report.page import pages

    with _bars(quiet) as say:
        named = functools.partial(pages, name=recipe.name)
        return carry_out(recipe, folder, resume=resume, pages=named, progress=say, **(chosen or {}))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    name: Annotated[str | None, typer.Option(help="Title of the page (default: the folder's name).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the public page there and change nothing in RUN, which may be read-only.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's report again, with its row in the manifest; private/report.html is for what stays inside."""
    from tutelage.report.page import report as write_report

    place = out or write_report(folder, name=name).report
    if out is not None:
        write_report(folder, name=name, out=out)
    if as_json:
        _emit({"report": str(place)})
        return
    _say(f"wrote {place}")


@app.command()
def generate(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run of `tutelage.generate`, or its release.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder: PNGs, images.npz, labels.csv and a contact sheet.")],
    n: Annotated[int, typer.Option("-n", help="How many images.", min=1)] = 100,
    label: Annotated[str | None, typer.Option(help="One class, by its name (default: all of them in turn).")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same images.", min=0)] = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Draw labelled images from a released generator. Nothing is spent, however many are drawn."""
    from tutelage.data.pictures import write_pictures
    from tutelage.nets.generators import Generator
    from tutelage.runs import RunFolder

    place = RunFolder(folder).existing().release / "generator.safetensors"
    if not place.is_file():
        raise RecipeError("`run` must hold release/generator.safetensors. Got a run of another kind instead.")
    generator = Generator.load(place, device=device)
    images, labels = generator.sample(n, label, random_state=seed)
    files = write_pictures(out, images, labels, generator.classes)
    if as_json:
        _emit({"images": n, "classes": list(generator.classes), "files": [file.name for file in files]})
        return
    _say(f"wrote {n:,} images and {', '.join(file.name for file in files)} to {out}")


@app.command()
def verify(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or releases alone. Several must share one ledger.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check a release: its files, its ledger, and ε again by another accountant (dp-accounting). Several also together.

    Hospitals' folders may stand beside the release of a study: their ledgers are checked, and held to it.
    """
    if any((folder / "private" / "institution.sqlite").is_file() for folder in folders):
        federated.verify_hospitals(folders, as_json=as_json)
        return
    from tutelage.verification import verify as check
    from tutelage.verification import verify_together

    verdicts, together = ([check(folders[0])], None) if len(folders) == 1 else verify_together(folders)
    if as_json:
        _emit(outcomes.verified(verdicts, together))
        return
    outcomes.show_verdicts([str(folder) for folder in folders], verdicts, together)


@app.command()
def audit(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A finished run; its recipe is repeated.")] = None,
    data: Data = None,
    shadows: Annotated[int, typer.Option(help="Shadow runs, an even number; 0 plays against the mechanism alone.")] = 16,
    canaries: Annotated[int, typer.Option(help="Records that are made to be remembered.", min=1)] = 20,
    kind: Annotated[str, typer.Option(help="mislabelled, out-of-distribution, blank or duplicated; shifted for masks.")] = "",
    model: Annotated[Path | None, typer.Option(help="A model in place of a run: .skops, .safetensors, .npz or .onnx.")] = None,
    members: Annotated[Path | None, typer.Option(help="What it learned from: .npz with inputs and targets.")] = None,
    non_members: Annotated[Path | None, typer.Option(help="What it never saw: .npz with inputs and targets.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε that is claimed of the model.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ that is claimed of the model.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write OUT/private/audit (default: RUN/private/audit).")] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 where a claim is refuted, on private data, too.")
    ] = False,
    device: Device = "auto",
    engine: Engine = "auto",
    as_json: AsJson = False,
) -> None:
    """Attack a run or a model, and print a lower bound on ε beside what is claimed. Exit code 3: refuted, on public data."""
    from tutelage.audits import command

    given = {"run": run, "data": data, "shadows": shadows, "canaries": canaries, "kind": kind, "model": model, "members": members}
    given |= {"non_members": non_members, "epsilon": epsilon, "delta": delta, "out": out, "device": device, "engine": engine}
    raise typer.Exit(command.carried_out(given, asked=exit_code, as_json=as_json))


@app.command()
def ledger(
    file: Annotated[Path, typer.Argument(help="The ledger of a data set, which its owner alone can read.")],
    epsilon: Annotated[float | None, typer.Option(help="Open a new ledger with this ε for all runs together.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of a new ledger.")] = None,
    unit: Annotated[str, typer.Option(help="record, patient or institution: the unit of a new ledger.")] = "record",
    unit_teachers: Annotated[int, typer.Option(help="How many teachers one unit's data can reach, in a new ledger.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show what the runs on a data set have spent of their budget, or open a ledger for them."""
    from tutelage import sharing
    from tutelage.privacy.ledger import Budget

    if (epsilon is None) != (delta is None):
        raise RecipeError("`epsilon` and `delta` must be given together, to open a new ledger. Got one of them instead.")
    if epsilon is not None and delta is not None:
        if file.exists():
            raise RecipeError(f"`file` must be a new one where a ledger is opened. Got {file.name!r}, which exists, instead.")
        sharing.owned(file, Budget(epsilon, delta, Unit(unit, unit_teachers))).close()
    found = sharing.summary(file)
    if as_json:
        _emit(outcomes.written(found))
        return
    outcomes.show_ledger(found)


# ── own data, own deployment ──────────────────────────────────────────────────────────────────────────────────────────

_ELSEWHERE = (
    *(distill, drafting.init, drafting.data, deployment.export, deployment.predict, deployment.compare),
    *(federated.hospital, federated.coordinate),
)
for _command in _ELSEWHERE:
    app.command()(_command)


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    if as_json:
        _emit({"version": __version__})
        return
    _say(__version__)


if __name__ == "__main__":
    main()
