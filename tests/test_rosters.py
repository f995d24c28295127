"""A roster in a recipe: a public list, read beside it, named by its hash, and all that one teacher per unit needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutelage.data import rosters
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.units import Roster
from tutelage.recipes.recipe import parse, read
from tutelage.recipes.run import embedded, rostered

VOLUMES = """
name = "clinic"
[data]
set = "nifti"
size = [8, 8, 8]
{data}
[privacy]
epsilon = 1.0
delta = 1e-5
unit = "patient"
[teachers]
kind = "unet"
shards = {shards}
[codec]
kind = "dct"
kept = 10
norm = 5.0
[aggregation]
method = "mean"
queries = 2
"""
APART = 'public_directory = "pool"\ntest_directory = "test"'
DRAWN = "public = 3\ntest = 2"
TABLE = """
name = "table"
[data]
set = "{name}"
{data}
[privacy]
epsilon = 1.0
delta = 1e-5
unit = "{unit}"
[teachers]
shards = "one per unit"
[aggregation]
queries = 2
[student]
kind = "forest"
"""


def clinic(folder: Path, data: str, shards: str = '"one per unit"', people: int = 12) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "people.txt").write_text("\n".join(f"p{number}" for number in range(people)), encoding="utf-8")
    path = folder / "clinic.toml"
    path.write_text(VOLUMES.format(data=data, shards=shards), encoding="utf-8")
    return path


def test_a_list_lies_beside_its_recipe_and_is_a_part_of_its_hash(tmp_path: Path) -> None:
    data = f'roster = "people.txt"\n{APART}'
    recipe, same = read(clinic(tmp_path / "a", data)), read(clinic(tmp_path / "b", data))
    other = read(clinic(tmp_path / "c", data, people=13))
    assert recipe.roster == Roster.of([f"p{number}" for number in range(12)])
    assert recipe.teachers.shards == 12
    assert recipe.sha256 == same.sha256 != other.sha256
    assert recipe.data.roster == f"sha256:{recipe.roster.sha256}"
    assert read(clinic(tmp_path / "d", APART, shards="12")).sha256 != recipe.sha256  # hashed ids are another division
    again = read(clinic(tmp_path / "e", f'roster = "{recipe.data.roster}"\n{APART}', shards="12"))  # as a release writes it
    assert again.sha256 == recipe.sha256
    assert again.roster is None
    with pytest.raises(RecipeError, match=r"`data.roster` must be the list itself where a run is made"):
        rostered(again, tmp_path)
    assert rostered(recipe, tmp_path / "elsewhere").roster == recipe.roster


def test_a_recipe_without_a_folder_finds_its_list_among_the_data(tmp_path: Path) -> None:
    beside = read(clinic(tmp_path, f'roster = "people.txt"\n{APART}', shards="12"))
    bare = parse(VOLUMES.format(data=f'roster = "people.txt"\n{APART}', shards="12"))
    assert bare.roster is None
    assert rostered(bare, tmp_path).roster == beside.roster
    assert rostered(bare, tmp_path).sha256 == beside.sha256
    for place in (tmp_path / "none", tmp_path / "clinic.toml"):
        with pytest.raises(RecipeError, match="`roster` must be a readable UTF-8 text"):
            rostered(bare, place)


def test_shards_are_held_to_the_list_without_reading_a_scan(tmp_path: Path) -> None:
    assert read(clinic(tmp_path, f'roster = "people.txt"\n{DRAWN}', shards="7")).teachers.shards == 7  # 12 less 3 and 2
    for data, most in ((f'roster = "people.txt"\n{DRAWN}', 7), (f'roster = "people.txt"\n{APART}', 12)):
        with pytest.raises(RecipeError, match=f"`teachers.shards` must be between 1 and the {most} places of the roster"):
            read(clinic(tmp_path, data, shards=f"{most + 1}"))
    assert read(clinic(tmp_path, APART, shards="5000")).teachers.shards == 5000  # how many patients there are is private


@pytest.mark.parametrize("data", [DRAWN, f"private = 4\n{APART}"])
def test_private_people_are_drawn_from_a_list_alone(data: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"`data\.roster` must be given where private people are drawn by counts"):
        read(clinic(tmp_path, data, shards="4"))
    assert read(clinic(tmp_path, f'{data}\nroster = "people.txt"', shards="4")).roster is not None


def test_one_per_unit_needs_a_number_that_is_public(tmp_path: Path) -> None:
    for name, unit, data, count in (
        ("mnist", "record", "", 60_000),
        ("adult", "record", "", 32_561),
        ("digits", "record", "", 1000),
        ("diabetes", "patient", 'roster = "published"', 57_250),
    ):
        assert parse(TABLE.format(name=name, unit=unit, data=data)).teachers.shards == count
    for name, unit in (("diabetes", "patient"), ("pneumoniamnist", "record")):
        with pytest.raises(RecipeError, match=r"`teachers.shards` must be a whole number where there is no roster"):
            parse(TABLE.format(name=name, unit=unit, data=""))
    with pytest.raises(RecipeError, match=r"`teachers.shards` must be a whole number where there is no roster"):
        read(clinic(tmp_path, APART))


def test_a_published_list_is_the_sets_own() -> None:
    people, recipe = rosters.hippocampus(), embedded("segmentation/hippocampus")
    assert (len(people), people.ids[0], people.ids[-1]) == (170, "hippocampus patient 1", "hippocampus patient 197")
    assert recipe.roster == people
    assert recipe == embedded("segmentation/hippocampus")
    for name, data, message in (
        ("mnist", 'roster = "published"', r"`data.roster` must stay open for 'mnist'"),
        ("diabetes", 'roster = "people.txt"', r"`data.roster` must be 'published' for 'diabetes'"),
    ):
        with pytest.raises(RecipeError, match=message):
            parse(TABLE.format(name=name, unit="record", data=data))
    with pytest.raises(RecipeError, match=r"`data.roster` must be a file with one id a line for 'nifti'"):
        parse(VOLUMES.format(data=f'roster = "published"\n{APART}', shards="3"))
