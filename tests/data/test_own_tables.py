"""Tables and arrays of one's own: what is declared decides how a cell is read, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.data import tables
from tutelage.data.accepted import Accepted
from tutelage.data.dataset import Private, Public
from tutelage.data.schema import ArraySchema, Category, ImageSchema, Number, TableSchema, VolumeSchema, parse, text
from tutelage.drafting import columns
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.recipes.own import part

SCHEMA = TableSchema((Number("age", 0, 100), Category("kind", ("a", "7", "None"))), "label", ("no", "yes"), "who")


def table(folder: Path, *lines: str, header: str = "who,age,kind,label") -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join((header, *lines)), encoding="utf-8")
    return path


def test_cells_are_read_by_what_is_declared(tmp_path: Path) -> None:
    private = Private.from_csv(
        table(tmp_path, "p1, 50 ,a,no", "p1,-5,7.0,yes", 'p2,1e9,"b, c",no', "p3,no,,maybe", ",20,a,no", "p4,20,a", 'p5,30,"a,b'),
        SCHEMA, unit="patient",
    )  # fmt: skip
    age, missing = private.inputs[:, 0], private.inputs[:, 1]
    assert age.tolist() == pytest.approx([0.5, 0, 1, 0, 0.2, 0, 0], abs=1e-6)  # cut to the range; 0 where there is none
    assert missing.tolist()[:5] == [0, 0, 0, 1, 0]
    assert private.inputs[:5, 2:].argmax(axis=1).tolist() == [0, 1, 3, 2, 0]  # 7.0 is 7, an unknown word is the last code
    assert private.targets.tolist()[:5] == [0, 1, 0, -1, 0]
    assert private.units.tolist() == ["p1", "p1", "p2", "p3", "", "", ""]  # broken lines keep their places, and are nobody's
    assert "lines with another number of cells" in " ".join(private.notes)
    assert private.labelled(2).units.tolist()[3] == ""  # no class: in no shard


def test_without_ids_a_line_is_a_unit_and_a_broken_one_keeps_its_place(tmp_path: Path) -> None:
    schema = TableSchema(SCHEMA.columns, "label", ("no", "yes"))
    one = Private.from_csv(table(tmp_path, "p,1,a,no", "p,2,a,yes", "p,3,a,no"), schema)
    other = Private.from_csv(table(tmp_path, "p,1,a,no", "broken", "p,3,a,no"), schema)
    assert one.units.tolist() == ["0", "1", "2"]
    assert other.units.tolist() == ["0", "", "2"]
    assert one.places == other.places == 3


@pytest.mark.parametrize("other", [";", "\t", "|"])
def test_separators(tmp_path: Path, other: str) -> None:
    path = table(tmp_path, other.join(("p1", "50", "a", "no")), header=other.join(("who", "age", "kind", "label")))
    assert len(Private.from_csv(path, SCHEMA, unit="patient", separator=other)) == 1


def test_headers_and_public_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="declared columns"):
        Private.from_csv(table(tmp_path, "p1,50,no", header="who,age,label"), SCHEMA, unit="patient")
    with pytest.raises(DataError, match="header"):
        Private.from_csv(table(tmp_path, "1,2", header="age,age"), SCHEMA, unit="patient")
    assert Public.from_csv(table(tmp_path, "50,a", header="age,kind"), SCHEMA).targets is None
    with pytest.raises(DataError, match="as many cells"):
        Public.from_csv(table(tmp_path, "50,a,1", header="age,kind"), SCHEMA)
    (tmp_path / "x.csv").write_bytes(b"\x1f\x8bxxxx")
    with pytest.raises(DataError, match="UTF-8"):
        tables.read(tmp_path / "x.csv")


def test_schemas_read_back() -> None:
    accepted = Accepted((4,), "float", 0.0, 1.0)
    for schema in (
        SCHEMA,
        ArraySchema((1, 8, 8), ("a", "b")),
        ImageSchema(3, (8, 9), ("a", "b"), ()),
        VolumeSchema(2, (8, 8, 8), (1, 2), (1.0, 1.0, 2.0), (-100.0, 200.0)),
    ):
        assert parse(text(schema, accepted)) == schema
    for wrong in ("", "{}", '{"version": 2}', '{"version": 1, "kind": "table"}'):
        with pytest.raises(DataError):
            parse(wrong)


def test_decoding_gives_what_encodes_alike() -> None:
    cells: dict[str, list[Any]] = {"age": [0.0, 33.3, 100.0, None], "kind": ["a", "7", "None", "other"]}
    rows = SCHEMA.encode(cells)
    assert np.array_equal(SCHEMA.encode(SCHEMA.decode(rows)), rows)


@pytest.mark.parametrize("wrong", [("x", 5, 5), ("x", float("nan"), 1), ("x", 0, True)])
def test_ranges_are_checked(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(RecipeError):
        Number(*wrong)


def test_words_as_labels_need_declared_classes() -> None:
    inputs, words = np.zeros((3, 2)), np.array(["ill", "well", "odd"])
    with pytest.raises(RecipeError, match="`classes` must be declared"):
        Private.from_arrays(inputs, words)
    private = Private.from_arrays(inputs, words, classes=("well", "ill"), units=["a", "b", "c"], unit="patient")
    assert private.targets.tolist() == [1, 0, -1]
    assert private.schema == ArraySchema((2,), ("well", "ill"))
    assert Private.from_arrays(inputs, np.array([[0], [1], [1]]), classes=("well", "ill")).targets.tolist() == [0, 1, 1]
    assert Private.from_arrays(inputs, np.array([3, 5, 4]), classes=("3", "5")).targets.tolist() == [0, 1, -1]


def test_medmnist_and_folders_of_npy(tmp_path: Path) -> None:
    images, labels = np.arange(48, dtype=np.uint8).reshape(3, 4, 4), np.array([[0], [1], [0]])
    parts = {
        f"{name}_{what}": array for name in ("train", "val", "test") for what, array in (("images", images), ("labels", labels))
    }
    np.savez(tmp_path / "m.npz", **parts)
    private = Private.from_npz(tmp_path / "m.npz", classes=("a", "b"))
    assert private.inputs.shape == (3, 1, 4, 4)
    assert private.inputs.max() == pytest.approx(47 / 255)
    assert Public.from_npz(tmp_path / "m.npz", classes=("a", "b")).targets.tolist() == [0, 1, 0]
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f" / "inputs.npy", images)
    np.save(tmp_path / "f" / "targets.npy", labels[:, 0])
    assert np.array_equal(Private.from_npz(tmp_path / "f").inputs, private.inputs)
    np.savez(tmp_path / "odd.npz", something=images)
    with pytest.raises(DataError, match="inputs"):
        Private.from_npz(tmp_path / "odd.npz")


def test_people_are_divided_by_their_own_id_alone() -> None:
    ids = np.array([f"p{number}" for number in range(2000)])
    test, pool, own = (part(0, *ends)(ids) for ends in ((0, 0.15), (0.15, 0.3), (0.3, 1)))
    assert (test.astype(int) + pool + own == 1).all()
    assert 0.1 < test.mean() < 0.2
    assert np.array_equal(part(0, 0, 0.15)(ids[::-1]), test[::-1])
    assert not part(0, 0, 1)(np.array(["", "x"]))[0]
    assert not np.array_equal(part(1, 0, 0.15)(ids), test)


def test_the_pool_is_asked_in_another_order_than_its_file_has(tmp_path: Path) -> None:
    from tutelage.recipes.own import load, shuffled
    from tutelage.recipes.recipe import DataSection

    assert sorted(shuffled(50, 0).tolist()) == list(range(50))
    assert not np.array_equal(shuffled(50, 0), shuffled(50, 1))
    lines = [f"p{row},{row},a,{'no' if row < 50 else 'yes'}" for row in range(100)]
    table(tmp_path, *lines)
    names = {"file": "t.csv", "public_file": "t.csv", "test_file": "t.csv"}
    columns_ = {"age": {"low": 0, "high": 100}, "kind": {"categories": ["a"]}}
    section = DataSection(set="table", label="label", id="who", classes=("no", "yes"), columns=columns_, declared=True, **names)
    private, public, _ = load(section, tmp_path, unit="patient", seed=0, roster=None, public_data=False)
    assert 15 < public.targets[:50].sum() < 35  # one class after the other, as files often have them, would give 0
    assert private.targets.tolist() == [0] * 50 + [1] * 50  # private rows stay as they are


def test_guessed_ranges_and_categories_follow_no_single_person() -> None:
    rows = 400
    cells = tables.Cells(
        {
            "patient": [str(row // 2) for row in range(rows)],
            "visit_id": [str(10_000 + row) for row in range(rows)],
            "age": [20 + row % 60 for row in range(rows - 1)] + [117],
            "job": ["clerk", "nurse"] * (rows // 2 - 3) + ["astronaut"] * 6,
            "diagnosis": ["ill", "well"] * (rows // 2),
        },
        rows,
    )
    found = columns.guess(cells)
    assert (found.label, found.id, found.classes) == ("diagnosis", "patient", ("ill", "well"))
    ranges = {column.name: column for column in found.columns}
    assert isinstance(ranges["age"], Number)
    assert ranges["age"].high < 117  # the one old patient is not in it
    assert ranges["job"] == Category("job", ("clerk", "nurse"))  # three people with one odd job are "other"
    assert found.rare == ("job",)
    assert dict(found.left_out) == {"visit_id": "it names rows, and does not describe them"}
