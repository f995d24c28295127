"""Attacks on matrices against the formulas of the papers' own code, written out a second time."""

import numpy as np
import pytest
from scipy import stats

from tutelage.audits import lira, rmia, scores, volumes
from tutelage.privacy.errors import DataError, RecipeError

MODELS, RECORDS = 16, 200


@pytest.fixture(scope="module")
def game() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of the right class, with membership in exactly half of the models worth something; and the labels' side."""
    rng = np.random.default_rng(0)
    inside = np.argsort(rng.random((MODELS, RECORDS)), axis=0) < MODELS // 2
    logits = rng.normal(0, 2, RECORDS) + rng.normal(0, 1, (MODELS, RECORDS)) + 1.5 * inside
    return 1 / (1 + np.exp(-logits)), inside, logits


def reference_lira(target: np.ndarray, keep: np.ndarray, many: np.ndarray, *, fixed: bool, offline: bool) -> np.ndarray:
    """mi_lira_2021/plot.py, `generate_ours` and `generate_ours_offline`: lower is a member."""
    sides = [[many[keep[:, j] == side, j] for j in range(many.shape[1])] for side in (True, False)]
    inner, outer = (np.array([x[: min(map(len, side))] for x in side]) for side in sides)
    spread_in = np.std(inner) if fixed else np.std(inner, 1)
    spread_out = spread_in if fixed else np.std(outer, 1)
    if offline:
        return stats.norm.logpdf(target, np.median(outer, 1), (np.std(outer) if fixed else np.std(outer, 1)) + 1e-30)
    likely = -stats.norm.logpdf(target, np.median(inner, 1), spread_in + 1e-30)
    return likely + stats.norm.logpdf(target, np.median(outer, 1), spread_out + 1e-30)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_lira_ranks_as_the_authors_code(game: tuple[np.ndarray, ...], mode: lira.Mode, fixed: bool) -> None:
    _, inside, logits = game
    ours = lira.lira(logits[0], logits[1:], inside[1:], mode=mode, fixed=fixed)
    theirs = -reference_lira(logits[0], inside[1:], logits[1:], fixed=fixed, offline=mode == "offline")
    assert stats.spearmanr(ours, theirs).statistic == pytest.approx(1.0, abs=1e-12)
    if not (fixed and mode == "online"):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_rmia_ranks_as_the_authors_code(game: tuple[np.ndarray, ...]) -> None:
    """privacy-meter, modules/mia/attacks/rmia.py, `run_rmia`: here every record is out of half of the models."""
    likely, inside, _ = game
    rng = np.random.default_rng(1)
    rest = rng.uniform(0.2, 0.9, (MODELS, 500))
    slope, half = 0.3, (MODELS - 2) // 2
    models, within, others = likely[2:], inside[2:], rest[2:]
    out = -np.sort(-(models * ~within).T, axis=1)[:, :half]
    all_out = -np.sort(-others.T, axis=1)
    ratio = likely[0] / ((1 + slope) / 2 * out.mean(1) + (1 - slope) / 2)
    other = rest[0] / ((1 + slope) / 2 * all_out.mean(1) + (1 - slope) / 2)
    theirs = np.average(ratio[:, None] / other > 1.0, axis=1)
    ours = rmia.rmia(likely[0], models, within, rest[0], others, slope=slope)
    balanced = (~within).sum(axis=0) == half  # elsewhere theirs divides by another number of models
    assert balanced.sum() > 30
    np.testing.assert_array_equal(ours[balanced], theirs[balanced])
    assert stats.spearmanr(ours[balanced], theirs[balanced]).statistic == pytest.approx(1.0)


def short_of_one(models: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """A broken twin of leave-one-out: it lets the target's own side be one model short."""
    left = range(len(models))
    rest = [np.arange(len(models)) != k for k in left]
    return np.stack([-reference_lira(models[k], inside[rest[k]], models[rest[k]], fixed=False, offline=False) for k in left])


@pytest.mark.parametrize("attack", ["lira", "lira fixed", "rmia", "twin"])
def test_a_score_without_membership_is_chance(attack: str) -> None:
    """No sign of membership may come from how many models are left on each side."""
    rng, found = np.random.default_rng(5), []
    for _ in range(60 if attack == "twin" else 200):
        inside = np.argsort(rng.random((8, 20)), axis=0) < 4
        likely = rng.uniform(0.01, 0.99, (8, 20))
        logits = np.log(likely / (1 - likely))
        if attack == "twin":
            # Per record, as in the full game: its models on one side are three where the target is there, and four elsewhere.
            given = np.concatenate([short_of_one(logits[:, [j]], inside[:, [j]]) for j in range(20)], axis=1)
        elif attack == "rmia":
            given = rmia.leave_one_out(likely, inside, rng.uniform(0.01, 0.99, (8, 50)))
        else:
            given = lira.leave_one_out(logits, inside, fixed=attack == "lira fixed")
        found.append(stats.mannwhitneyu(given[inside], given[~inside]).statistic / inside.sum() / (~inside).sum())
    off = abs(np.mean(found) - 0.5) / (np.std(found) / np.sqrt(len(found)))
    assert (off > 6) if attack == "twin" else (off < 4)


@pytest.mark.parametrize("attack", ["lira", "rmia"])
def test_membership_is_found(game: tuple[np.ndarray, ...], attack: str) -> None:
    likely, inside, logits = game
    if attack == "lira":
        given = lira.leave_one_out(logits, inside)
    else:
        given = rmia.leave_one_out(likely, inside, np.random.default_rng(0).uniform(0.01, 0.99, (MODELS, 300)))
    assert stats.mannwhitneyu(given[inside], given[~inside]).pvalue < 1e-9


def test_the_scaled_logit_is_exact_where_a_model_is_sure() -> None:
    sure = np.array([[1.0 - 1e-15, 1e-15], [1.0, 0.0], [0.0, 1.0]])
    found = scores.logit(sure, np.zeros(3, dtype=int))
    assert found[0] == pytest.approx(np.log(1e15), rel=1e-6)
    assert found[1] == -found[2] > 100
    assert np.isfinite(found).all()


def test_thresholds_have_their_papers_order() -> None:
    given = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [1 / 3, 1 / 3, 1 / 3]])
    labels = np.zeros(3, dtype=int)
    entropy = scores.entropy(given, labels)
    assert entropy[0] == pytest.approx(entropy[1])
    assert entropy[0] > entropy[2]
    changed = scores.modified_entropy(given, labels)
    assert changed[0] > changed[2] > changed[1]  # sure and wrong is the farthest from a member
    by_hand = (1 - 0.05) * np.log(0.05) + 0.9 * np.log(1 - 0.9) + 0.05 * np.log(1 - 0.05)
    assert changed[1] == pytest.approx(by_hand)
    np.testing.assert_allclose(scores.loss(given, labels), np.log(scores.confidence(given, labels)))


def test_signals_of_volumes_are_higher_where_a_volume_was_learned() -> None:
    rng = np.random.default_rng(2)
    masks = np.zeros((6, 8, 8, 8), dtype=bool)
    masks[:, 2:6, 2:6, 2:6] = True
    hard = rng.uniform(0.5, 2, 6)  # some volumes are hard for every model

    def said(by: int, learned: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng(by).normal(0, 0.3, masks.shape)
        size = (4 / hard + learned)[:, None, None, None]
        return 1 / (1 + np.exp(-(np.where(masks, size, -size) + noise)))

    inside = np.argsort(rng.random((10, 6)), axis=0) < 5
    models = np.stack([volumes.signals(said(k, inside[k]), masks) for k in range(10)])
    target = volumes.signals(said(99, np.array([True, False] * 3)), masks)
    assert target.shape == (6, len(volumes.SIGNALS))
    ours = volumes.calibrated(target, models, inside)
    assert (ours[::2].min(axis=0) > ours[1::2].max(axis=0)).all()
    assert not (target[::2].min(axis=0) > target[1::2].max(axis=0)).all()  # without calibration the hard ones hide them
    perfect = volumes.signals(masks[:1].astype(float), masks[:1])[0]
    assert perfect[1] == pytest.approx(1.0, abs=1e-5)


def test_what_cannot_be_attacked_is_refused(game: tuple[np.ndarray, ...]) -> None:
    likely, inside, logits = game
    with pytest.raises(DataError, match="finite"):
        lira.lira(np.where(np.arange(RECORDS), logits[0], np.nan), logits[1:], inside[1:])
    with pytest.raises(DataError, match="every record in at least one model"):
        lira.lira(logits[0], logits, np.ones_like(inside))
    with pytest.raises(RecipeError, match="'online' or 'offline'"):
        lira.lira(logits[0], logits[1:], inside[1:], mode="other")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="out of at least one model"):
        rmia.rmia(likely[0], likely[1:], np.ones_like(inside[1:]), likely[0], likely[1:])
    with pytest.raises(DataError, match="Got 1 of 2 records"):
        scores.loss([[0.5, 0.5], [np.nan, 0.5]], [0, 0])
    with pytest.raises(DataError, match="from 0 to 1"):
        scores.loss([[0.5, 0.5]], [2])
