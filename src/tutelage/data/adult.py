"""UCI Adult (Kohavi 1996): does a person earn over 50,000 dollars a year? 108 features; target 1 is "over".

The encoding is public: categories as adult.names prints them, scales as round constants (columns.py says why).
Always answering "no" is right for 75.9 % of adult.data and 76.4 % of adult.test.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tutelage.data.columns import OneHot, Scaled
from tutelage.data.records import Records
from tutelage.privacy.errors import DataError

LABELS = ("<=50K", ">50K")

# fmt: off
COLUMNS: tuple[OneHot | Scaled, ...] = (
    Scaled("age", 100),
    OneHot("workclass", (
        "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
        "Never-worked",
    ), missing="?"),
    Scaled("fnlwgt", 1_000_000),
    OneHot("education", (
        "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th",
        "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool",
    )),
    Scaled("education-num", 16),
    OneHot("marital-status", (
        "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
        "Married-AF-spouse",
    )),
    OneHot("occupation", (
        "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
        "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
        "Priv-house-serv", "Protective-serv", "Armed-Forces",
    ), missing="?"),
    OneHot("relationship", ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried")),
    OneHot("race", ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")),
    OneHot("sex", ("Female", "Male")),
    Scaled("capital-gain", 100_000, log=True),
    Scaled("capital-loss", 10_000, log=True),
    Scaled("hours-per-week", 100),
    OneHot("native-country", (
        "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)",
        "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland",
        "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador",
        "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia",
        "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands",
    ), missing="?"),
)
# fmt: on

FEATURES: tuple[str, ...] = tuple(feature for column in COLUMNS for feature in column.features)


def read_adult(path: Path | str) -> Records:
    """Read adult.data or adult.test: (records, 108) and (records,).

    An odd cell is refused: read private tables with it only where they are checked already.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"`{path}` must be a readable text file. Got {type(error).__name__} instead.") from None
    # adult.test opens with a comment ("|1x3 Cross validator"), both files end with an empty line.
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("|")]
    width = len(COLUMNS) + 1
    if not rows or any(len(row) != width for row in rows):
        raise DataError(f"`{path}` must hold rows of {width} fields. Got an empty file or a row of another length instead.")
    *cells, answers = zip(*rows, strict=True)
    labels = [answer.removesuffix(".") for answer in answers]  # adult.test writes ">50K."
    if not set(labels) <= set(LABELS):
        raise DataError(f"The last field of `{path}` must be {' or '.join(LABELS)}. Got another label instead.")
    inputs = np.concatenate([column.encode(values) for column, values in zip(COLUMNS, cells, strict=True)], axis=1)
    return Records(inputs, np.array([LABELS.index(label) for label in labels], np.int64))
