"""Conversations: charged once, before the first round; a crash wastes rounds and hides none."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.codecs.directions import Directions
from tutelage.privacy import accounting, curator, noise, rounds
from tutelage.privacy.budget import Budget
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import BudgetExceeded, DataError, RecipeError
from tutelage.privacy.events import Gaussian, Reserved, Sampled, from_record, to_record
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import NoisyMean, NoisySum
from tutelage.privacy.queries import Form, Query
from tutelage.privacy.sealed import _KEY, Sealed
from tutelage.privacy.sums import Block

WIDTH, TEACHERS, DELTA = 3, 20, 1e-5


def question(value: float = 0.0) -> Query:
    return Query.state(state=np.full(WIDTH, value))


class Pullers:
    """Every teacher pulls a state towards its own corner; asked for one member, that one alone does."""

    key = "pullers"

    def __init__(self) -> None:
        self.asked: list[int | None] = []

    def contributions(self, query: Query, *, member: Sealed | None = None) -> Iterator[Sealed]:
        corners = np.sign(np.random.default_rng(0).normal(size=(TEACHERS, 1, 1, WIDTH))) - query.rows[0]
        if member is not None:
            self.asked.append(int(member._open(_KEY)))
            yield member.map(lambda one: corners[one : one + 1])
            return
        self.asked.append(None)
        for start in range(0, TEACHERS, 7):
            yield Sealed(corners[start : start + 7])


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "book.sqlite", Budget(8.0, DELTA)) as book:
        book.begin("run", plan="plan")
        yield book


def everybody(ledger: Ledger, **more: Any) -> Curator:
    codec = Directions((WIDTH,), 1.0)
    return Curator(more.pop("teachers", None) or Pullers(), codec, NoisyMean(codec.bound, 30.0, TEACHERS), ledger, **more)


def one_drawn(ledger: Ledger, sigma: float = 8.0, **more: Any) -> Curator:
    codec = Directions((WIDTH,), 1.0)
    return Curator(more.pop("teachers", None) or Pullers(), codec, NoisyMean(codec.bound, sigma, 1), ledger, **more)


# ── what is charged ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_rounds_are_charged_before_the_first_and_once(ledger: Ledger) -> None:
    teachers = Pullers()
    talk = everybody(ledger, teachers=teachers).reserve(100, question())
    assert ledger.totals() == [(Gaussian(2.0 * (1 + 2.0**-24), 30.0), 100)]
    assert teachers.asked == []
    rows = ledger.length
    for number in range(100):
        talk.ask(question(number / 100))
    assert talk.left == 0
    assert ledger.length == rows + math.ceil(100 / rounds._AHEAD)  # counters alone
    with pytest.raises(BudgetExceeded, match="among the 100 that were reserved"):
        talk.ask(question())
    assert len(teachers.asked) == 100


def test_more_rounds_than_fit_are_refused_before_anybody_is_asked(ledger: Ledger) -> None:
    teachers = Pullers()
    with pytest.raises(BudgetExceeded):
        everybody(ledger, teachers=teachers).reserve(100_000, question())
    assert teachers.asked == []
    assert not ledger.totals()


def test_the_same_question_in_two_rounds_has_fresh_noise(ledger: Ledger) -> None:
    talk = everybody(ledger).reserve(2, question())
    assert not np.array_equal(talk.ask(question()), talk.ask(question()))


def test_a_round_gives_a_code_that_was_not_decoded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded here and again by who asked, a step of a linear model would be scaled twice."""
    monkeypatch.setattr(Directions, "decode", lambda *_: pytest.fail("decoded"))
    assert everybody(ledger).reserve(1, question()).ask(question()).shape == (WIDTH,)


def test_a_crash_wastes_rounds_and_hides_none(ledger: Ledger, tmp_path: Path) -> None:
    teachers, given = Pullers(), {"private": tmp_path / "private"}
    talk = everybody(ledger, teachers=teachers, **given).reserve(150, question())
    for number in range(70):
        talk.ask(question())
        if number == 40:
            talk.save({"weights": np.arange(3.0), "round": np.asarray(number)})
    charged = ledger.totals()
    again = everybody(ledger, teachers=teachers, **given).reserve(150, question())  # as after a kill
    assert ledger.totals() == charged
    assert again.left == 150 - 2 * rounds._AHEAD <= 150 - 70
    state = again.state()
    assert state is not None
    assert int(state["round"]) == 40
    while again.left:
        again.ask(question())
    assert len(teachers.asked) <= 150


def test_a_twin_that_counts_afterwards_is_caught(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting after a block instead of before it: a kill gives rounds back, and more are answered than were charged."""
    monkeypatch.setattr(ledger, "advance", lambda reservation, *, rounds, ahead: (0, min(ahead, rounds)))
    teachers = Pullers()
    for _ in range(4):  # each ends in a kill
        talk = everybody(ledger, teachers=teachers).reserve(50, question())
        for _ in range(40):
            talk.ask(question())
    assert len(teachers.asked) > 50


def test_two_conversations_of_one_reservation_share_its_rounds(ledger: Ledger, tmp_path: Path) -> None:
    """Each counted for itself, and both were opened before either asked: twice as many rounds were answered as were paid for."""
    teachers = Pullers()
    one, two = (everybody(ledger, teachers=teachers).reserve(100, question()) for _ in range(2))
    with Ledger(ledger.path) as other:  # and a third in another process
        other.begin("run", plan="plan")
        three = everybody(other, teachers=teachers).reserve(100, question())
        for _ in range(100):
            for talk in (one, two, three):
                with contextlib.suppress(BudgetExceeded):
                    talk.ask(question())
    assert len(teachers.asked) == 100
    assert ledger.totals()[0][1] == 100
    assert one.left == two.left == 0


def test_a_conversation_belongs_to_its_run_and_its_settings(ledger: Ledger) -> None:
    everybody(ledger).reserve(10, question()).ask(question())
    assert everybody(ledger).reserve(10, question()).left == 0  # a block was counted ahead
    assert everybody(ledger, salt="another").reserve(10, question()).left == 10
    assert everybody(ledger).reserve(11, question()).left == 11
    assert ledger.totals()[0][1] == 31


def test_a_query_of_another_kind_or_shape_is_refused(ledger: Ledger) -> None:
    talk = everybody(ledger).reserve(10, question())
    for other in (
        Query.state(state=np.zeros(4)),
        Query.inputs(np.zeros((1, WIDTH))),
        Query.state(content={"a": 1}, state=np.zeros(3)),
    ):
        with pytest.raises(RecipeError, match="`query` must have the kind"):
            talk.ask(other)
    assert talk.left == 10


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_rounds_are_a_whole_number(ledger: Ledger, count: Any) -> None:
    with pytest.raises(RecipeError, match="`rounds` must be a whole number"):
        everybody(ledger).reserve(count, question())


def test_a_state_needs_a_folder_and_is_read_as_data(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="`private` must be the curator's folder"):
        everybody(ledger).reserve(10, question()).save({"a": np.zeros(1)})
    talk = everybody(ledger, private=tmp_path / "private").reserve(10, question())
    assert talk.state() is None
    talk.save({"a": np.arange(3)})
    assert talk.state()["a"].tolist() == [0, 1, 2]  # type: ignore[index]
    talk._place.write_bytes(b"damaged")
    with pytest.raises(DataError, match="`state` must be a file that is whole"):
        talk.state()


def test_a_sum_can_be_asked_for_in_rounds(ledger: Ledger) -> None:
    class Residuals:
        key = "residuals"

        def contributions(self, query: Query) -> Iterator[Block]:
            weights = query.arrays["state"]
            for start in range(0, 12, 5):
                places = np.arange(start, min(start + 5, 12))
                left = np.ones((len(places), WIDTH)) - weights
                yield Block(Sealed(places), Sealed(left), right=Sealed(np.ones((len(places), 2))))

    mechanism = NoisySum(Form.OUTER, WIDTH, 1.0, 50.0, 12, right=2)
    template = Query.state(Form.OUTER, state=np.zeros(WIDTH))
    talk = Curator(Residuals(), None, mechanism, ledger).reserve(20, template)
    found = np.mean([talk.ask(template) for _ in range(20)], axis=0)
    assert found.shape == (WIDTH, 2)
    assert abs(found - 12 / math.sqrt(WIDTH * 2)).max() < 5 * 50 / math.sqrt(20)


# ── one teacher drawn in secret ───────────────────────────────────────────────────────────────────────────────────────


def test_sampled_rounds_are_one_fixed_pair(ledger: Ledger) -> None:
    teachers = Pullers()
    talk = one_drawn(ledger, teachers=teachers).reserve(300, question(), population=TEACHERS)
    ((event, count),) = ledger.totals()
    assert isinstance(event, Reserved)
    assert count == 1
    inner = Sampled(Gaussian(2.0 * (1 + 2.0**-24), 8.0), 1 / TEACHERS, "fixed", 1, TEACHERS)
    assert event == Reserved(inner, 300, accounting.cost([(inner, 300)], DELTA).epsilon, DELTA)
    assert ledger.spent().epsilon == pytest.approx(event.epsilon)
    assert event.epsilon < 0.6 * accounting.cost([(inner.event, 300)], DELTA).epsilon  # what the secret draw buys
    for _ in range(300):
        talk.ask(question())
    drawn = np.bincount([member for member in teachers.asked if member is not None], minlength=TEACHERS)
    assert drawn.sum() == 300
    assert drawn.min() >= 1
    assert drawn.max() <= 40


def test_a_reservation_leaves_room_for_what_was_planned_beside_it(tmp_path: Path) -> None:
    with Ledger(tmp_path / "b", Budget(8.0, DELTA)) as ledger:
        ledger.begin("run", plan="plan")
        one_drawn(ledger, 20.0).reserve(50, question(), population=TEACHERS, delta=DELTA / 2)
        ledger.charge(Gaussian(1.0, 5.0))
        spent = ledger.spent()
        alone = accounting.cost([(Gaussian(1.0, 5.0), 1)], DELTA / 2).epsilon
        (reservation,) = [event for event, _ in ledger.totals() if isinstance(event, Reserved)]
        assert alone < spent.epsilon <= reservation.epsilon + alone * 1.2
        ledger.begin("another", plan="plan")
        with pytest.raises(RecipeError, match="one run with one plan"):
            ledger.charge(Gaussian(1.0, 5.0))


def test_a_reservation_that_takes_all_of_delta_leaves_none_for_a_gaussian(ledger: Ledger) -> None:
    one_drawn(ledger, 20.0).reserve(10, question(), population=TEACHERS)
    with pytest.raises(BudgetExceeded):
        ledger.charge(Gaussian(1.0, 1e3))


def test_a_draw_needs_a_mean_of_one(ledger: Ledger) -> None:
    with pytest.raises(RecipeError, match="a NoisyMean of one teacher"):
        everybody(ledger).reserve(10, question(), population=TEACHERS)
    with pytest.raises(RecipeError, match="`delta` must stay open"):
        everybody(ledger).reserve(10, question(), delta=1e-6)
    for population in (1, 0, 2.0):
        with pytest.raises(RecipeError, match="`population` must be a whole number"):
            one_drawn(ledger).reserve(10, question(), population=population)  # type: ignore[arg-type]


def test_everybody_is_drawn_as_often_as_anybody_else() -> None:
    drawn = np.bincount([int(noise.drawn_member(7)._open(_KEY)) for _ in range(14_000)], minlength=7)
    assert abs(drawn - 2000).max() < 6 * math.sqrt(2000)


def test_a_reservation_is_written_and_read_back() -> None:
    event = Reserved(Sampled(Gaussian(2.0, 8.0), 0.05, "fixed", 1, 20), 300, 1.5, 1e-5)
    assert from_record(to_record(event)) == event


# ── shares of one budget ──────────────────────────────────────────────────────────────────────────────────────────────


def test_shares_of_a_budget_fill_it_exactly(ledger: Ledger) -> None:
    budget = ledger.budget
    ledger.charge(Gaussian(2.0, budget.sigma(2.0, share=0.3)))
    ledger.charge(Gaussian(1.5, budget.sigma(1.5, share=0.5, rounds=20)), count=20)
    ledger.charge(Gaussian(0.7, budget.sigma(0.7, share=0.2)))
    assert ledger.spent().epsilon == pytest.approx(8.0)
    with pytest.raises(BudgetExceeded):
        ledger.charge(Gaussian(1.0, 1e4))
    for share in (0, 1.5, -1):
        with pytest.raises(RecipeError, match="`share` must lie"):
            budget.sigma(1.0, share=share)


def test_the_curator_is_an_oracle(ledger: Ledger) -> None:
    from tutelage.privacy.oracle import Oracle

    assert isinstance(everybody(ledger), Oracle)
    assert curator.KEYS == 2
