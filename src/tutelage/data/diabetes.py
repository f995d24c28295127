"""UCI Diabetes 130-US hospitals (Strack et al. 2014): will a patient be readmitted? The unit of privacy is the patient.

The file holds 101,766 stays of 71,518 patients, so a split by row would show the test set patients that teachers were
trained on, and would put one patient behind several teachers. Everything here goes by patient.

Two targets. "within-30-days" (the authors' own): 1 if the next stay began less than 30 days after this one; always
answering "no" is right for 88.8 % of the rows. "at-all": 1 if there was any later stay; "no" is right for 53.9 %.
All rows are kept, those that ended in death or hospice too (their discharge code is a feature).

The encoding is public (columns.py says why): codes as IDs_mapping.csv prints them, diagnoses in the nine groups and
specialties in the six of Strack et al. (tables 2 and 3), scales as round constants.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, final

import numpy as np

from tutelage.data.columns import OneHot, Scaled
from tutelage.data.records import Records
from tutelage.privacy.errors import DataError, RecipeError

Target = Literal["within-30-days", "at-all"]

TABLE = "diabetic_data.csv"
_POSITIVE = {"within-30-days": ("<30",), "at-all": ("<30", ">30")}


@final
@dataclass(frozen=True)
class Dose:
    """Encode a drug as two columns: whether it was given, and whether its dose went up (1) or down (-1)."""

    name: str

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded columns."""
        return (f"{self.name}=given", f"{self.name}=change")

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        """Encode cells: (records, 2)."""
        one_hot = OneHot(self.name, ("No", "Steady", "Up", "Down")).encode(cells)
        return one_hot @ np.array([[0, 0], [1, 0], [1, 1], [1, -1]], np.float32)


@final
@dataclass(frozen=True)
class Decade:
    """Encode an age bracket, "[70-80)", by its middle over 100."""

    name: str

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded column."""
        return (self.name,)

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        """Encode cells: (records, 1)."""
        brackets = tuple(f"[{start}-{start + 10})" for start in range(0, 100, 10))
        return OneHot(self.name, brackets).encode(cells) @ np.arange(0.05, 1.0, 0.1, dtype=np.float32)[:, None]


@final
@dataclass(frozen=True)
class Diagnosis:
    """Encode an ICD-9 code by its group in Strack et al. 2014, table 2."""

    name: str

    GROUPS = (
        "circulatory", "respiratory", "digestive", "diabetes", "injury", "musculoskeletal", "genitourinary",
        "neoplasms", "other",
    )  # fmt: skip

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded columns."""
        return OneHot(self.name, self.GROUPS, missing="?").features

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        """Encode cells: (records, 10)."""
        groups = {code: self.group(code) for code in set(cells)}
        return OneHot(self.name, self.GROUPS, missing="?").encode([groups[code] for code in cells])

    def group(self, code: str) -> str:
        """Name the group of a code; a missing one stays "?"."""
        if code == "?" or code[:1] in ("E", "V"):  # E: external causes, V: supplementary
            return "?" if code == "?" else "other"
        if not code.replace(".", "", 1).isdecimal():
            raise DataError(f"`{self.name}` must be an ICD-9 code. Got something else instead.")
        match int(float(code)):
            case 250:
                return "diabetes"
            case whole if 390 <= whole <= 459 or whole == 785:
                return "circulatory"
            case whole if 460 <= whole <= 519 or whole == 786:
                return "respiratory"
            case whole if 520 <= whole <= 579 or whole == 787:
                return "digestive"
            case whole if 800 <= whole <= 999:
                return "injury"
            case whole if 710 <= whole <= 739:
                return "musculoskeletal"
            case whole if 580 <= whole <= 629 or whole == 788:
                return "genitourinary"
            case whole if 140 <= whole <= 239:
                return "neoplasms"
        return "other"


@final
@dataclass(frozen=True)
class Specialty:
    """Encode the admitting physician's specialty in the six groups of Strack et al. 2014, table 3."""

    name: str

    GROUPS = ("internal medicine", "cardiology", "surgery", "family practice")

    @property
    def features(self) -> tuple[str, ...]:
        """Name the encoded columns."""
        return OneHot(self.name, self.GROUPS, missing="?", other=True).features

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        """Encode cells: (records, 6)."""
        groups = {cell: self.group(cell) for cell in set(cells)}
        return OneHot(self.name, self.GROUPS, missing="?", other=True).encode([groups[cell] for cell in cells])

    def group(self, specialty: str) -> str:
        """Name the group of a specialty; a missing one stays "?"."""
        if specialty.startswith("Surg"):  # Surgery-General, Surgeon, SurgicalSpecialty ...
            return "surgery"
        return {
            "InternalMedicine": "internal medicine",
            "Cardiology": "cardiology",
            "Family/GeneralPractice": "family practice",
            "?": "?",
        }.get(specialty, "other")


def _numbers(stop: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, stop + 1))


_DRUGS = (
    "metformin", "repaglinide", "nateglinide", "chlorpropamide", "glimepiride", "acetohexamide", "glipizide",
    "glyburide", "tolbutamide", "pioglitazone", "rosiglitazone", "acarbose", "miglitol", "troglitazone",
    "tolazamide", "examide", "citoglipton", "insulin", "glyburide-metformin", "glipizide-metformin",
    "glimepiride-pioglitazone", "metformin-rosiglitazone", "metformin-pioglitazone",
)  # fmt: skip

# Left out: encounter_id and patient_nbr (they name, they do not describe) and weight (97 % missing: Strack et al.).
COLUMNS: tuple[OneHot | Scaled | Dose | Decade | Diagnosis | Specialty, ...] = (
    OneHot("race", ("Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"), missing="?"),
    OneHot("gender", ("Female", "Male", "Unknown/Invalid")),
    Decade("age"),
    OneHot("admission_type_id", _numbers(8)),
    OneHot("discharge_disposition_id", _numbers(30)),
    OneHot("admission_source_id", _numbers(26)),
    Scaled("time_in_hospital", 14),
    OneHot("payer_code", ("MC", "MD", "HM", "BC", "SP"), missing="?", other=True),
    Specialty("medical_specialty"),
    Scaled("num_lab_procedures", 100),
    Scaled("num_procedures", 10),
    Scaled("num_medications", 50),
    Scaled("number_outpatient", 50, log=True),
    Scaled("number_emergency", 50, log=True),
    Scaled("number_inpatient", 20, log=True),
    Diagnosis("diag_1"),
    Diagnosis("diag_2"),
    Diagnosis("diag_3"),
    Scaled("number_diagnoses", 16),
    OneHot("max_glu_serum", ("None", "Norm", ">200", ">300")),
    OneHot("A1Cresult", ("None", "Norm", ">7", ">8")),
    *(Dose(drug) for drug in _DRUGS),
    OneHot("change", ("No", "Ch")),
    OneHot("diabetesMed", ("No", "Yes")),
)

FEATURES: tuple[str, ...] = tuple(feature for column in COLUMNS for feature in column.features)


def read_diabetes(path: Path | str, *, target: Target = "within-30-days") -> Records:
    """Read dataset_diabetes.zip or the extracted csv: (records, 183), (records,), and the patient of every record.

    An odd cell is refused: read private tables with it only where they are checked already.
    """
    path = Path(path)
    if target not in _POSITIVE:
        raise RecipeError(f"`target` must be {' or '.join(map(repr, _POSITIVE))}. Got {target!r} instead.")
    same = dict[str, str]().setdefault  # cells repeat: one object per text saves a third of time and memory
    try:
        table = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
        rows = [[same(cell, cell) for cell in row] for row in table]
    except csv.Error:
        raise DataError(f"`{path}` must be a comma-separated table. Got something else instead.") from None
    header, rows = (rows[0], rows[1:]) if rows else ([], [])
    wanted = ("patient_nbr", *(column.name for column in COLUMNS), "readmitted")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise DataError(f"`{path}` must have the published columns. Got none named {', '.join(missing)} instead.")
    if not rows or any(len(row) != len(header) for row in rows):
        raise DataError(
            f"`{path}` must hold rows of {len(header)} fields. Got an empty table or a row of another length instead."
        )
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    answers = np.array(cells["readmitted"])
    if not np.isin(answers, ("NO", "<30", ">30")).all():
        raise DataError(f"`readmitted` of `{path}` must be NO, <30 or >30. Got something else instead.")
    try:
        patients = np.array(cells["patient_nbr"]).astype(np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"`patient_nbr` of `{path}` must be a whole number. Got something else instead.") from None
    inputs = np.concatenate([column.encode(cells[column.name]) for column in COLUMNS], axis=1)
    return Records(inputs, np.isin(answers, _POSITIVE[target]).astype(np.int64), patients)


def _text(path: Path) -> str:
    try:
        if not zipfile.is_zipfile(path):
            return path.read_text(encoding="ascii")
        with zipfile.ZipFile(path) as archive:
            # UCI has published the table both at the top of the archive and inside a folder.
            inside = [name for name in archive.namelist() if PurePosixPath(name).name == TABLE]
            if len(inside) != 1:
                raise DataError(f"`{path}` must hold one {TABLE}. Got {len(inside)} instead.")
            return archive.read(inside[0]).decode("ascii")
    except DataError:
        raise
    except Exception as error:  # zipfile alone raises six unrelated types
        raise DataError(f"`{path}` must be readable. Got {type(error).__name__} instead.") from None


def split_by_patient(patients: Iterable[int], *, test: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Divide rows into training rows, in file order, and test rows, in a random order of whole patients.

    A patient's side and place come from a seeded hash of the id alone, so that they do not move when other rows are
    added or removed. The order of the test rows makes any first part of them a random sample of patients: the file
    itself drifts over ten years.
    """
    if not 0 < test < 1:
        raise RecipeError(f"`test` must be a share between 0 and 1. Got {test!r} instead.")
    ids = np.asarray(patients)
    distinct, where = np.unique(ids, return_inverse=True)
    digests = [hashlib.sha256(f"{seed}:{patient}".encode()).digest()[:8] for patient in distinct.tolist()]
    place = np.array([int.from_bytes(digest, "big") / 2**64 for digest in digests])[where]
    held_out = place < test
    order = np.flatnonzero(held_out)
    return np.flatnonzero(~held_out), order[np.lexsort((order, ids[order], place[order]))]
