from __future__ import annotations

import zipfile

import numpy as np
import pytest

from tutelage.data.diabetes import FEATURES, Diagnosis, read_diabetes, split_by_patient
from tutelage.privacy.errors import DataError, RecipeError


def features(records, row=0):
    return {name: value for name, value in zip(FEATURES, records.inputs[row].tolist(), strict=True) if value}


def test_a_row_becomes_its_public_features(tmp_path, diabetes_table):
    path = tmp_path / "diabetic_data.csv"
    path.write_text(diabetes_table({"insulin": "Down", "diag_2": "V45", "age": "[70-80)", "medical_specialty": "Surgery-Neuro"}))
    records = read_diabetes(path)
    assert len(FEATURES) == len(set(FEATURES)) == records.inputs.shape[1] == 183
    assert records.inputs.dtype == np.float32
    assert features(records) == pytest.approx(
        {
            "race=Caucasian": 1,
            "gender=Female": 1,
            "age": 0.75,
            "admission_type_id=6": 1,
            "discharge_disposition_id=25": 1,
            "admission_source_id=1": 1,
            "time_in_hospital": 1 / 14,
            "payer_code=missing": 1,
            "medical_specialty=surgery": 1,
            "num_lab_procedures": 0.41,
            "num_medications": 0.02,
            "diag_1=diabetes": 1,
            "diag_2=other": 1,
            "diag_3=missing": 1,
            "number_diagnoses": 1 / 16,
            "max_glu_serum=None": 1,
            "A1Cresult=None": 1,
            "insulin=given": 1,
            "insulin=change": -1,
            "change=No": 1,
            "diabetesMed=No": 1,
        }
    )
    assert records.units.tolist() == [8222157]


def test_the_two_targets(tmp_path, diabetes_table):
    path = tmp_path / "diabetic_data.csv"
    path.write_text(diabetes_table({"readmitted": "NO"}, {"readmitted": "<30"}, {"readmitted": ">30"}))
    assert read_diabetes(path).targets.tolist() == [0, 1, 0]
    assert read_diabetes(path, target="at-all").targets.tolist() == [0, 1, 1]
    with pytest.raises(RecipeError, match="'within-30-days' or 'at-all'"):
        read_diabetes(path, target="soon")


@pytest.mark.parametrize("inside", ["dataset_diabetes/diabetic_data.csv", "diabetic_data.csv"])
def test_reads_the_archive_as_published_then_and_now(tmp_path, diabetes_table, inside):
    path = tmp_path / "dataset_diabetes.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(inside, diabetes_table({}, {"patient_nbr": "5"}))
        archive.writestr("dataset_diabetes/IDs_mapping.csv", "admission_type_id,description\n")
    assert read_diabetes(path).units.tolist() == [8222157, 5]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError):
        read_diabetes(path)


def test_refuses_an_archive_without_the_table(tmp_path):
    path = tmp_path / "dataset_diabetes.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.csv", "a")
    with pytest.raises(DataError, match=r"must hold one diabetic_data\.csv\. Got 0"):
        read_diabetes(path)


@pytest.mark.parametrize(
    ("code", "group"),
    [
        ("390", "circulatory"),
        ("459.9", "circulatory"),
        ("785", "circulatory"),
        ("460", "respiratory"),
        ("786", "respiratory"),
        ("579", "digestive"),
        ("787", "digestive"),
        ("250", "diabetes"),
        ("250.83", "diabetes"),
        ("251", "other"),
        ("800", "injury"),
        ("996", "injury"),
        ("715", "musculoskeletal"),
        ("599", "genitourinary"),
        ("788", "genitourinary"),
        ("140", "neoplasms"),
        ("239", "neoplasms"),
        ("240", "other"),
        ("8", "other"),
        ("V57", "other"),
        ("E878", "other"),
        ("?", "?"),
    ],
)
def test_icd_9_groups_of_strack_2014(code, group):
    assert Diagnosis("diag_1").group(code) == group


@pytest.mark.parametrize(
    "column", ["race", "age", "diag_1", "insulin", "readmitted", "patient_nbr", "num_medications", "discharge_disposition_id"]
)
def test_a_bad_value_is_named_by_its_column_alone(tmp_path, diabetes_table, column):
    path = tmp_path / "diabetic_data.csv"
    path.write_text(diabetes_table({}, {column: "SECRET"}))
    with pytest.raises(DataError, match=column) as caught:
        read_diabetes(path)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text.splitlines()[0],
        lambda text: text[: len(text) - 40],
        lambda text: text.replace("patient_nbr", "patient"),
        lambda text: text + '"open quote',
        lambda text: text + "é",
    ],
)
def test_refuses_truncated_or_foreign_tables(tmp_path, diabetes_table, damage):
    path = tmp_path / "diabetic_data.csv"
    path.write_text(damage(diabetes_table({}, {})), encoding="utf-8")
    with pytest.raises(DataError):
        read_diabetes(path)


def test_refuses_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="FileNotFoundError"):
        read_diabetes(tmp_path / "none.csv")


def test_the_split_never_shares_a_patient():
    rng = np.random.default_rng(0)
    for seed in range(5):
        patients = rng.integers(0, 400, 2000)
        train, test = split_by_patient(patients, seed=seed)
        assert sorted(np.concatenate([train, test]).tolist()) == list(range(2000))
        assert not set(patients[train]) & set(patients[test])
        assert len(np.unique(patients[test])) / 400 == pytest.approx(0.2, abs=0.07)


def test_test_rows_are_whole_patients_one_after_another():
    patients = np.random.default_rng(1).integers(0, 300, 2000)
    _, test = split_by_patient(patients)
    changes = np.count_nonzero(np.diff(patients[test]))
    assert changes == len(np.unique(patients[test])) - 1
    for patient in np.unique(patients[test]):
        assert (np.diff(test[patients[test] == patient]) > 0).all()


def test_a_patients_side_and_place_do_not_depend_on_the_others():
    patients = np.random.default_rng(2).integers(0, 300, 2000)
    few = patients[:500]
    _, test = split_by_patient(patients)
    _, few_test = split_by_patient(few)
    order = list(dict.fromkeys(patients[test].tolist()))
    few_order = list(dict.fromkeys(few[few_test].tolist()))
    assert few_order == [patient for patient in order if patient in set(few.tolist())]
    assert not np.array_equal(split_by_patient(patients, seed=1)[1], test)


def test_the_split_is_written_in_stone():
    train, test = split_by_patient(np.arange(20) // 2 * 11)
    assert test.tolist() == [8, 9, 18, 19]
    assert train.tolist() == [row for row in range(20) if row not in test]


@pytest.mark.parametrize("share", [0, 1, -0.1, 2, float("nan")])
def test_refuses_a_share_outside_the_open_interval(share):
    with pytest.raises(RecipeError, match="between 0 and 1"):
        split_by_patient([1, 2], test=share)
