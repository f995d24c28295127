"""The federation's part of the command line: `tutelage hospital`, `tutelage coordinate`, `tutelage federation …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tutelage.console import Commands, bars, emit, say, table

federation_app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Set up hospitals that learn together: keys, a local trial, how far they are."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]


def hospital(
    policy: Annotated[Path, typer.Argument(help="The hospital's policy.toml: what may leave, to whom, and how much.")],
    dry_run: Annotated[
        Path | None, typer.Option("--dry-run", help="Print what this study.json (terms) would take out, and do nothing.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Stop by itself after so long.", min=1)] = 3600.0,
) -> None:
    """Train this hospital's teachers and answer studies that its policy and its ledgers allow."""
    from tutelage.federation import hospital as own

    if dry_run is not None:
        say("\n".join(own.would_leave(policy, dry_run)))
        return
    with bars(False) as tell:
        own.run(policy, seconds=seconds, say=lambda text: say(text, stderr=True), progress=tell)


def coordinate(
    study: Annotated[Path, typer.Argument(help="The study.toml: what is asked, of whom, and with how much noise.")],
    folder: Annotated[Path, typer.Option("--out", help="Run folder: release/ may leave, private/ may not.")] = Path("runs/study"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a study that was broken off.")] = False,
    ledger: Annotated[Path | None, typer.Option(help="A ledger that several studies share (default: its own).")] = None,
    terms: Annotated[
        Path | None, typer.Option("--terms", help="Write the terms that hospitals can --dry-run there, and ask nobody.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the hospitals of a study once, train the student on what they release together, and publish it."""
    from tutelage.federation import walk

    prepared = walk.prepare(study)
    if terms is not None:
        terms.write_text(prepared.terms.model_dump_json(indent=2) + "\n", encoding="utf-8")
        say(f"wrote {terms}; at a hospital: tutelage hospital policy.toml --dry-run {terms.name}")
        return
    finished = walk.over_the_wire(prepared, folder, resume=resume, ledger=ledger, say=lambda text: say(text, stderr=True))
    show_finished(finished, as_json=as_json)


def show_finished(finished: object, *, as_json: bool) -> None:
    """Print what a study gave."""
    from tutelage.federation.walk import Finished

    assert isinstance(finished, Finished)
    document = finished.guarantee
    if as_json:
        emit({
            "epsilon": document["epsilon"], "delta": document["delta"], "unit": document["unit"], "answered": finished.answered,
            "remarks": finished.remarks, "scores": finished.scores, "folder": str(finished.folder.root),
        })  # fmt: skip
        return
    shown = table("study", "what", "value")
    shown.add_row("hospitals that answered", ", ".join(finished.answered) or "none: the answers were kept")
    for name, value in finished.scores.items():
        shown.add_row(name, f"{value:.4f}")
    shown.add_row(f"ε per {document['unit']}", f"{document['epsilon']:.6g} at δ = {document['delta']:g}")
    from tutelage.console import console

    console().print(shown)
    for remark in finished.remarks:
        say(f"note: {remark}")
    say(f"\nWhat may leave is in {finished.folder.published}. Check it: tutelage verify {finished.folder.root}")


@federation_app.command("init")
def federation_init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder: coordinator/ and one folder for each hospital.")],
    hospitals: Annotated[int, typer.Option(help="How many hospitals, named hospital-1 …", min=2)] = 2,
    names: Annotated[list[str] | None, typer.Option("--name", help="A hospital's name instead; may be repeated.")] = None,
    host: Annotated[list[str] | None, typer.Option(help="A name or address by which sites reach the coordinator.")] = None,
) -> None:
    """Make CA, certificates and keys. Hand each hospital its own folder and nothing else."""
    from tutelage.federation.consortium import LOOPBACK, init

    chosen = names or [f"hospital-{number + 1}" for number in range(hospitals)]
    init(folder, chosen, hosts=(*(host or ()), *LOOPBACK))
    say(f"wrote {folder}/coordinator, and a folder for each of {', '.join(chosen)}")


@federation_app.command("up")
def federation_up(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the whole trial.")],
    hospitals: Annotated[int, typer.Option(help="How many hospitals.", min=2, max=16)] = 2,
    trust: Annotated[str, typer.Option(help="coordinator, or nobody: a secure sum (from 3 hospitals on).")] = "coordinator",
    teachers: Annotated[int, typer.Option(help="Local teachers at every hospital.", min=1)] = 25,
    queries: Annotated[int, typer.Option(help="Public images that are asked about.", min=1, max=400)] = 100,
    epsilon: Annotated[float, typer.Option(help="ε per patient of the study, and of every hospital's budget.")] = 8.0,
    port: Annotated[int, typer.Option(help="The engine's port on loopback; each hospital takes the next one.")] = 18080,
    seconds: Annotated[float, typer.Option(help="End everything after so long.", min=30)] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Start a complete consortium on this machine, with TLS and generated data, carry out one study, and stop."""
    from tutelage.federation import trial

    finished = trial.up(
        folder, hospitals, trust=trust, teachers=teachers, queries=queries, epsilon=epsilon, port=port, seconds=seconds,
        say=lambda text: say(text, stderr=True),
    )  # fmt: skip
    show_finished(finished, as_json=as_json)


@federation_app.command("status")
def federation_status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A participant's folder, or one that holds several.")],
    as_json: AsJson = False,
) -> None:
    """Show how far each participant is, and what its ledgers have left. No site's data is read."""
    from tutelage.federation.overview import overview

    rows = overview(folder)
    if as_json:
        emit(rows)
        return
    shown = table("federation", "who", "phase", "since", "time left", "budget left", numbers=False)
    for row in rows:
        shown.add_row(row["who"], row["phase"], row["since"], row["time_left"], row["budget_left"])
    from tutelage.console import console

    console().print(shown)


def verify_hospitals(folders: list[Path], *, as_json: bool) -> None:
    """Check hospitals' ledgers, also against the releases of studies that are given beside them."""
    from dataclasses import asdict

    from tutelage.console import console
    from tutelage.federation.agreement import check_hospital, is_hospital
    from tutelage.verification import verify

    releases = [folder for folder in folders if not is_hospital(folder)]
    verdicts = [(folder, verify(folder)) for folder in releases]
    kept = [one for folder in folders if is_hospital(folder) for one in check_hospital(folder, releases)]
    if as_json:
        told = {str(folder): {"epsilon": one.claimed_epsilon, "recomputed": one.recomputed_epsilon} for folder, one in verdicts}
        emit({"verified": True, "releases": told, "ledgers": [asdict(one) for one in kept]})
        return
    shown = table("verified", "where", "unit", "ε recomputed", "budget", "rows", "agrees with the release")
    for folder, one in verdicts:
        shown.add_row(str(folder), "release", f"{one.recomputed_epsilon:.6g}", "", str(one.rows), "")
    for one in kept:
        agrees = "" if one.agrees is None else "yes"
        shown.add_row(one.hospital, one.unit, f"{one.spent_epsilon:.6g}", f"{one.budget_epsilon:g}", str(one.rows), agrees)
    console().print(shown)
