"""Who of a folder is public: told by the seed and each one's own name, and never somebody who is private elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel")

from tutelage.data.volumes import Volumes  # noqa: E402
from tutelage.privacy.errors import DataError  # noqa: E402
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


def divided(folder: Path, **keys: Any) -> list[set[str]]:
    return [set(part.patients) for part in sets._divided(section(**keys), Volumes.decathlon, folder, 0)]


PEOPLE = [f"person-{number}" for number in range(12)]


def test_another_private_name_moves_nobody_else(tmp_path: Path) -> None:
    private, public, test = divided(scans(tmp_path / "a", PEOPLE))
    assert (len(private), len(public), len(test)) == (7, 3, 2)
    assert len(private | public | test) == 12
    for number, one in enumerate(sorted(private)):
        others = [name if name != one else "zz-other" for name in PEOPLE]
        again = divided(scans(tmp_path / f"b{number}", others))
        if "zz-other" in again[0]:  # who is new may be drawn for the public parts: that is a fact about themselves
            assert again[1:] == [public, test]


def test_a_permutation_of_ranks_would_be_seen(tmp_path: Path) -> None:
    def ranked(names: list[str]) -> set[str]:
        return set(np.asarray(sorted(names))[np.random.default_rng(0).permutation(len(names))][7:10])

    changed = ["zz-other", *PEOPLE[1:]]
    assert ranked(PEOPLE) - {PEOPLE[0]} != ranked(changed) - {"zz-other"}  # the twin: one name, and others change sides


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
    private, public, test = divided(folder)
    assert len(sets.load(told, emptied(folder, private | public), seed=0)[2]) == 2  # they may be empty: nobody looks
    one, *_ = test
    assert len(sets.load(told, emptied(folder, [one]), seed=0)[2]) == 2  # and so may some of the test
    monkeypatch.setattr(Volumes, "private", lambda *_, **__: pytest.fail("private scans were read"))
    with pytest.raises(DataError, match=r"`test` must hold an object in one mask at least\. Got 2 empty.*`data.size`"):
        sets.load(told, emptied(folder, test), seed=0)
