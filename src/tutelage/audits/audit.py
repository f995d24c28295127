"""Audit a run: repeat the whole of it with and without canaries, attack what comes out, and play against its mechanism."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.audits import foreign, lira, rmia, scores
from tutelage.audits.bounds import ALARM, Bound, one_run, one_run_gaussian, two_sample
from tutelage.audits.canaries import Canaries, declare, entered
from tutelage.audits.game import play
from tutelage.audits.pipeline import Pipeline, of_recipe
from tutelage.audits.roc import Roc
from tutelage.audits.shadows import Say, Shadows, Signals
from tutelage.audits.verdict import Claim, Verdict
from tutelage.privacy.errors import Error, RecipeError
from tutelage.privacy.events import to_record
from tutelage.privacy.files import read_json
from tutelage.runs import RunFolder
from tutelage.telling import Progress, silent

Array = npt.NDArray[Any]
LEAST = 20  # scores of non-members, below which nothing can be proved
MANY = 64  # shadow models from which every record has a variance of its own


def audit(
    run: str | os.PathLike[str] | RunFolder | None = None,
    *,
    model: Any = None,
    members: Any = None,
    non_members: Any = None,
    epsilon: float | None = None,
    delta: float | None = None,
    data: str | os.PathLike[str] | None = None,
    pipeline: Pipeline | None = None,
    shadows: int = 16,
    canaries: int = 20,
    kind: str = "",
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    engine: str = "auto",
    alarm: float = ALARM,
    seed: int = 0,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Verdict:
    """Audit a finished run and write what was found under its private/audit; or one model, by its members and non-members.

    The release is verified; its recipe is repeated `shadows` times, each time with another half of the canaries; and its
    mechanism is played against. `data` is where the recipe's files lie. A run that was made from Python objects needs a
    `pipeline` (audits.pipeline.of_callable). `kind` of canaries: see audits.canaries. Where RUN is a release alone, `out` is a
    folder for private/audit. Figures of shadow runs are functions of private records: they stay in private/, unless the data is
    public. A `model` (or its file) with `members` and `non_members`, each (inputs, labels) or a .npz file, may claim (ε, δ).
    """
    if (run is None) == (model is None):
        raise RecipeError("`run` or `model` must be given, and not both. Got both or none instead.")
    if model is not None:
        return _of_model(model, members, non_members, foreign.claim_of(epsilon, delta), out, device=device, alarm=alarm)
    assert run is not None
    folder = (run if isinstance(run, RunFolder) else RunFolder(run)).existing()
    place = _place(folder, out)
    line = pipeline or _repeated(folder, data, device=device, engine=engine)
    claim = Claim.of(read_json(folder.guarantee, "guarantee"))
    line = replace(line, queries=_answered(line, claim) or line.queries)
    coins = own_coins(folder, line, claim.delta, alarm=alarm / 2)
    found = examine(
        line, claim, shadows=shadows, canaries=canaries, kind=kind, folder=place / "shadows", alarm=alarm / 2 if coins else alarm,
        seed=seed, unverified=_unverified(folder), progress=progress or silent, say=say,
    )  # fmt: skip
    if coins:
        found = replace(found, bounds=(*found.bounds, *coins), alarm=alarm)
    found.write(place)
    return found


def examine(
    line: Pipeline,
    claim: Claim | None,
    *,
    shadows: int = 16,
    canaries: int | Canaries = 20,
    kind: str = "",
    folder: Path | None = None,
    alarm: float = ALARM,
    seed: int = 0,
    unverified: str = "",
    progress: Progress = silent,
    say: Say | None = None,
) -> Verdict:
    """Audit a pipeline against a claim, and write nothing but finished shadow runs into `folder`.

    `canaries` is how many to declare, or the canaries themselves; `shadows` 0 leaves the shadow runs out.
    """
    began = time.perf_counter()
    delta = 1e-5 if claim is None else claim.delta
    game = None if line.mechanism is None else play(line.mechanism, line.queries, delta)
    given: dict[str, Any] = {"claim": claim, "game": game, "queries": line.queries, "unverified": unverified}
    given |= {"public_data": line.public_data, "alarm": alarm}
    if not shadows:
        return Verdict(bounds=(), curves={}, seconds=time.perf_counter() - began, **given)
    if isinstance(canaries, Canaries):
        some, rest = canaries, line.private
    else:
        kind = kind or ("mislabelled" if line.classes else "shifted")
        some, rest = declare(kind, line.private, canaries, classes=line.classes, seed=seed)
    _check_enough(shadows, len(some))
    signals = Shadows(line, rest, some, shadows, folder=folder, seed=seed).run(progress=progress, say=say)
    attacks = attacked(signals, some, line)
    inside = signals.inside
    curves = {name: Roc.of(found[inside], found[~inside]) for name, found in attacks.items()}
    first = next(iter(attacks.values()))
    bounds = two_sample(first[inside], first[~inside], delta, alarm=alarm)
    about = f"{len(some)} canaries ({some.kind}), each in half of the runs; all other records in all of them"
    rows = {"inside": inside, "ids": some.ids, **{name.replace(" ", "_"): found for name, found in attacks.items()}}
    taken = time.perf_counter() - began
    return Verdict(bounds=bounds, curves=curves, models=shadows, canaries=about, seconds=taken, rows=rows, **given)


def _check_enough(shadows: int, canaries: int) -> None:
    """Refuse so few samples that no attack could prove anything."""
    if shadows * canaries < 2 * LEAST:
        raise RecipeError(
            f"`shadows` times `canaries` must be at least {2 * LEAST}: half of the samples are non-members. "
            f"Got {shadows} times {canaries} instead."
        )


def attacked(signals: Signals, canaries: Canaries, line: Pipeline) -> dict[str, Array]:
    """Score every canary in every shadow model by every attack (models, canaries). The first one is fixed: bounds rest on it."""
    outputs, inside = signals.canaries, signals.inside
    fixed = len(outputs) < MANY
    name = "LiRA, fixed variance" if fixed else "LiRA"
    if not line.classes:
        scaled = (outputs - outputs.mean(axis=0)) / (outputs.std(axis=0) + 1e-12)  # by volume, whoever learned it
        return {
            name: lira.leave_one_out(scaled, inside, fixed=fixed),
            "mean cross-entropy": outputs[:, :, 0],
            "Dice": outputs[:, :, 1],
        }
    labels = np.asarray(canaries.targets)[canaries.first]
    logits = np.stack([scores.logit(one, labels) for one in outputs])
    found = {name: lira.leave_one_out(logits, inside, fixed=fixed)}
    found["LiRA, offline"] = lira.leave_one_out(logits, inside, mode="offline", fixed=fixed)
    compared = line.compared()
    if signals.population is not None and compared is not None:
        likely = np.stack([scores.confidence(one, labels) for one in outputs])
        others = np.stack([scores.confidence(one, compared[1]) for one in signals.population])
        found["RMIA"] = rmia.leave_one_out(likely, inside, others)
    for one, score in scores.SCORES.items():
        found[one] = np.stack([score(each, labels) for each in outputs])
    return found


def _answered(line: Pipeline, claim: Claim) -> int:
    """Count the answers that the guarantee's ledger charged for this mechanism: fewer than asked where the budget ended."""
    if line.mechanism is None or claim.document is None:
        return 0
    wanted = to_record(line.mechanism.event())
    return sum(int(one["count"]) for one in claim.document["events"] if {**one, "count": 0} == {**wanted, "count": 0})


def own_coins(folder: RunFolder, line: Pipeline, delta: float, *, alarm: float = ALARM) -> tuple[Bound, ...]:
    """Bound ε by the canaries of the run itself, where some were entered (audits.canaries.enter).

    These figures follow from the release and from coins that were thrown for the audit: they may leave.
    """
    path = folder.private / "canaries.npz"
    if not path.is_file() or not line.classes:
        return ()
    some, inside = entered(path)
    stored = next((one for one in sorted(folder.release.glob("student.*"))), None)
    if stored is None:
        return ()
    outputs = line.observed(foreign.load(stored), some.inputs[some.first], some.targets[some.first])
    score = scores.loss(outputs, np.asarray(some.targets)[some.first])
    if not inside.any() or inside.all():
        return ()
    return tuple(bound(score[inside], score[~inside], delta, alarm=alarm / 2) for bound in (one_run, one_run_gaussian))


def _of_model(
    model: Any, members: Any, others: Any, claim: Claim | None, out: str | os.PathLike[str] | None, *, device: str, alarm: float
) -> Verdict:
    """Audit one model; what is found is written where a folder is given."""
    names = (str, os.PathLike)
    parts = [foreign.read(part) if isinstance(part, names) else part for part in (members, others)]
    made = foreign.load(model, device=device) if isinstance(model, names) else foreign.asked(model)
    found = foreign.inspect(made, parts[0], parts[1], claim=claim, alarm=alarm)
    if out is not None:
        found.write(Path(out) / "private" / "audit")
    return found


def _place(folder: RunFolder, out: str | os.PathLike[str] | None) -> Path:
    """Say where to write: beside the run's own private files, or under `out`, where only the release was handed over."""
    if out is not None:
        return Path(out) / "private" / "audit"
    if not folder.holds_book:
        raise RecipeError("`out` must be a folder where RUN is a release without its private/ folder. Got none instead.")
    return folder.private / "audit"


def _repeated(folder: RunFolder, data: str | os.PathLike[str] | None, *, device: str, engine: str) -> Pipeline:
    """Read the recipe that a release was made by."""
    from tutelage.recipes.recipe import parse

    if not folder.recipe.is_file():
        raise RecipeError(
            "`pipeline` must be given where the release holds no recipe: this run was made from Python objects, and only its "
            "author can repeat it (tutelage.audits.pipeline.of_callable). Got none instead."
        )
    recipe = parse(folder.recipe.read_text(encoding="utf-8"), name="recipe.toml")
    return of_recipe(recipe, None if data is None else Path(data), device=device, engine=engine)


def _unverified(folder: RunFolder) -> str:
    """Say why the release does not follow from its ledger; nothing where it does."""
    from tutelage.verification import verify

    try:
        verify(folder.root)
    except Error as error:
        return str(error)
    return ""


def exit_code(found: Verdict, *, asked: bool) -> int:
    """Give 3 where a claim is refuted. On private data 0 in any case, unless it is asked for: the code is a figure too."""
    return 3 if found.refuted and (asked or found.public_data) else 0
