"""People with several scans: one person is on one side of every division, in one shard, and one unit of ε."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("nibabel")

from tutelage.data.sources import MissingFiles
from tutelage.reproduction import compression, curves, pools, scans, segmentation, studies
from tutelage.reproduction.findings import Finding
from tutelage.reproduction.pools import Bench
from tutelage.reproduction.scans import Scans

PEOPLE, SIDE = 24, 8  # of `hippocampi`


@pytest.fixture
def data(hippocampi: Path) -> Path:
    return hippocampi


@pytest.fixture(autouse=True)
def small_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "CROP", (SIDE,) * 3)


def bench(data: Path, out: Path, **choices: bool) -> Bench:
    return Bench(out=out, data=data, device="cpu", scale=0.002, **choices)


def test_every_division_keeps_a_person_whole(data: Path, tmp_path: Path) -> None:
    found = bench(data, tmp_path).patients
    assert len(found.everyone) == 2 * PEOPLE
    assert len(np.unique(found.patients)) == PEOPLE
    for parts in (pools.KNOWN, pools.THIRDS, found.parts):
        pieces = found.split(parts)
        assert sorted(np.concatenate(pieces)) == list(range(2 * PEOPLE))
        people = [{*found.patients[piece]} for piece in pieces]
        assert all(people)
        assert not any(one & other for one, other in combinations(people, 2))
        assert all(len(piece) == 2 * len(who) for piece, who in zip(pieces, people, strict=True))  # both sides of each


def test_the_private_part_is_sharded_and_priced_by_person(data: Path, tmp_path: Path) -> None:
    study = studies.tumours(bench(data, tmp_path))
    private = study.private
    people = len(np.unique(private.units))
    assert (len(private), private.unit) == (2 * people, "patient")
    assert study.columns[-1].teachers == people  # a teacher per person, not per scan
    for column in study.columns:
        homes = [{*private.units[shard]} for shard in private.split(column.teachers).indices]
        assert sum(map(len, homes)) == people
    assert f"{people} private patients" in study.remarks[0]
    assert studies._many(private) == people // 4
    assert study.direct.rate == 1.0  # and every person once in every step of the baselines


def test_a_codec_is_tried_on_other_people(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[np.ndarray]] = []
    real = Scans.split
    monkeypatch.setattr(Scans, "split", lambda self, parts, **given: seen.append(found := real(self, parts, **given)) or found)
    one = bench(data, tmp_path, public_data=True)
    known, fresh = one.masks_of("hippocampus", (4, 4), (4, 4))
    who = one.patients.patients
    assert [len(known), len(fresh)] == [len(piece) for piece in seen[-1]]
    assert not {*who[seen[-1][0]]} & {*who[seen[-1][1]]}
    pool, test, shapes = one.lessons("hippocampus", 10**9)
    assert sorted(map(len, (shapes, pool, test))) == sorted(map(len, seen[-1]))
    assert len(pool) + len(test) + len(shapes) == 2 * PEOPLE


# ── 000 Figs 1 to 3 on volumes alone ──────────────────────────────────────────────────────────────────────────────────


def made(name: str, one: Bench) -> Finding:
    (item,) = segmentation.chosen((name,))
    return segmentation.reproduce(item, one)


@pytest.mark.parametrize("name", ["theorem-4", "components", "naive", "students", "compression"])
def test_figures_are_made_of_volumes_where_there_are_no_scenes(name: str, data: Path, tmp_path: Path) -> None:
    found = made(name, bench(data, tmp_path, public_data=True))
    assert not found.missing
    assert all(table.title.startswith("hippocampus") for table in found.tables)
    assert all("hippocampus" in (tmp_path / name / picture).read_text(encoding="utf-8") for picture in found.pictures)
    assert [check.claim.partition(":")[0] for check in found.checks if not check.holds] == []
    assert "volumes" in " ".join(found.remarks).lower() or name not in ("theorem-4", "components")


def test_volumes_of_a_folder_are_not_measured_without_noise_unless_they_are_published(data: Path, tmp_path: Path) -> None:
    for name in ("theorem-4", "components", "naive", "students", "compression"):
        missing = made(name, bench(data, tmp_path)).missing
        assert missing.startswith("`data` must hold sisi/raw_images")
        assert "--public-data" in missing
    with pytest.raises(MissingFiles):
        _ = bench(data, tmp_path).sets
    assert bench(data, tmp_path, public_data=True).sets == ("hippocampus",)
    assert bench(data, tmp_path, small=True).sets == ("scenes",)
    assert bench(data, tmp_path, small=True, public_data=True).sets == ("scenes", "hippocampus")


def test_counts_of_answers_end_with_all_there_are() -> None:
    assert curves._counts(2048) == [32, 128, 512, 2048]
    assert curves._counts(100) == [25, 100]
    assert curves._counts(5) == [5]


def test_the_noise_on_pixels_behind_components_does_not_depend_on_their_number(tmp_path: Path) -> None:
    """What the remark under 002 Fig. 4.1 says: l·σ² = d/4, a deviation of a half on the average pixel."""
    one = Bench(out=tmp_path, small=True, scale=0.1)
    public, fresh = one.drawn((4000, 0), (8000, 0))
    codecs = compression.linears("PCA", public, [4, 16, 64])
    for kept, codec in codecs.items():
        noise = 0.5 * np.sqrt(fresh[0].size / kept)
        off = compression.behind(codec, fresh, noise, 3) - compression.behind(codec, fresh, 0.0, 3)
        assert np.sqrt(np.square(off).mean()) == pytest.approx(0.5, rel=0.05)
