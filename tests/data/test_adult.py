from __future__ import annotations

import numpy as np
import pytest

from tutelage.data.adult import FEATURES, read_adult
from tutelage.privacy.errors import DataError


def test_a_row_becomes_its_public_features(tmp_path, adult_row):
    path = tmp_path / "adult.data"
    path.write_text(adult_row() + "\n\n")
    records = read_adult(path)
    assert len(FEATURES) == len(set(FEATURES)) == 108
    assert records.inputs.shape == (1, 108)
    assert records.inputs.dtype == np.float32
    seen = {name: value for name, value in zip(FEATURES, records.inputs[0].tolist(), strict=True) if value}
    assert {name for name, value in seen.items() if value == 1} == {
        "workclass=State-gov",
        "education=Bachelors",
        "marital-status=Never-married",
        "occupation=Adm-clerical",
        "relationship=Not-in-family",
        "race=White",
        "sex=Male",
        "native-country=United-States",
    }
    numbers = {name: value for name, value in seen.items() if value != 1}
    assert numbers == pytest.approx(
        {
            "age": 0.39,
            "fnlwgt": 0.077516,
            "education-num": 13 / 16,
            "capital-gain": np.log1p(2174) / np.log1p(100_000),
            "hours-per-week": 0.4,
        }
    )
    assert records.targets.tolist() == [0]


def test_the_test_file_has_a_comment_and_full_stops(tmp_path, adult_row):
    path = tmp_path / "adult.test"
    path.write_text("|1x3 Cross validator\n" + adult_row(at14="<=50K.") + "\n" + adult_row(at14=">50K.") + "\n\n")
    assert read_adult(path).targets.tolist() == [0, 1]


def test_a_missing_value_is_a_column_of_its_own(tmp_path, adult_row):
    path = tmp_path / "adult.data"
    path.write_text(adult_row(at1="?", at6="?", at13="?"))
    row = dict(zip(FEATURES, read_adult(path).inputs[0].tolist(), strict=True))
    assert row["workclass=missing"] == row["occupation=missing"] == row["native-country=missing"] == 1
    assert row["workclass=State-gov"] == 0


def test_the_encoding_does_not_depend_on_the_other_rows(tmp_path, adult_row):
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.write_text(adult_row())
    together.write_text("\n".join((adult_row(), adult_row(at0="90", at10="99999"), adult_row(at3="HS-grad", at4="9"))))
    assert np.array_equal(read_adult(alone).inputs, read_adult(together).inputs[:1])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "|only a comment\n",
        "39, State-gov, 77516\n",
        "SECRET" * 3,
        "{row}\n39, State-gov, 77516, Bache",
        "{row}, extra",
        b"\xff\xfe\x00",
    ],
)
def test_refuses_truncated_or_foreign_files(tmp_path, adult_row, content):
    path = tmp_path / "adult.data"
    path.write_bytes(content if isinstance(content, bytes) else content.replace("{row}", adult_row()).encode())
    with pytest.raises(DataError):
        read_adult(path)


@pytest.mark.parametrize(
    ("place", "column"), [("at1", "workclass"), ("at0", "age"), ("at3", "education"), ("at14", "last field"), ("at9", "sex")]
)
def test_a_bad_value_is_named_by_its_column_alone(tmp_path, adult_row, place, column):
    path = tmp_path / "adult.data"
    path.write_text(adult_row(**{place: "SECRET"}))
    with pytest.raises(DataError, match=column) as caught:
        read_adult(path)
    assert "SECRET" not in str(caught.value)


def test_refuses_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="FileNotFoundError"):
        read_adult(tmp_path / "none")
