"""The papers' PATE, run again: published beside ours, each row with its controls and its three readings of ε."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, final

import numpy as np

from tutelage.console import unforeseen
from tutelage.data.sources import MissingFiles
from tutelage.privacy.errors import Error, RecipeError
from tutelage.recipes.recipe import Recipe
from tutelage.recipes.run import is_benchmark, run
from tutelage.report.page import report
from tutelage.reproduction.rows import ROWS, Row
from tutelage.rounding import rounded_up
from tutelage.runs import RunFolder
from tutelage.tasks.scores import Score

Progress = Callable[[str, int, int], None]
CAPTION = (
    "Accuracy on the held-out part of the test set. ε is the figure to quote, whatever the votes were; "
    "sanitised is its data-dependent reading, released with noise that was paid for. "
    "Raw is the data-dependent ε itself: it is private, lies under private/, and is shown only because these data sets "
    "are public anyway. What was published is such a raw figure. "
    "Non-private: without noise or clip, on all private records. "
    "Without noise: the teachers' plurality or, where every record is a teacher, the same learner from the clipped corrections."
)
HEADINGS = (
    "row", "published", "student", "true labels", "same learner, non-private", "boosted trees, non-private",
    "plurality, no noise", "same learner, no noise", "public only",
    "ε published", "ε", "sanitised", "raw", "answered of asked", "verdict",
)  # fmt: skip
_ACCURACIES = ("student", "true_labels", "non_private", "boosted", "plurality", "no_noise", "public_only")  # as HEADINGS has them


@final
@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one finished run says."""

    seed: int
    student: float
    true_labels: float | None
    non_private: float | None  # the student's own learner on all private records
    boosted: float | None = None  # a strong learner of tables on all private records
    plurality: float | None
    no_noise: float | None  # where every record is a teacher: the same corrections
    public_only: float | None
    released_labels: float | None
    epsilon: float  # to quote; data-independent
    charged: float  # what the book adds up to: the same, where no test decides what is answered
    sanitised: float | None
    raw: float | None
    delta: float
    asked: int  # different questions: a second copy of a record is answered again, free
    answered: int  # of these
    labelled: int | None = None  # records of the pool with an answer, copies included


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """A row's runs, or why there are none."""

    row: Row
    runs: tuple[Figures, ...] = ()
    seconds: float | None = None  # for what was carried out and not read
    missing: str = ""  # files that are not here: the row is skipped
    failed: str = ""  # anything else that stopped it

    @property
    def below(self) -> bool:
        """Tell whether the students' mean accuracy misses the row's bar."""
        return bool(self.runs) and self.row.bar is not None and _mean([one.student for one in self.runs]) < self.row.bar

    @property
    def verdict(self) -> str:
        """Say how the row went."""
        if self.failed:
            return "failed"
        if self.missing or not self.runs:
            return "skipped"
        if self.row.bar is None:
            return "no bar"
        return f"{'below' if self.below else 'holds'} its bar, {self.row.bar:.1%}"

    def cells(self) -> list[str]:
        """Write the row as HEADINGS asks for it."""
        told, shown = self.row.published, {field.name: _spread(self.runs, field.name) for field in fields(Figures)}
        published = "" if told is None else _share([told.accuracy])
        if told is not None and told.non_private is not None:
            published += f" (non-private {_share([told.non_private])})"
        return [
            self.row.title,
            published,
            *(_share(shown[name]) for name in _ACCURACIES),
            "" if told is None else f"{told.epsilon:g}",
            _quoted(shown["epsilon"]),
            *(_number(shown[name]) for name in ("sanitised", "raw")),
            self._answered(shown) if self.runs else "",
            self.verdict,
        ]

    @staticmethod
    def _answered(shown: dict[str, list[float]]) -> str:
        told = f"{_number(shown['answered'])} of {_number(shown['asked'])}"
        more = shown["labelled"] and shown["labelled"] != shown["answered"]
        return f"{told}; {_number(shown['labelled'])} labels, since copies are free" if more else told


def reproduce(
    row: Row,
    out: Path,
    *,
    data: Path | None = None,
    seeds: int = 1,
    device: str = "auto",
    engine: str = "auto",
    progress: Progress | None = None,
) -> Result:
    """Carry out a row, or read it where it is finished; what stops it is told in its result and stops no other row."""
    done: list[Figures] = []
    begin, carried_out = time.perf_counter(), False
    try:
        for seed in range(seeds):
            recipe = row.recipe(seed)
            folder = RunFolder(out / row.name / f"seed-{recipe.seed}")
            if not finished(folder, recipe):
                carried_out = True
                files = None if recipe.data.set == "digits" else data
                run(recipe, folder.root, data=files, device=device, engine=engine, resume=True, progress=progress)
            if not folder.report.exists():
                report(folder.root, name=recipe.name)
            done.append(read(folder, recipe))
    except MissingFiles as error:
        return Result(row=row, runs=tuple(done), missing=str(error))
    except Error as error:
        return Result(row=row, runs=tuple(done), failed=f"{type(error).__name__}: {error}")
    except Exception as error:  # a GPU without memory, a full disk, a bug: the other rows have nothing to do with it
        return Result(row=row, runs=tuple(done), failed=unforeseen(error))
    return Result(row=row, runs=tuple(done), seconds=round(time.perf_counter() - begin, 1) if carried_out else None)


def before(out: Path, rows: list[Row]) -> list[Result]:
    """Read the rows that were finished here before and are not among these: the summary is of all of them."""
    found = []
    for row in (one for one in ROWS if one not in rows and (out / one.name).is_dir()):
        runs = []
        for seed in itertools.count():
            recipe = row.recipe(seed)
            folder = RunFolder(out / row.name / f"seed-{recipe.seed}")
            try:
                if not finished(folder, recipe):
                    break
                runs.append(read(folder, recipe))
            except (Error, OSError, ValueError, KeyError):  # of another recipe, or damaged: told when it is asked for
                break
        if runs:
            found.append(Result(row=row, runs=tuple(runs)))
    return found


def finished(folder: RunFolder, recipe: Recipe) -> bool:
    """Tell whether a run is here and is this recipe's; another recipe's is refused, not mixed in."""
    if not folder.finished:
        return False
    if json.loads(folder.guarantee.read_text(encoding="utf-8"))["run"] != recipe.sha256:
        raise RecipeError(
            f"`out` must hold runs of the recipes as they are now, or nothing. Got another recipe's in {folder.root} instead."
        )
    return True


def read(folder: RunFolder, recipe: Recipe) -> Figures:
    """Read a finished run of a data set that is public anyway."""
    if not is_benchmark(recipe):
        raise RecipeError(f"`data.set` must be a public data set to be shown here. Got {recipe.data.set!r} instead.")
    told = json.loads(folder.guarantee.read_text(encoding="utf-8"))
    scores = json.loads(folder.scores.read_text(encoding="utf-8"))
    counts = {event["kind"]: event["count"] for event in told["events"]}
    paid = [counts[kind] for kind in ("Threshold", "NoisyMax", "Gaussian") if kind in counts]  # tests, where there are any, first
    raw = folder.private / "data_dependent_epsilon.npy"
    return Figures(
        seed=recipe.seed,
        student=scores[Score.STUDENT],
        true_labels=scores.get(Score.TRUE_LABELS, scores.get(Score.TRUE_POOL)),
        non_private=scores.get(Score.ALL_LABELS_NETWORK, scores.get(Score.ALL_LABELS)),
        boosted=scores.get(Score.BOOSTED),
        plurality=scores.get(Score.PLURALITY),
        no_noise=scores.get(Score.EXACT_CORRECTIONS),
        public_only=scores.get(Score.PUBLIC_ONLY),
        released_labels=scores.get(Score.RELEASED_LABELS),
        epsilon=float(told["epsilon"]),
        charged=float(told["data_independent_epsilon"]),
        sanitised=None if told["sanitised_epsilon"] is None else float(told["sanitised_epsilon"]),
        raw=float(np.load(raw, allow_pickle=False)) if raw.exists() else None,
        delta=told["delta"],
        asked=paid[0] if paid else 0,
        # Fewer are paid for than labelled where the pool holds a record twice; more where a kill came before an answer.
        answered=min(told["labels"]["released"], paid[-1] if paid else 0),
        labelled=told["labels"]["released"],
    )


# ── the summary ───────────────────────────────────────────────────────────────────────────────────────────────────────


def document(results: list[Result]) -> list[dict[str, Any]]:
    """Write results as plain data."""
    return [
        {
            "row": result.row.name,
            "title": result.row.title,
            "published": None if result.row.published is None else asdict(result.row.published),
            "bar": result.row.bar,
            "verdict": result.verdict,
            "seconds": result.seconds,
            "missing": result.missing or None,
            "failed": result.failed or None,
            "mean": {field.name: _plain(_spread(result.runs, field.name), _mean) for field in _MEASURED},
            "sd": {field.name: _plain(_spread(result.runs, field.name), _sd) for field in _MEASURED},
            "runs": [
                {name: "infinity" if value == math.inf else value for name, value in asdict(one).items()} for one in result.runs
            ],
        }
        for result in results
    ]


def write(results: list[Result], out: Path) -> tuple[Path, Path]:
    """Leave a summary for programs and one for people."""
    out.mkdir(parents=True, exist_ok=True)
    plain, page = out / "pate.json", out / "pate.md"
    plain.write_text(json.dumps(document(results), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(result.cells() for result in results)]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in rows)
    stopped = [result for result in results if result.failed or result.missing]
    reasons = "".join(
        f"\n## {one.row.title}: {'failed' if one.failed else 'skipped'}\n\n{one.failed or one.missing}\n" for one in stopped
    )
    page.write_text(f"# PATE: published and ours\n\n{CAPTION}\n\n{table}\n{reasons}", encoding="utf-8")
    return plain, page


_MEASURED = tuple(field for field in fields(Figures) if field.name != "seed")


def _spread(runs: tuple[Figures, ...], name: str) -> list[float]:
    values = [getattr(one, name) for one in runs]
    return [] if None in values else values


def _mean(values: list[float]) -> float:
    return statistics.fmean(values)


def _sd(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _plain(values: list[float], of: Callable[[list[float]], float | None]) -> float | str | None:
    """Say 'infinity' as our other files do: JSON has no word for it."""
    if not values:
        return None
    return "infinity" if any(math.isinf(value) for value in values) else of(values)


def _share(values: list[float]) -> str:
    if not values:
        return ""
    sd = _sd(values)
    return f"{_mean(values):.2%}" if sd is None else f"{100 * _mean(values):.2f} ± {100 * sd:.2f} %"


def _quoted(epsilons: list[float]) -> str:
    """Write the ε to quote: rounded up where all runs have the same."""
    return rounded_up(epsilons[0], 4) if len(set(epsilons)) == 1 else _number(epsilons)


def _number(values: list[float]) -> str:
    if not values:
        return ""
    if len(set(values)) == 1:
        return f"{values[0]:,}" if isinstance(values[0], int) else f"{values[0]:.4g}"
    return f"{_mean(values):.4g} ± {_sd(values):.2g}"
