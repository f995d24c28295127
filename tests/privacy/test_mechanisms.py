"""The one file that draws noise: its samplers have the distribution they claim, and its mechanisms do what their events say."""

import itertools
import math
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from scipy import special, stats

from tutelage.privacy import mechanisms, noise
from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant, Simplex
from tutelage.privacy.errors import DataError, RecipeError
from tutelage.privacy.events import Gaussian, Laplace, NoisyMax, SmoothRelease, SparseVector, Threshold
from tutelage.privacy.mechanisms import (
    AboveThreshold,
    GNMax,
    LaplaceMean,
    LNMax,
    NoisyMean,
    SmoothNumber,
    ThresholdTest,
    rounded_gaussian,
    rounded_laplace,
)
from tutelage.privacy.sealed import Sealed
from tutelage.privacy.units import Adjacency, Unit

ALARM = 1e-7  # of a fit test: one false alarm in ten million runs
SAMPLERS = {"gaussian": rounded_gaussian, "laplace": rounded_laplace}
CDF: dict[str, Callable[..., Any]] = {
    "gaussian": lambda x, scale: special.ndtr(np.asarray(x) / scale),
    "laplace": lambda x, scale: stats.laplace.cdf(np.asarray(x), scale=scale),
}
TAIL: dict[str, Callable[..., Any]] = {
    "gaussian": lambda scale: lambda m, edge: m.erfc(edge / (m.mpf(scale) * m.sqrt(2))),
    "laplace": lambda scale: lambda m, edge: m.exp(-edge / m.mpf(scale)),
}


def onehot(labels: Any, classes: int) -> Sealed:
    return Sealed(np.eye(classes)[np.asarray(labels)])


# ── the samplers' distribution ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("scale", [0.2, 0.7, 1.0, 3.5])
def test_small_scales_have_the_exact_cell_probabilities(kind: str, scale: float) -> None:
    size = 400_000
    drawn = SAMPLERS[kind](scale, size)
    reach = 0
    while 1 - CDF[kind](reach + 0.5, scale) > 20 / size:
        reach += 1
    edges = np.arange(-reach, reach) + 0.5  # cells ≤ -reach, …, ≥ reach
    expected = size * np.diff(np.concatenate([[0.0], CDF[kind](edges, scale), [1.0]]))
    observed = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)
    assert observed.sum() == size
    assert stats.chisquare(observed, expected).pvalue > ALARM


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("scale", [2.0**20, 1.7 * 2.0**20, 2.0**30])
def test_large_scales_follow_the_continuous_law(kind: str, scale: float) -> None:
    drawn = SAMPLERS[kind](scale, 200_000 if scale < 2**30 else 4_000)
    assert stats.kstest(drawn, lambda x: CDF[kind](x, scale)).pvalue > ALARM
    uniform = CDF[kind](drawn, scale)
    counts = np.bincount((uniform * 100).astype(int), minlength=100)
    assert stats.chisquare(counts).pvalue > ALARM
    assert np.bincount(drawn & 3, minlength=4).min() > 0.75 * drawn.size / 4  # every integer is reached, not only even ones


@pytest.mark.parametrize("kind", SAMPLERS)
def test_tails_are_as_heavy_as_they_must_be(kind: str) -> None:
    size, scale = 1_000_000, 50.0
    drawn = np.abs(SAMPLERS[kind](scale, size))
    for edge in (3.5, 4.0, 4.5) if kind == "gaussian" else (6.0, 8.0, 10.0):
        cut = math.ceil(edge * scale) - 0.5
        chance = 2 * (1 - CDF[kind](cut, scale))
        low, high = stats.binom.ppf([ALARM, 1 - ALARM], size, chance)
        assert low <= (drawn > cut).sum() <= high


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_sign_is_fair_and_says_nothing_about_the_size(kind: str) -> None:
    drawn = SAMPLERS[kind](1000.0, 400_000)
    drawn = drawn[drawn != 0]
    assert stats.binomtest(int((drawn > 0).sum()), drawn.size).pvalue > ALARM
    assert stats.ks_2samp(drawn[drawn > 0], -drawn[drawn < 0]).pvalue > ALARM


@pytest.mark.parametrize("kind", SAMPLERS)
def test_draws_are_independent(kind: str) -> None:
    drawn = SAMPLERS[kind](1000.0, (2, 200_000)).astype(float)
    spread = 5.5 / math.sqrt(drawn.shape[1])
    assert abs(np.corrcoef(drawn)[0, 1]) < spread
    assert abs(np.corrcoef(drawn[0, 1:], drawn[0, :-1])[0, 1]) < spread
    assert not np.array_equal(drawn[0], drawn[1])


# ── the samplers' exactness ───────────────────────────────────────────────────────────────────────────────────────────


class Words:
    """Stand in for the operating system's generator: given words first, then real ones."""

    def __init__(self, *words: int) -> None:
        self.words: Iterator[int] = iter(words)
        self.extra = 0

    def __call__(self, size: int) -> bytes:
        given = list(itertools.islice(self.words, size // 8))
        self.extra += size // 8 - len(given)
        return np.array(given, dtype=np.uint64).tobytes() + real_urandom(size - 8 * len(given))


real_urandom = os.urandom


def inverted(kind: str, scale: float, uniform: Any) -> Any:
    """The magnitude whose tail is `uniform`, to 60 digits."""
    if kind == "gaussian":
        return mp.mpf(scale) * mp.sqrt(2) * mp.erfinv(1 - uniform)
    return -mp.mpf(scale) * mp.log(uniform)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("scale", [0.7, 1.0, 3.5, 1000.0, 2.0**20 * 1.3, 2.0**37])
def test_every_draw_is_the_exact_inversion(kind: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the fast and the slow path, word by word against 60 digits."""
    words = [int.from_bytes(real_urandom(8), "big") for _ in range(120)]
    monkeypatch.setattr(noise.os, "urandom", Words(*words))
    drawn = SAMPLERS[kind](scale, len(words))
    with mp.workdps(60):
        for word, number in zip(words, drawn.tolist(), strict=True):
            exact = inverted(kind, scale, (mp.mpf(word >> 1) + mp.mpf("0.5")) / mp.mpf(2) ** 63)
            assert abs(number) == int(mp.floor(exact + mp.mpf("0.5")))
            assert number == 0 or (number < 0) == bool(word & 1)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("scale", [0.7, 3.5, 40.0])
def test_the_slow_path_alone_is_right(kind: str, scale: float) -> None:
    """Every draw is sent to it, whatever the float says, from a wrong first guess."""
    tail, size = TAIL[kind](scale), 200
    words = np.frombuffer(real_urandom(8 * size), dtype=np.uint64) >> np.uint64(1)
    fast = np.floor((-special.ndtri(words * 2.0**-64) if kind == "gaussian" else -np.log(words * 2.0**-63)) * scale + 0.5)
    for offset in (-2, 0, 3):
        guesses = np.maximum(fast.astype(int) + offset, 0)
        slow = [noise._exact_magnitude(int(w), int(g), tail) for w, g in zip(words, guesses, strict=True)]
        assert slow == fast.astype(int).tolist()


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("scale", [0.7, 40.0, 2.0**20])
def test_words_beside_a_rounding_edge_fall_on_the_right_side(kind: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of 2^-63 that holds an edge is split by further bits; its neighbours are not, and differ by one."""
    edges = [0.5, 1.5, math.floor(scale) + 0.5, math.floor(3 * scale) + 0.5]
    for edge in edges:
        with mp.workdps(60):
            uniform = TAIL[kind](scale)(mp, mp.mpf(edge))
            word = int(mp.floor(uniform * mp.mpf(2) ** 63))
            rest = uniform * mp.mpf(2) ** 63 - word  # where in the interval the edge lies
        below, above = math.floor(edge), math.ceil(edge)
        source = Words((word - 1) << 1, (word + 1) << 1)
        monkeypatch.setattr(noise.os, "urandom", source)
        assert SAMPLERS[kind](scale, 2).tolist() == [above, below]
        assert source.extra == 0
        for further in (0, 2**64 - 1):
            source = Words(word << 1, int.from_bytes(further.to_bytes(8, "big"), "little"))
            monkeypatch.setattr(noise.os, "urandom", source)
            assert SAMPLERS[kind](scale, 1).tolist() == [above if further / 2**64 < rest else below]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_extreme_words(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise.os, "urandom", Words(2**64 - 1, 2**64 - 2))  # the largest uniform: no noise at all
    assert SAMPLERS[kind](3.5, 2).tolist() == [0, 0]
    for sign in (0, 1):
        monkeypatch.setattr(noise.os, "urandom", Words(sign))  # the smallest: beyond 63 bits, hence further ones
        drawn = int(SAMPLERS[kind](3.5, 1)[0])
        with mp.workdps(60):
            assert abs(drawn) >= int(inverted(kind, 3.5, mp.mpf(2) ** -63))
        assert (drawn < 0) == bool(sign)


def test_noise_beyond_what_63_bits_reach_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise.os, "urandom", Words(0, 0, 1 << 63))  # U below 2^-127: further than any float sampler goes
    assert int(rounded_laplace(1.0, 1)[0]) > 88


def test_the_slow_path_is_taken_as_rarely_as_the_docstring_says(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, exact = [], noise._exact_magnitude
    monkeypatch.setattr(noise, "_exact_magnitude", lambda *given: taken.append(1) or exact(*given))
    rounded_gaussian(2.0**20, 1_000_000)
    assert 1 <= len(taken) < 120
    taken.clear()
    rounded_laplace(2.0**37, 50)
    assert len(taken) == 50


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, "much", None, [], 2.0**46 * 1.01])
def test_a_scale_is_refused(sampler: Callable[..., Any], scale: Any) -> None:
    with pytest.raises(RecipeError, match="`scale` must be"):
        sampler(scale, 3)


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_shapes(sampler: Callable[..., Any]) -> None:
    for shape, expected in ((5, (5,)), ((2, 3, 4), (2, 3, 4)), ((), ()), (0, (0,)), ((3, 0), (3, 0))):
        drawn = sampler(10.0, shape)
        assert drawn.shape == expected
        assert drawn.dtype == np.int64


def test_blocks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [int.from_bytes(real_urandom(8), "big") for _ in range(23)]
    monkeypatch.setattr(noise.os, "urandom", Words(*words))
    whole = rounded_gaussian(100.0, (23,))
    monkeypatch.setattr(noise, "_BLOCK", 7)
    monkeypatch.setattr(noise.os, "urandom", Words(*words))
    assert np.array_equal(rounded_gaussian(100.0, (23,)), whole)


# ── every mechanism ───────────────────────────────────────────────────────────────────────────────────────────────────

VECTORS = [Ball(3, 2.0), Orthant(3, 2.0), Cube(3, 0.5), Simplex(3), Binary(3), OneHot(3)]


def votes_mechanisms() -> list[Any]:
    return [GNMax(3, 1e-3), LNMax(3, 1e3), ThresholdTest(3, 2.5, 1e-3)]


def vector_mechanisms(bound: Bound) -> list[Any]:
    return [NoisyMean(bound, 1e-4, 4), LaplaceMean(bound, 1e-4, 4), AboveThreshold(bound, 0.25, 1e5, 1e5, 2, 4)]


ALL = [*votes_mechanisms(), *vector_mechanisms(Ball(3, 2.0))]


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize(
    "shape",
    [(4,), (4, 2), (4, 2, 2), (4, 2, 4), (4, 2, 3, 1), (), (0, 2, 3)],
    ids=lambda shape: "x".join(map(str, shape)) or "scalar",
)
def test_a_wrong_shape_is_refused(mechanism: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="`ballots` must"):
        mechanism.contribute(Sealed(np.ones(shape)))


@pytest.mark.parametrize(
    "mechanism",
    [GNMax(3, 1.0, teachers=4), LNMax(3, 1.0, teachers=4), ThresholdTest(3, 1.0, 1.0, teachers=4), *vector_mechanisms(Cube(3))],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("teachers", [1, 3, 5])
def test_ballots_come_from_as_many_teachers_as_were_promised(mechanism: Any, teachers: int) -> None:
    with pytest.raises(DataError, match=rf"must come from 4 teachers\. Got {teachers} instead"):
        mechanism.contribute(Sealed(np.ones((teachers, 2, 3))))


@pytest.mark.parametrize("mechanism", votes_mechanisms(), ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -7770123.0])
def test_what_is_not_a_vote_is_refused_and_not_quoted(mechanism: Any, bad: float) -> None:
    ballots = np.tile(np.eye(3)[0], (4, 2, 1))
    ballots[1, 1, 2] = bad
    with pytest.raises(DataError, match=r"must be finite votes ≥ 0.*withheld") as caught:
        mechanism.contribute(Sealed(ballots))
    assert "7770123" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("mechanism", votes_mechanisms(), ids=lambda m: type(m).__name__)
def test_a_ballot_for_nobody_is_refused(mechanism: Any) -> None:
    ballots = np.tile(np.eye(3)[0], (4, 2, 1))
    ballots[3, 0] = 0
    with pytest.raises(DataError, match="each for one class"):
        mechanism.contribute(Sealed(ballots))


@pytest.mark.parametrize("mechanism", [*ALL, SmoothNumber(0.1, 1.0)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("kind", ["U", "O", "c"])
def test_what_is_not_a_number_is_refused_and_not_quoted(mechanism: Any, kind: str) -> None:
    ballots = np.full((2,) if isinstance(mechanism, SmoothNumber) else (4, 2, 3), "7770123").astype(
        {"U": "U9", "O": object, "c": complex}[kind]
    )
    with pytest.raises(DataError, match="must be real numbers") as caught:
        mechanism.contribute(Sealed(ballots))
    assert "7770123" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float16, np.float32])
def test_any_real_type_will_do(kind: type) -> None:
    ballots = Sealed(np.tile(np.eye(3)[2], (4, 5, 1)).astype(kind))
    assert GNMax(3, 1e-3).contribute(ballots).tolist() == [2] * 5
    assert NoisyMean(Cube(3), 1e-6, 4).contribute(ballots) == pytest.approx(np.tile(np.eye(3)[2], (5, 1)), abs=1e-4)


@pytest.mark.parametrize("bad", [0, 0.0, -1.0, math.nan, math.inf, 2.0**46, 2.0**-46, "40", None, True, np.array([1.0, 2.0])])
@pytest.mark.parametrize(
    "make",
    [
        lambda s: GNMax(3, s),
        lambda s: LNMax(3, s),
        lambda s: ThresholdTest(3, 1.0, s),
        lambda s: ThresholdTest(3, s, 1.0),
        lambda s: NoisyMean(Ball(3), s, 4),
        lambda s: NoisyMean(Ball(3), 1.0, s),
        lambda s: LaplaceMean(Ball(3), s, 4),
        lambda s: LaplaceMean(Ball(3), 1.0, s),
        lambda s: AboveThreshold(Ball(3), 1.0, 1.0, 1.0, 1, s),
        lambda s: SmoothNumber(s, 1.0),
        lambda s: SmoothNumber(0.1, s),
    ],
)
def test_noise_that_is_no_noise_is_refused_when_the_mechanism_is_made(make: Callable[[Any], Any], bad: Any) -> None:
    with pytest.raises(RecipeError, match=r"must be a finite number > 0.*Got"):
        make(bad)


@pytest.mark.parametrize(
    ("name", "bad"), [("epsilon_threshold", 0.0), ("epsilon_answers", math.nan), ("answers", 0), ("answers", 1.5)]
)
def test_sparse_vector_parameters_are_refused(name: str, bad: Any) -> None:
    good: dict[str, Any] = {"epsilon_threshold": 1.0, "epsilon_answers": 1.0, "answers": 2}
    with pytest.raises(RecipeError, match=f"`{name}` of SparseVector"):
        AboveThreshold(Cube(3), 0.5, **{**good, name: bad}, teachers=4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_a_threshold_off_the_grid_is_refused(bad: float) -> None:
    with pytest.raises(RecipeError, match="`threshold` must be finite and fit"):
        AboveThreshold(Cube(3), bad, 1.0, 1.0, 1, 4)


@pytest.mark.parametrize("make", [lambda c: GNMax(c, 1.0), lambda c: LNMax(c, 1.0), lambda c: ThresholdTest(c, 1.0, 1.0)])
@pytest.mark.parametrize("classes", [0, -3, 2.5, None])
def test_classes_are_counted(make: Callable[[Any], Any], classes: Any) -> None:
    with pytest.raises(RecipeError, match="`dimension` must be a whole number"):
        make(classes)


def test_noise_too_small_for_the_grid_is_refused_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sealed, "_open", lambda self, key: pytest.fail("opened"))
    for mechanism in (
        NoisyMean(Cube(2, 1e12), 1e-6, 3),
        LaplaceMean(Cube(2, 1e12), 1e-6, 3),
        AboveThreshold(Cube(2), 1e-9, 2.0**44, 2.0**44, 1, 3),
    ):
        with pytest.raises(RecipeError, match="3 ballots overflow 64 bits"):
            mechanism.contribute(Sealed(np.full((3, 1, 2), 1e12)))


# ── what they release ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "mechanism", [GNMax(4, 0.05), LNMax(4, 20.0), GNMax(4, 0.05, teachers=9)], ids=lambda m: type(m).__name__
)
def test_noisy_max_names_the_class_with_most_votes(mechanism: Any) -> None:
    labels = np.array([[0, 1, 2, 3]] * 5 + [[1, 2, 3, 0]] * 4)
    assert mechanism.contribute(onehot(labels, 4)).tolist() == [0, 1, 2, 3]
    assert mechanism.contribute(onehot(labels[:, :0], 4)).shape == (0,)


@pytest.mark.parametrize("mechanism", [GNMax(2, 10.0), LNMax(2, 0.1)], ids=lambda m: type(m).__name__)
def test_noisy_max_errs_as_often_as_its_noise_says(mechanism: Any) -> None:
    size, gap = 200_000, 10
    ballots = np.zeros((14, size, 2))
    ballots[:12, :, 0], ballots[12:, :, 1] = 1, 1
    wrong = int((mechanism.contribute(Sealed(ballots)) == 1).sum())
    if isinstance(mechanism, GNMax):
        chance = special.ndtr(-gap / (10.0 * math.sqrt(2)))
    else:
        chance = (2 + 0.1 * gap) / (4 * math.exp(0.1 * gap))
    assert stats.binomtest(wrong, size, chance).pvalue > ALARM


def test_a_ballot_is_one_vote_however_loud() -> None:
    ballots = np.tile(np.eye(3)[0], (5, 3, 1))
    ballots[0] = [0.0, 1e9, 1.0]
    assert GNMax(3, 0.01).contribute(Sealed(ballots)).tolist() == [0, 0, 0]
    assert ThresholdTest(3, 3.5, 0.01).contribute(Sealed(ballots)).tolist() == [True] * 3
    assert ThresholdTest(3, 4.5, 0.01).contribute(Sealed(ballots)).tolist() == [False] * 3


@pytest.mark.parametrize("threshold", [2.0, 3.0, 2.5, math.pi])
def test_the_threshold_test_passes_as_often_as_its_noise_says(threshold: float) -> None:
    size, sigma = 200_000, 1.5
    labels = np.zeros((4, size), dtype=int)
    labels[3] = 1
    test = ThresholdTest(2, threshold, sigma)
    passed = int(test.contribute(onehot(labels, 2)).sum())
    assert stats.binomtest(passed, size, special.ndtr((3 - test.effective_threshold) / sigma)).pvalue > ALARM
    assert abs(test.effective_threshold - threshold) <= sigma * 2.0**-20


def test_the_interactive_test_counts_what_the_student_does_not_expect() -> None:
    labels = np.zeros((10, 3), dtype=int)
    test = ThresholdTest(2, 5.0, 0.01, beyond_student=True)
    baseline = [[1.0, 0.0], [0.3, 0.7], [0.0, 1.0]]  # 10 votes for class 0, less 10, 3 and 0 expected
    assert test.contribute(onehot(labels, 2), baseline=baseline).tolist() == [False, True, True]


@pytest.mark.parametrize(
    "baseline",
    [
        [[0.5, 0.5]],
        [[0.5, 0.5, 0.0]] * 3,
        [[0.5, math.nan]] * 3,
        [[0.5, math.inf]] * 3,
        [[0.5, -0.1]] * 3,
        [[0.5, 1.1]] * 3,
        [[-(2.0**62), 2.0**61]] * 3,
        [["a", "b"]] * 3,
        0.5,
    ],
)
def test_a_baseline_is_shares(baseline: Any) -> None:
    test = ThresholdTest(2, 5.0, 1.0, beyond_student=True)
    with pytest.raises(DataError, match=r"`baseline` must hold shares in \[0, 1\] of shape \(3, 2\)"):
        test.contribute(onehot(np.zeros((4, 3), dtype=int), 2), baseline=baseline)


def test_a_baseline_stands_with_the_interactive_test_alone() -> None:
    ballots = onehot(np.zeros((4, 1), dtype=int), 2)
    for test, baseline in ((ThresholdTest(2, 1.0, 1.0), [[0.5, 0.5]]), (ThresholdTest(2, 1.0, 1.0, beyond_student=True), None)):
        with pytest.raises(RecipeError, match="`baseline` must be given exactly when"):
            test.contribute(ballots, baseline=baseline)


@pytest.mark.parametrize("bound", VECTORS, ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("make", [NoisyMean, LaplaceMean])
def test_the_mean_is_the_mean_of_clipped_ballots(make: Any, bound: Bound) -> None:
    ballots = np.random.default_rng(3).normal(0, 3, (4, 50, 3))
    mechanism = make(bound, 1e-3, 4)
    assert mechanism.contribute(Sealed(ballots)) == pytest.approx(bound.clip(ballots).mean(axis=0), abs=0.02)


@pytest.mark.parametrize("bound", VECTORS, ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("make", [NoisyMean, LaplaceMean])
@pytest.mark.parametrize("wild", [1e300, -1e300, math.nan, math.inf, -math.inf, "mixed"])
def test_a_wild_ballot_moves_the_sum_by_the_diameter_at_most(make: Any, bound: Bound, wild: Any) -> None:
    calm = np.random.default_rng(4).normal(0, 1, (4, 20, 3))
    other = calm.copy()
    other[2] = (
        np.random.default_rng(5).choice([math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0], (20, 3)) if wild == "mixed" else wild
    )
    mechanism = make(bound, 1e-5, 4)
    before, after = mechanism.contribute(Sealed(calm)), mechanism.contribute(Sealed(other))
    assert np.isfinite(after).all()
    assert (np.linalg.norm(4 * (after - before), axis=1) <= bound.diameter() + 1e-3).all()
    assert (np.abs(4 * (after - before)).sum(axis=1) <= bound.diameter(1) + 1e-3).all()


@pytest.mark.parametrize("bound", [Ball(5, 0.7), Orthant(5), OneHot(5)], ids=repr)
def test_ballots_are_summed_some_at_a_time_and_none_is_left_out(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    ballots = np.random.default_rng(0).normal(size=(103, 2, 5))
    ballots[7], ballots[50, 0, 1], ballots[102, 1] = np.nan, np.inf, 1e200
    one_by_one = sum(np.trunc(bound.clip(ballot) / 2.0**-12).astype(np.int64) for ballot in ballots)
    for block in (1, 10, 35, 70, 1 << 20):  # teachers, sevens of them, and everybody at once
        monkeypatch.setattr(mechanisms, "_BLOCK", block)
        assert np.array_equal(mechanisms._grid_sum(ballots, bound, 2.0**-12), one_by_one)


@pytest.mark.parametrize(
    ("mechanism", "law", "scale"),
    [
        (NoisyMean(Cube(2), 0.5, 5), "gaussian", 0.5),
        (NoisyMean(Cube(2), 3e7, 5), "gaussian", 3e7),
        (LaplaceMean(Cube(2), 0.5, 5), "laplace", 0.5),
    ],
)
def test_the_noise_on_the_sum_is_what_the_event_says(mechanism: Any, law: str, scale: float) -> None:
    released = 5 * mechanism.contribute(Sealed(np.full((5, 100_000, 2), 0.25))) - 1.25
    assert stats.kstest(released[:, 0], lambda x: CDF[law](x, scale)).pvalue > ALARM
    assert stats.kstest(released[:, 1], lambda x: CDF[law](x, scale)).pvalue > ALARM
    assert abs(np.corrcoef(released.T)[0, 1]) < 0.02


@pytest.mark.parametrize("make", [NoisyMean, LaplaceMean])
def test_released_means_lie_on_a_grid_that_no_data_moves(make: Any) -> None:
    for sigma in (0.3, 1.0, 70.0):
        step = mechanisms._step(sigma)
        released = make(Cube(1), sigma, 8).contribute(Sealed(np.random.default_rng(1).normal(0, 0.3, (8, 1000, 1))))
        assert (released * 8 / step == np.rint(released * 8 / step)).all()
        assert sigma * 2.0**-21 < step <= sigma * 2.0**-20


def test_whole_votes_stay_whole_on_every_grid() -> None:
    assert mechanisms._step(2.0**40) == 1.0
    for sigma in (2.0**-40, 0.3, 1.0, 2.0**22, 2.0**45):
        assert (1 / mechanisms._step(sigma)).is_integer()


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("unit", [Unit(), Unit("patient", 3)])
def test_events_say_what_was_done(unit: Unit) -> None:
    m = unit.teachers
    assert GNMax(5, 40, unit).event() == NoisyMax("gaussian", 40.0, m)
    assert LNMax(5, 0.05, unit).event() == NoisyMax("laplace", 20.0, m)
    assert ThresholdTest(5, 3.0, 7, unit=unit).event() == Threshold(7.0, m)
    assert AboveThreshold(Cube(3), 0.5, 0.25, 2, 3, 4, unit).event() == SparseVector(0.25, 2.0, 3)
    assert SmoothNumber(0.25, 3).event() == SmoothRelease(0.25, 3.0)


@pytest.mark.parametrize(
    "bound", [Ball(3, 2.0), Orthant(3, 2.0), Cube(3, 0.5), Simplex(3), Binary(3), OneHot(3)], ids=lambda b: type(b).__name__
)
@pytest.mark.parametrize(("unit", "adjacency"), [(Unit(), "replace-one"), (Unit("institution", 2), "add-remove")])
def test_events_hold_the_bounds_sensitivity(bound: Bound, unit: Unit, adjacency: str) -> None:
    how = Adjacency(adjacency)
    gaussian = NoisyMean(bound, 2.0, 4, adjacency=how, unit=unit).event()
    laplace = LaplaceMean(bound, 2.0, 4, adjacency=how, unit=unit).event()
    assert isinstance(gaussian, Gaussian)
    assert isinstance(laplace, Laplace)
    for charged, true in (
        (gaussian.sensitivity, bound.sensitivity(how, unit=unit)),
        (laplace.sensitivity, bound.sensitivity(how, unit=unit, norm=1)),
    ):
        assert true <= charged <= true * (1 + 1e-7)
        assert (charged == true) is isinstance(bound, (OneHot, Binary))
    assert (gaussian.sigma, laplace.scale) == (2.0, 2.0)


@pytest.mark.parametrize("make", [NoisyMean, LaplaceMean])
def test_a_mean_that_says_nothing_is_refused(make: Any) -> None:
    with pytest.raises(RecipeError, match="`sensitivity`"):
        make(Simplex(1), 1.0, 4)
    with pytest.raises(RecipeError, match="`adjacency` must be 'replace-one'"):
        make(Ball(2), 1.0, 4, adjacency=Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("bound", [Ball(4, 1.0), Orthant(4, 1.0), Cube(4, 0.3), Simplex(4)], ids=lambda b: type(b).__name__)
def test_the_grid_never_adds_to_what_is_charged(bound: Bound) -> None:
    """Ballots on the set's rim, cut to the grid: no two sums differ by more than the event says."""
    rng, step = np.random.default_rng(6), mechanisms._step(1.0)
    ballots = bound.clip(rng.normal(0, 1, (400, 4)) * 10.0 ** rng.integers(-3, 9, (400, 1)))
    on_grid = np.stack([mechanisms._grid_sum(ballot[None, None], bound, step)[0] for ballot in ballots]) * step
    apart = on_grid[:, None] - on_grid[None]
    event = NoisyMean(bound, 1.0, 1).event()
    assert isinstance(event, Gaussian)
    assert np.linalg.norm(apart, axis=-1).max() <= event.sensitivity


# ── shares ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parts_of_several_parties_add_up_to_the_promised_noise() -> None:
    mechanism, rng = NoisyMean(Cube(2), 2.0, 9), np.random.default_rng(7)
    ballots = np.repeat(rng.uniform(-1, 1, (9, 1, 2)), 60_000, axis=1)
    parts = [
        mechanism.contribute(Sealed(ballots[part]), share=share)
        for part, share in ((slice(0, 2), 0.2), (slice(2, 5), 0.3), (slice(5, 9), 0.5))
    ]
    assert all(part.dtype == np.int64 for part in parts)
    noise = (mechanism.combine(parts) - ballots.mean(axis=0)) * 9
    assert stats.kstest(noise[:, 0], lambda x: special.ndtr(x / 2.0)).pvalue > ALARM
    for part, share, these in zip(parts, (0.2, 0.3, 0.5), (ballots[:2], ballots[2:5], ballots[5:]), strict=True):
        own = part * mechanisms._step(2.0) - these.sum(axis=0)
        assert own.std() == pytest.approx(2.0 * math.sqrt(share), rel=0.02)


def test_parts_of_votes_add_up_to_the_promised_label() -> None:
    mechanism = GNMax(2, 4.0, teachers=10)
    votes = np.zeros((10, 100_000), dtype=int)
    votes[7:] = 1  # 7 against 3
    parts = [mechanism.contribute(onehot(votes[part], 2), share=0.5) for part in (slice(0, 5), slice(5, 10))]
    wrong = int((mechanism.combine(parts) == 1).sum())
    assert stats.binomtest(wrong, 100_000, special.ndtr(-4 / (4 * math.sqrt(2)))).pvalue > ALARM


@pytest.mark.parametrize("share", [0, -0.5, 1.5, math.nan, "half", None])
@pytest.mark.parametrize("mechanism", [GNMax(3, 1.0), NoisyMean(Ball(3), 1.0, 4)], ids=lambda m: type(m).__name__)
def test_a_share_is_a_share(mechanism: Any, share: Any) -> None:
    with pytest.raises(RecipeError, match=r"`share` must lie in \(0, 1\]"):
        mechanism.contribute(Sealed(np.ones((4, 2, 3))), share=share)


@pytest.mark.parametrize("mechanism", [GNMax(3, 1.0), NoisyMean(Ball(3), 1.0, 4)], ids=lambda m: type(m).__name__)
def test_a_share_too_small_for_its_proof_is_refused(mechanism: Any) -> None:
    least = (32 * 2.0**-20) ** 2
    mechanism.contribute(Sealed(np.ones((4, 2, 3))), share=least * 1.01)
    with pytest.raises(RecipeError, match="`share` must leave noise of at least 32 grid steps"):
        mechanism.contribute(Sealed(np.ones((4, 2, 3))), share=least * 0.99)


@pytest.mark.parametrize(
    "mechanism",
    [
        LNMax(3, 1.0),
        ThresholdTest(3, 1.0, 1.0),
        LaplaceMean(Ball(3), 1.0, 4),
        AboveThreshold(Ball(3), 0.1, 1.0, 1.0, 1, 4),
        SmoothNumber(0.1, 1.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_what_cannot_be_shared_is_not(mechanism: Any) -> None:
    with pytest.raises(RecipeError, match="`share` must be 1"):
        mechanism.contribute(Sealed(np.ones((2,) if isinstance(mechanism, SmoothNumber) else (4, 2, 3))), share=0.5)


# ── the sparse vector technique ───────────────────────────────────────────────────────────────────────────────────────


def test_sparse_vector_finds_the_large_coordinates() -> None:
    ballots = np.full((50, 20, 12), 0.01)
    ballots[:, :, 3], ballots[:, :, 8] = 0.9, -0.9  # large either way
    found = AboveThreshold(Cube(12), 0.5, 5.0, 5.0, 4, 50).contribute(Sealed(ballots))
    assert found.shape == (20, 12)
    assert found.dtype == bool
    assert (np.flatnonzero(found.mean(axis=0) > 0.8) == [3, 8]).all()


@pytest.mark.parametrize("answers", [1, 2, 5, 600])
def test_sparse_vector_stops_after_its_answers(answers: int) -> None:
    found = AboveThreshold(Cube(9), 0.1, 50.0, 50.0, answers, 40).contribute(Sealed(np.ones((40, 200, 9))))
    assert (found.sum(axis=1) <= answers).all()
    if answers <= 5:
        assert (found.sum(axis=1) == answers).mean() > 0.8
        assert found[:, :answers].mean() > 0.8  # the first ones, in order


def test_sparse_vector_draws_one_threshold_per_query_and_one_noise_per_coordinate() -> None:
    size, epsilon = 100_000, 1.0
    mechanism = AboveThreshold(Cube(1), 0.5, epsilon, epsilon, 1, 4)
    passed = int(mechanism.contribute(Sealed(np.full((4, size, 1), 0.5))).sum())  # exactly at the threshold: one half
    assert stats.binomtest(passed, size, 0.5).pvalue > ALARM
    noise = stats.laplace.rvs(scale=4.0, size=400_000, random_state=1) - stats.laplace.rvs(
        scale=2.0, size=400_000, random_state=2
    )
    chance = float((noise >= 2.0).mean())  # Δ = 2: scales 2/ε and 2·1·2/ε
    passed = int(mechanism.contribute(Sealed(np.zeros((4, size, 1)))).sum())
    assert abs(passed / size - chance) < 6 * math.sqrt(chance * (1 - chance) * (1 / size + 1 / 400_000))


# ── the smooth release ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("number", "smooth"), [(0.5, 0.1), (0.0, 0.0), (3.0, 2e4), (1e4, 1e-3)])
def test_the_smooth_release_has_the_noise_of_its_sensitivity(number: float, smooth: float) -> None:
    mechanism, step = SmoothNumber(0.01, 2.0), 2.0**-20
    released = np.array([mechanism.contribute(Sealed([number, smooth])) for _ in range(3_000)])
    scale = 2.0 * (smooth + step)
    if smooth:
        assert stats.kstest(released, lambda x: special.ndtr((x - number) / scale)).pvalue > ALARM
    else:
        assert released.std() == pytest.approx(scale, rel=0.1)
    assert (released / step == np.rint(released / step)).all()


def test_the_smooth_release_cuts_at_a_public_ceiling() -> None:
    mechanism = SmoothNumber(0.01, 8.0)
    ceiling = 2.0**24 / 8.0
    assert float(mechanism.contribute(Sealed([1e300, 0.0]))) == pytest.approx(ceiling, abs=0.1)
    released = np.array([mechanism.contribute(Sealed([0.0, 1e300])) for _ in range(1_000)])
    assert released.std() == pytest.approx(8.0 * ceiling, rel=0.15)


@pytest.mark.parametrize(
    "pair", [[7770123.0, -1.0], [-7770123.0, 1.0], [math.nan, 7770123.0], [7770123.0, math.nan], [7770123.0, math.inf]]
)
def test_a_number_that_is_none_is_refused_and_not_quoted(pair: list[float]) -> None:
    with pytest.raises(DataError, match="withheld") as caught:
        SmoothNumber(0.1, 1.0).contribute(Sealed(pair))
    assert "7770123" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), ()])
def test_a_smooth_release_takes_a_pair(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"`ballots` must be a sealed \(number, smooth sensitivity\)"):
        SmoothNumber(0.1, 1.0).contribute(Sealed(np.ones(shape)))


# ── no seed ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_seed_reaches_the_noise() -> None:
    drawn = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        drawn.append(rounded_gaussian(2.0**20, 50))
    assert not np.array_equal(*drawn)
