"""Masks and public statistics over hospitals: the same messages, other contributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.federation.consortia import Consortium

from tutelage.federation.codes import MaskCodec, MomentCodec
from tutelage.federation.consortium import furnish, init
from tutelage.federation.coordinator import Coordinator
from tutelage.federation.hospital import open_site
from tutelage.federation.policy import read_policy
from tutelage.federation.study import NOTHING, budget_of
from tutelage.privacy.errors import Error, FederationError
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.queries import Form, Query
from tutelage.verification import verify

PLACES = 40


def about(root: Path, sites: int, trust: Any, codec: Any, kind: str, teachers: int, queries: int) -> Consortium:
    """Set up hospitals that are asked for something else than votes."""
    names = [f"hospital-{number + 1}" for number in range(sites)]
    init(root, names)
    furnish(root, names, trust=trust, teachers=teachers, queries=queries)
    made = Consortium(root, names)
    text = (root / "coordinator" / "study.toml").read_text(encoding="utf-8")
    old = text[text.index("[codec]") : text.index("[promise]")]
    fields = "".join(
        f"{name} = {list(value) if isinstance(value, tuple) else repr(value)}\n" for name, value in codec.model_dump().items()
    )
    made.rewrite("coordinator/study.toml", (old, f"[codec]\n{fields}\n".replace("'", '"')))
    for name in names:
        before = read_policy(root / name / "policy.toml")
        made.rewrite(
            f"{name}/policy.toml",
            (f'kind = "{before.teachers.kind}"', f'kind = "{kind}"'),
            (before.allow.tasks[0], codec.task),
            (before.allow.codecs[0], codec.key),
        )
    return made


def opened(made: Consortium) -> Consortium:
    made.sites = {place: open_site(made.root / name / "policy.toml") for place, name in enumerate(made.names)}
    return made


# ── statistics ────────────────────────────────────────────────────────────────────────────────────────────────────────

MOMENTS = MomentCodec(kind="class-moments", classes=10, width=64, norm=20.0)


@pytest.mark.parametrize("trust", ["coordinator", "nobody"])
def test_class_moments_are_what_the_records_say_within_the_noise(tmp_path: Path, trust: str) -> None:
    made = opened(about(tmp_path / "federation", 4, trust, MOMENTS, "class-moments", PLACES, 1))
    prepared = made.prepared()
    with Ledger(tmp_path / "study.sqlite", budget_of(prepared.terms)) as ledger:
        oracle = Coordinator(prepared.terms, prepared.key, made.transport(), ledger)
        query = Query.statistic(Form.GROUPED, MOMENTS.model_dump(mode="json"))
        released = oracle.ask(query)
        assert oracle.known(query)
        with pytest.raises(FederationError, match="must ask for the statistic that the study names"):
            oracle.ask(Query.statistic(Form.GROUPED, {"kind": "another"}))
        noise = oracle.noise
    expected = np.zeros((10, 65))
    for name in made.names:
        with np.load(made.root / name / "data" / "records.npz") as file:
            for image, label in zip(file["inputs"], file["targets"], strict=True):
                expected[label] += [1, *image.reshape(-1)]
    expected /= PLACES * 4
    assert noise is not None
    error = released.values[0] - expected
    assert released.values.shape == (1, 10, 65)
    assert np.abs(error).max() < 5.5 * noise  # nothing is longer than the clip here
    assert 0.9 * noise < error.std() < 1.1 * noise
    assert made.charged(0, "patient") == 1


def test_a_place_that_is_too_long_is_clipped(tmp_path: Path) -> None:
    """One patient's records move the sum by the clip, whatever they hold: also a billion, and what is no number."""
    made = about(tmp_path / "federation", 4, "nobody", MOMENTS, "class-moments", PLACES, 1)
    path = made.root / "hospital-1" / "data" / "records.npz"
    with np.load(path) as file:
        arrays = dict(file)
    wild = arrays["inputs"].copy()
    wild[0], wild[1] = 1e9, np.nan
    np.savez(path, **{**arrays, "inputs": wild})
    released = []
    opened(made)
    prepared = made.prepared()
    with Ledger(tmp_path / "study.sqlite", budget_of(prepared.terms)) as ledger:
        oracle = Coordinator(prepared.terms, prepared.key, made.transport(), ledger)
        released.append(oracle.ask(Query.statistic(Form.GROUPED, MOMENTS.model_dump(mode="json"))).values)
    assert np.isfinite(released[0]).all()
    assert np.abs(released[0]).max() * PLACES * 4 < 1000 * 8 + 10 * prepared.terms.sigma * 2**0.5


def test_a_statistic_is_asked_once(tmp_path: Path) -> None:
    made = about(tmp_path / "federation", 4, "nobody", MOMENTS, "class-moments", PLACES, 2)
    with pytest.raises(Error, match="`queries` must be 1 for a statistic"):
        made.prepared()
    assert NOTHING.shape == (1, 1)


# ── masks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

SIZE, TEACHERS, MASKS = 16, 2, 24
MASK_CODEC = MaskCodec(kind="dct", shape=(SIZE, SIZE), kept=40, norm=8.0)


def scenes(made: Consortium) -> Consortium:
    """Put drawn scenes in place of digits, at every hospital and in the public pool."""
    from tutelage.data.scenes import Scenes

    drawing = Scenes(size=SIZE, target="cat")
    for place, name in enumerate(made.names):
        images, masks = drawing.draw(48, seed=place + 1)
        path = made.root / name / "data" / "records.npz"
        np.savez(path, inputs=images, targets=masks, patients=np.array([f"p{number}" for number in range(48)]))
    images, masks = drawing.draw(MASKS, seed=100)
    test_images, test_masks = drawing.draw(20, seed=101)
    path = made.root / "coordinator" / "public.npz"
    np.savez(path, inputs=images, targets=masks, test_inputs=test_images, test_targets=test_masks)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["coordinator", "nobody"])
def test_masks_of_hospitals_are_released_and_a_student_learns_them(tmp_path: Path, trust: str) -> None:
    pytest.importorskip("torch")
    made = scenes(about(tmp_path / "federation", 4, trust, MASK_CODEC, "unet", TEACHERS, MASKS))
    for name in made.names:
        made.rewrite(f"{name}/policy.toml", (f"count = {TEACHERS} ", f"steps = 40\ncount = {TEACHERS} "))
    made.rewrite(
        "coordinator/study.toml",
        ('learner = "spreading"\nkind = "kernel"', 'learner = "masks"\nsteps = 40'),
        ("epsilon = 8.0", "epsilon = 2000.0"),
    )
    for name in made.names:
        made.rewrite(f"{name}/policy.toml", ("epsilon = 8.0", "epsilon = 2001.0"), ("epsilon = 32.0", "epsilon = 9000.0"))
    opened(made)
    finished = made.run()
    assert finished.answered == made.names
    verify(made.root / "run")
    assert "private student" in finished.scores
    # What was released is the mean of all hospitals' codes, within the noise.
    prepared, codec = made.prepared(), MASK_CODEC.build()
    votes = [site.teachers.vote(prepared.asked)._Sealed__value for site in made.sites.values()]
    expected = codec.bound.clip(np.concatenate([codec.encode(one) for one in votes])).mean(axis=0)
    with Ledger(made.root / "run" / "private" / "book.sqlite") as ledger:
        oracle = Coordinator(prepared.terms, prepared.key, made.transport(), ledger)
        codes, noise = oracle.ask(Query.inputs(prepared.asked)).codes, oracle.noise
    assert noise is not None
    assert 0.8 * noise < np.std(codes - expected) < 1.2 * noise
