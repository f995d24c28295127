"""A run says which data it is about, and lets no hash of private records out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.walk.tiny import forged

from tutelage.claims import check_data
from tutelage.data.digits import digits
from tutelage.data.provenance import fingerprint
from tutelage.privacy.errors import LedgerError
from tutelage.recipes.run import embedded, gathered
from tutelage.transfer import Outcome
from tutelage.verification import verify


def test_the_guarantee_and_the_page_name_the_data(outcomes: Callable[[str], Outcome]) -> None:
    outcome = outcomes("digits")
    private, public, test = digits(seed=0)
    told = json.loads(outcome.folder.guarantee.read_text(encoding="utf-8"))["data"]
    assert told == outcome.guarantee["data"]
    assert told == {
        "set": "digits", "split": None, "published": True, "hashes": {"public": public.sha256, "test": test.sha256},
    }  # fmt: skip
    page = outcome.folder.report.read_text(encoding="utf-8")
    assert public.sha256 in page
    assert test.sha256 in page
    inside = json.loads(outcome.folder.inside_data.read_text(encoding="utf-8"))
    assert inside["private"] == fingerprint(private)
    assert outcome.folder.inside_data.stat().st_mode & 0o077 == 0
    for file in outcome.folder.release.rglob("*"):
        assert file.is_dir() or inside["private"].encode() not in file.read_bytes(), file
    assert verify(outcome.folder).against_private_book


def test_other_data_than_the_plans_is_refused(outcomes: Callable[[str], Outcome], tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="must be what the book noted when the run started"):
        verify(forged(outcomes("digits").folder.release, tmp_path / "copy", data=None))


@pytest.mark.parametrize(
    ("told", "moved"),
    [
        ({"alignment": "alignment-0123456789ab.npz"}, {}),
        ({}, {"moved": "0" * 64}),
        ({"alignment": "../alignment-0123456789ab.npz"}, {"moved": "0" * 64}),
        ({"alignment": "0" * 64}, {"moved": "0" * 64}),
        ({"alignment": 7}, {"moved": "0" * 64}),
    ],
)
def test_an_alignment_is_a_file_of_the_release_with_its_outcome(told: Any, moved: Any, tmp_path: Path) -> None:
    whole = {"set": "brats", "split": None, "published": False, "hashes": {"public": "1" * 64, **moved}, **told}
    with pytest.raises(LedgerError, match=r"`data\.alignment` must name the file"):
        check_data(whole, tmp_path, frozenset())


@pytest.mark.parametrize(
    "data",
    [
        {"set": "digits", "split": None, "published": True, "hashes": {"private": "0" * 64}},
        {"set": "digits", "split": None, "published": True, "hashes": {}, "files": {"train.bin": "0" * 64}},
        {"set": "brats", "split": None, "published": False, "hashes": {"split": "0" * 64}},
    ],
)
def test_a_release_with_another_hash_is_refused(data: Any, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="`data` must"):
        check_data(data, tmp_path, frozenset())


def test_a_file_set_gives_its_split_and_its_files_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tutelage.data import presets

    private, public, test = digits()
    hashes = {"train.bin": "11" * 32, "split": "22" * 32}
    study = presets.Study(private, public, test, 10, "mnist", "votes", hashes)
    monkeypatch.setattr(presets, "load", lambda *_, **__: study)
    *_, origin = gathered(embedded("pate/mnist-lnmax-100"), tmp_path)
    assert (origin.told()["set"], origin.told()["split"]) == ("mnist", "votes")
    assert origin.told()["hashes"]["split"] == "22" * 32
    assert "11" * 32 not in json.dumps(origin.told())
    assert origin.inside(private)["files"] == hashes
