"""Check a hospital's ledgers, and that they agree with a study's release: by another accountant than the one that charged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tutelage.claims import check_rows, read_claim
from tutelage.guarantee import counted, opened_with
from tutelage.privacy.errors import LedgerError
from tutelage.privacy.ledger import Ledger, charges, check_chain
from tutelage.runs import RunFolder
from tutelage.verification import TOLERANCE, pricing, recomputed

LEDGERS = ("patient", "institution")


@final
@dataclass(frozen=True)
class Kept:
    """Say what one ledger of a hospital holds."""

    hospital: str
    unit: str
    spent_epsilon: float  # recomputed with dp-accounting
    budget_epsilon: float
    delta: float
    rows: int
    studies: tuple[str, ...]
    agrees: bool | None  # with the releases given beside it; None where there were none


def is_hospital(folder: Path) -> bool:
    """Tell whether a folder is a hospital's."""
    return all((folder / "private" / f"{name}.sqlite").is_file() for name in LEDGERS)


def check_hospital(folder: Path, releases: list[Path]) -> list[Kept]:
    """Check both ledgers of a hospital, and that every study released with its help was charged in both."""
    claims = [read_claim(RunFolder(release).existing().guarantee) for release in releases]
    return [_checked(folder, name, [claim for claim in claims if "study" in claim["plan"]]) for name in LEDGERS]


def _checked(folder: Path, name: str, claims: list[dict[str, Any]]) -> Kept:
    with Ledger(folder / "private" / f"{name}.sqlite") as ledger:
        rows = ledger.entries()
    check_chain(rows)
    check_rows(rows)
    budget, pairs = opened_with(rows), counted(rows)
    if budget.exceeded(pairs):
        raise LedgerError(f"the {name} ledger of {folder.name} must not cost more than its budget. Got more instead.")
    with pricing():
        spent = recomputed(pairs).price(budget.delta)
    if spent > budget.epsilon * (1 + TOLERANCE) + 1e-3:
        raise LedgerError(f"the {name} ledger of {folder.name} must cost at most {budget.epsilon:g}. Got {spent:.6g} instead.")
    for claim in claims:
        _check_study(folder, name, claim, rows)
    studies = tuple(dict.fromkeys(row.body["run"] for row in rows if row.kind == "charge"))
    return Kept(folder.name, name, spent, budget.epsilon, budget.delta, len(rows), studies, True if claims else None)


def _check_study(folder: Path, name: str, claim: dict[str, Any], rows: list[Any]) -> None:
    """Refuse a ledger without the charge for a study that this hospital's answers went into."""
    study = claim["plan"]["study"]
    paid = sum(count for _, count in charges([row for row in rows if row.body.get("run") == study]))
    if paid < claim["plan"]["queries"]:
        raise LedgerError(
            f"the {name} ledger of {folder.name} must hold {claim['plan']['queries']:,} answers of study {study[:16]}. "
            f"Got {paid:,} instead: this hospital did not take part, or its ledger was replaced."
        )
