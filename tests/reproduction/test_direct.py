"""The baselines beside a table's honest columns: at the column's price, by person, and not trained twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")

from tutelage.data.dataset import Private, Public
from tutelage.privacy.events import Gaussian
from tutelage.privacy.ledger import Budget
from tutelage.privacy.units import Roster, Unit
from tutelage.reproduction import direct, stages, studies
from tutelage.reproduction.direct import Direct
from tutelage.reproduction.pools import Bench
from tutelage.runs import RunFolder
from tutelage.tasks.masks.task import saw_masks

QUICK = Direct(widths=(4, 8), steps=2, rounds=2, chunk=8)
BUDGET = Budget(3.0, 1e-5, Unit("patient"))


@pytest.fixture(scope="module")
def pairs() -> tuple[Private, Public]:
    """Give twelve people's two images each, and others to test on."""
    rng = np.random.default_rng(0)
    masks = (rng.random((30, 8, 8)) > 0.6).astype(np.uint8)
    images = (masks[:, None] + 0.1 * rng.standard_normal((30, 1, 8, 8))).astype(np.float32)
    people = np.repeat(np.arange(12), 2)
    private = Private.of(images[:24], masks[:24], units=people, unit="patient", roster=Roster.places(12))
    return private, Public.of(images[24:], masks[24:])


def trained(kept: Path, pairs: tuple[Private, Public], purpose: str = "this") -> dict[str, float]:
    given: dict[str, Any] = {"device": "cpu", "seed": 0, "say": lambda *_: None}
    return direct.trained(QUICK, *pairs, BUDGET, kept=kept, purpose=purpose, **given)


def test_both_keep_the_price_and_are_not_trained_again(
    pairs: tuple[Private, Public], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "baselines" / "3.json"
    found = trained(kept, pairs)
    for name in direct.BASELINES:
        assert 0 <= found[name] <= 1
        assert found[f"{name}: ε"] == pytest.approx(3.0, rel=1e-6)
        assert found[f"{name}: ε"] <= 3.0
    monkeypatch.setattr(direct, "_one", lambda name, *_: {name: 0.5})
    assert trained(kept, pairs) == found
    assert trained(kept, pairs, "another")[direct.DESCENT] == 0.5  # other settings are trained for
    kept.write_text("{", encoding="utf-8")  # killed while it wrote
    assert trained(kept, pairs)[direct.FEDERATION] == 0.5


def test_one_that_was_trained_before_a_kill_is_kept(
    pairs: tuple[Private, Public], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "3.json"
    kept.write_text(json.dumps({"purpose": "this", "found": {direct.DESCENT: 0.25}}), encoding="utf-8")
    monkeypatch.setattr(direct, "_one", lambda name, *_: {name: 0.5})
    assert trained(kept, pairs) == {direct.DESCENT: 0.25, direct.FEDERATION: 0.5}


def test_without_opacus_there_is_no_descent(
    pairs: tuple[Private, Public], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(direct, "_one", lambda name, *_: {name: 0.5})
    assert trained(tmp_path / "3.json", pairs) == {direct.FEDERATION: 0.5}


def test_people_are_counted_once(pairs: tuple[Private, Public]) -> None:
    plan = QUICK.descent((1, 8, 8), BUDGET, device="cpu", seed=0)
    event = plan.event(12)
    assert isinstance(event, Gaussian)
    assert event.sigma == plan.event(24).sigma  # on the sum of clipped gradients: the number of people is not in it
    assert QUICK.federation((1, 8, 8), BUDGET, device="cpu", seed=0).mechanism(10, 12, BUDGET).teachers == 12


def test_full_size_baselines_take_a_secret_share_of_the_scenes(tmp_path: Path) -> None:
    how = studies._trainings(Bench(out=tmp_path), "scenes")["direct"]
    assert round(131_072 * how.rate) == 2048
    assert round(131_072 * how.clients) == 1024
    volumes = studies._trainings(Bench(out=tmp_path), "volumes", 32 * 48 * 32)["direct"]
    assert (volumes.rate, volumes.clients) == (1.0, 1.0)
    assert studies._trainings(Bench(out=tmp_path), "volumes", 80 * 96 * 76)["direct"].chunk < volumes.chunk


def test_a_baseline_that_wins_is_named(tmp_path: Path) -> None:
    study = studies.tumours(Bench(out=tmp_path, small=True, scale=0.02, device="cpu"))
    papers, honest, ours = study.columns
    study = replace(study, columns=(papers, honest, ours))
    found: list[dict[str, Any]] = [
        {"private student": [0.5]},
        {"private student": [0.4], direct.DESCENT: [0.6], direct.FEDERATION: [0.5]},
        {"private student": [0.7], direct.DESCENT: [0.6], direct.FEDERATION: [0.5]},
    ]
    assert stages._beaten(study, found) == f"DP-SGD (0.600), noisy FedAvg (0.500) over the student's 0.400 in «{honest.title}»"
    assert stages._beaten(study, [{}, {}, {}]) == ""


@pytest.mark.parametrize(
    "control", ["public masks alone (ε = 0)", "mean shape, as the student's label", "public only, no answers (ε = 0)"]
)
def test_a_control_that_wins_is_named_also_at_the_papers_noise(control: str, tmp_path: Path) -> None:
    study = studies.tumours(Bench(out=tmp_path, small=True, scale=0.02, device="cpu"))
    told = stages._beaten(study, [{"private student": [0.5], f"control: {control}": [0.8]}, {}, {}])
    assert told.endswith(f" (0.800) over the student's 0.500 in «{study.columns[0].title}»")


def test_a_clip_that_was_learned_from_public_masks_says_so(tmp_path: Path) -> None:
    """BraTS has no clip from the literature. The twin, without provenance, would leave out what those masks alone teach."""
    bench = Bench(out=tmp_path, small=True, scale=0.02, device="cpu")
    study = studies.tumours(bench)
    column = replace(study.columns[-1], codec="flips")
    for norm in (None, 5.0):
        made = stages._codec(bench, replace(study, norm=norm), column, 0.0, RunFolder(tmp_path))
        assert saw_masks(made) == (norm is None)


def test_the_papers_columns_have_the_papers_networks(tmp_path: Path) -> None:
    bench = Bench(out=tmp_path, small=True, scale=0.02, device="cpu")
    study = replace(studies.thesis(bench), network=studies.THESIS)
    papers, honest, ours = study.columns
    assert study.factory(papers) is study.factory(honest) is studies.THESIS
    assert study.factory(ours) != studies.THESIS
    told = studies._lasted(studies._trainings(Bench(out=tmp_path), "scenes"), 8192)
    assert f"{studies.TEACHING:,} batches of 32" in told
    assert f"{studies.TEACHING * 32 / 8192:.0f} times through" in told
