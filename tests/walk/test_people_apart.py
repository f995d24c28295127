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
        "set": "hippocampus",
        "declared": None,
        "channels": None,
        "spacing": None,
        "intensity": None,
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


@pytest.mark.parametrize("how", ["a name", "a list", "a link", "a mask"])
def test_a_private_scan_of_somebody_public_is_left_out_and_stops_nothing(tmp_path: Path, how: str) -> None:
    """The rule before refused the run: one private person decided it, by a name or a link."""
    private, public = scans(tmp_path / "private", PEOPLE[:4]), scans(tmp_path / "public", PEOPLE[4:])
    if how == "a list":
        listed = [*(f"{name},{name}" for name in PEOPLE[1:4]), f"{PEOPLE[0]},{PEOPLE[5]}"]
        (private / "patients.csv").write_text("\n".join(listed))
    for part in ("imagesTr", "labelsTr") if how == "a name" else ():
        (private / part / f"{PEOPLE[0]}.nii.gz").rename(private / part / f"{PEOPLE[5]}.nii.gz")
    if how in ("a link", "a mask"):
        place = Path("imagesTr" if how == "a link" else "labelsTr") / f"{PEOPLE[0]}.nii.gz"
        (private / place).unlink()
        (private / place).symlink_to(public / place.with_name(f"{PEOPLE[5]}.nii.gz"))
    keys = {"public_directory": str(public)}
    (found, _), *_ = sets._divided(section(**keys), Volumes.decathlon, private, 0, None)
    assert found.patients.tolist() == PEOPLE[1:4]
    number = 4 if how == "a name" else 1
    said = " ".join(found.private(channels=1).notes)
    assert f"left out, of a file or a patient's name that is public: scans {number}" in said
    assert "person" not in said
    assert divided(private, **keys)[1:] == divided(scans(tmp_path / "others", []), **keys)[1:]


def test_a_scan_of_the_pool_that_a_private_person_claims_too_stays_public(tmp_path: Path) -> None:
    folder, roster = scans(tmp_path / "all", PEOPLE), Roster.of(PEOPLE)
    private, public, test = divided(folder, roster=roster)
    one, asked = sorted(private)[0], sorted(public)[0]
    lines = [f"{name},{name}" for name in PEOPLE if name != one]
    (folder / "patients.csv").write_text("\n".join([*lines, f"{asked},{one}"]))
    assert divided(folder, roster=roster) == [private - {one}, public, test]


def test_nobody_private_is_no_reason_to_stop(tmp_path: Path) -> None:
    none, public = scans(tmp_path / "private", []), scans(tmp_path / "public", PEOPLE)
    given = section(set="nifti", silhouettes=None, public_directory=str(public), public_data=None)
    private, asked, tested = sets.load(given, none, seed=0)
    assert (private.inputs.shape, len(asked), len(tested)) == ((0, 1, 4, 4, 4), 3, 2)


def test_a_public_folder_that_leads_into_the_private_one_is_refused(tmp_path: Path) -> None:
    private, public = scans(tmp_path / "private", PEOPLE), tmp_path / "public"
    public.mkdir()
    for part in ("imagesTr", "labelsTr"):
        (public / part).symlink_to(private / part)
    with pytest.raises(DataError, match=r"must not lead into `data\.directory`"):
        divided(private, public_directory=str(public))


@pytest.mark.parametrize("how", ["links", "copies"])
def test_people_of_two_public_folders_are_refused(tmp_path: Path, how: str) -> None:
    private, public = scans(tmp_path / "private", PEOPLE[:4]), scans(tmp_path / "public", PEOPLE[4:])
    test = tmp_path / "test"
    if how == "links":
        test.mkdir()
        for part in ("imagesTr", "labelsTr"):
            (test / part).symlink_to(public / part)
    else:
        shutil.copytree(public, test)
    with pytest.raises(DataError, match="must hold different people"):
        divided(private, public_directory=str(public), test_directory=str(test))


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
