"""Who of a folder is public: told by the seed and each one's own name, and never somebody who is private elsewhere."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel")

from tutelage.data.volumes import Volumes  # noqa: E402
from tutelage.privacy.errors import DataError, RecipeError  # noqa: E402
from tutelage.privacy.units import Roster  # noqa: E402
from tutelage.recipes import sets  # noqa: E402


def scans(folder: Path, names: list[str]) -> Path:
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
        for number, name in enumerate(names):
            values = np.random.default_rng(number).random((4, 4, 4)).round().astype(np.float32)
            nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), folder / part / f"{name}.nii.gz")
    return folder


def section(**keys: Any) -> SimpleNamespace:
    told = {
        "size": (4, 4, 4),
        "labels": None,
        "private": None,
        "public": 3,
        "test": 2,
        "public_directory": None,
        "test_directory": None,
    }
    return SimpleNamespace(**{**told, **keys})


PEOPLE = [f"person-{number}" for number in range(12)]
ROSTER = Roster.of([*PEOPLE, *(f"absent-{number}" for number in range(4))])


def divided(folder: Path, *, roster: Roster | None = None, **keys: Any) -> list[set[str]]:
    (private, _), public, test = sets._divided(section(**keys), Volumes.decathlon, folder, 0, roster)
    return [set(part.patients) for part in (private, public, test)]


def test_who_is_in_which_part_depends_on_nobody_s_presence(tmp_path: Path) -> None:
    parts = divided(scans(tmp_path / "a", PEOPLE), roster=ROSTER)
    private, public, test = parts
    everyone = scans(tmp_path / "all", ROSTER.ids.tolist())
    whole = divided(everyone, roster=ROSTER)
    assert [len(part) for part in whole] == [11, 3, 2]
    assert all(few == part - {name for name in part if name.startswith("absent")} for few, part in zip(parts, whole, strict=True))
    here, _, _ = sets._divided(section(), Volumes.decathlon, everyone, 0, ROSTER)
    kept = here[0].private(roster=here[1])
    assert (kept.places, here[1].ids.tolist()) == (11, [name for name in ROSTER.ids.tolist() if name in whole[0]])
    for number, one in enumerate(sorted(private)):
        others = [name for name in PEOPLE if name != one] + ["zz-stranger"] * (number % 2)
        (volumes, roster), again, tested = sets._divided(
            section(), Volumes.decathlon, scans(tmp_path / f"b{number}", others), 0, ROSTER
        )
        assert [set(volumes.patients), set(again.patients), set(tested.patients)] == [private - {one}, public, test]
        assert roster is not None
        assert roster.sha256 == here[1].sha256  # the places stay, and with them the shards


def test_the_rule_before_lets_one_newcomer_move_others() -> None:
    """Broken twin: those who are there are drawn in the order of a hash. A private person who comes pushes others out."""

    def before(names: list[str]) -> list[set[str]]:
        order = sorted(names, key=lambda name: hashlib.sha256(f"0|{name}".encode()).digest())
        return [set(order[5:]), set(order[2:5]), set(order[:2])]

    old, moved = before(PEOPLE), 0
    for number in range(50):
        new = before([*PEOPLE, f"new-{number}"])
        moved += any(was - now for was, now in zip(old, new, strict=True))
    assert moved > 5


def test_counts_without_a_roster_are_refused_from_the_recipe_alone() -> None:
    for keys in ({"public_directory": None}, {"public_directory": "p", "private": 4}):
        with pytest.raises(RecipeError, match=r"`data\.roster` must be given where private people are drawn by counts"):
            sets._check_folders(section(public_data=None, roster=None, **keys))
    sets._check_folders(section(public_data=None, roster=None, public_directory="p"))


@pytest.mark.parametrize("how", ["links", "copies"])
def test_people_of_two_folders_are_refused(tmp_path: Path, how: str) -> None:
    private = scans(tmp_path / "private", PEOPLE)
    public = tmp_path / "public"
    if how == "links":
        public.mkdir()
        for part in ("imagesTr", "labelsTr"):
            (public / part).symlink_to(private / part)
    else:
        shutil.copytree(private, public)
    with pytest.raises(DataError, match="must hold different people"):
        divided(private, public_directory=str(public))


def test_people_of_pool_and_test_are_refused(tmp_path: Path) -> None:
    private, public = scans(tmp_path / "private", PEOPLE[:4]), scans(tmp_path / "public", PEOPLE[4:8])
    test = scans(tmp_path / "test", PEOPLE[7:])
    with pytest.raises(DataError, match="must hold different people"):
        divided(private, public_directory=str(public), test_directory=str(test))
    apart = divided(private, public_directory=str(public), public=None, test=2)
    assert [len(part) for part in apart] == [4, 2, 2]


def emptied(folder: Path, names: Iterable[str]) -> Path:
    for name in names:
        nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4), np.uint8), np.eye(4)), folder / "labelsTr" / f"{name}.nii.gz")
    return folder


def test_a_test_set_without_any_object_is_refused_before_private_scans_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, told = scans(tmp_path / "people", PEOPLE), section(set="hippocampus", silhouettes=None, public_data=True)
    roster = Roster.of(PEOPLE)
    private, public, test = divided(folder, roster=roster)
    assert (
        len(sets.load(told, emptied(folder, private | public), seed=0, roster=roster)[2]) == 2
    )  # they may be empty: nobody looks
    one, *_ = test
    assert len(sets.load(told, emptied(folder, [one]), seed=0, roster=roster)[2]) == 2  # and so may some of the test
    monkeypatch.setattr(Volumes, "private", lambda *_, **__: pytest.fail("private scans were read"))
    with pytest.raises(DataError, match=r"`test` must hold an object in one mask at least\. Got 2 empty.*`data.size`"):
        sets.load(told, emptied(folder, test), seed=0, roster=roster)
