"""Tutelage trains models that may be published from data that may not: private learning by knowledge transfer.

The public names. What needs scikit-learn, pydantic or dp-accounting is loaded when it is first asked for; torch and matplotlib
are loaded by what needs them, so that accounting, planning, verification and reports work without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tutelage.codecs.votes import Votes
from tutelage.data.dataset import Private, Public
from tutelage.data.schema import TableSchema
from tutelage.planning import Aggregation, MeanPlan, Sanitise, Selection
from tutelage.privacy.bounds import Ball, Binary, Cube, OneHot, Orthant, Simplex
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import (
    BudgetExceeded,
    DataError,
    Error,
    LedgerError,
    PrivacyError,
    RecipeError,
    UnitOverlap,
    Unsealed,
)
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import AboveThreshold, GNMax, LaplaceMean, LNMax, NoisyMean, SmoothNumber, ThresholdTest
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Adjacency, Roster, Shards, Unit
from tutelage.report.page import report
from tutelage.transfer import Outcome, learn, transfer

if TYPE_CHECKING:
    from tutelage.audits.audit import audit
    from tutelage.recipes.recipe import Recipe
    from tutelage.students.questions import Prototypes, Uncertain
    from tutelage.students.spreading import SpreadingStudent
    from tutelage.students.supervised import SupervisedStudent
    from tutelage.teachers.estimators import EstimatorTeachers
    from tutelage.verification import verify

__version__ = "0.1.0"

_LATER = {
    "distill": "tutelage.tasks.distilled.verb",
    "LinearRounds": "tutelage.students.linear_rounds",
    "OneShot": "tutelage.tasks.statistics.images",
    "Scattering": "tutelage.features.scattering",
    "classify": "tutelage.tasks.statistics.classifier",
    "generate": "tutelage.tasks.statistics.images",
    "EstimatorTeachers": "tutelage.teachers.estimators",
    "Prototypes": "tutelage.students.questions",
    "Recipe": "tutelage.recipes.recipe",
    "SpreadingStudent": "tutelage.students.spreading",
    "SupervisedStudent": "tutelage.students.supervised",
    "Uncertain": "tutelage.students.questions",
    "audit": "tutelage.audits.audit",
    "load": "tutelage.deployment.serving",
    "verify": "tutelage.verification",
}

__all__ = [
    "AboveThreshold",
    "Adjacency",
    "Aggregation",
    "Ball",
    "Binary",
    "Budget",
    "BudgetExceeded",
    "Cube",
    "Curator",
    "DataError",
    "Error",
    "EstimatorTeachers",
    "GNMax",
    "LNMax",
    "LaplaceMean",
    "Ledger",
    "LedgerError",
    "LinearRounds",
    "MeanPlan",
    "NoisyMean",
    "OneHot",
    "OneShot",
    "Orthant",
    "Outcome",
    "PrivacyError",
    "Private",
    "Prototypes",
    "Public",
    "Recipe",
    "RecipeError",
    "Roster",
    "Sanitise",
    "Scattering",
    "Sealed",
    "Selection",
    "Shards",
    "Simplex",
    "SmoothNumber",
    "SpreadingStudent",
    "SupervisedStudent",
    "TableSchema",
    "ThresholdTest",
    "Uncertain",
    "Unit",
    "UnitOverlap",
    "Unsealed",
    "Votes",
    "__version__",
    "audit",
    "classify",
    "distill",
    "generate",
    "learn",
    "load",
    "report",
    "transfer",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'tutelage' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
