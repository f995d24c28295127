"""The door: charge, vote, clip·sum·noise, keep, and only then an answer. Nothing private leaves any other way."""

import math
import stat
import traceback
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.codecs.votes import Votes
from tutelage.privacy import accounting, consensus, mechanisms
from tutelage.privacy.bounds import Ball, Bound, OneHot, Simplex
from tutelage.privacy.curator import UNANSWERED, Curator
from tutelage.privacy.errors import BudgetExceeded, DataError, LedgerError, RecipeError, Unsealed
from tutelage.privacy.events import Gaussian, NoisyMax, NonPrivate, SmoothRelease, Threshold
from tutelage.privacy.ledger import Budget, Ledger
from tutelage.privacy.mechanisms import GNMax, LNMax, NoisyMean, SmoothNumber, ThresholdTest
from tutelage.privacy.queries import Query
from tutelage.privacy.sealed import _KEY, Sealed
from tutelage.privacy.units import Adjacency, Unit

CLASSES, TEACHERS, DELTA = 10, 50, 1e-5
SECRET = 7770123
ORDERS = np.array([1.5, 2.0, 5.0, 10.0, 20.0])


class Voters:
    """Fifty teachers: `agreeing` of them say the input's last digit, the others the next one."""

    key = "voters"

    def __init__(self, agreeing: int = 45) -> None:
        self.agreeing, self.asked = agreeing, []

    def vote(self, inputs: np.ndarray) -> Sealed:
        self.asked.extend(inputs[:, 0].tolist())
        labels = np.tile(inputs[:, 0].astype(np.int64) % CLASSES, (TEACHERS, 1))
        labels[self.agreeing :] = (labels[self.agreeing :] + 1) % CLASSES
        return Sealed(labels)


class Mute:
    key = "voters"  # the same ones, when they must not be asked

    def vote(self, inputs: np.ndarray) -> Sealed:
        pytest.fail("the teachers were asked")


def questions(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.float64)[:, None]


def opened(sealed: Sealed) -> np.ndarray:
    return sealed._open(_KEY)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "book.sqlite", Budget(8.0, DELTA)) as book:
        yield book


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return tmp_path / "run" / "private"


def plain(ledger: Ledger, teachers: Any = None, **more: Any) -> Curator:
    return Curator(teachers or Voters(), Votes(CLASSES), GNMax(CLASSES, 8.0), ledger, **more)


def confident(ledger: Ledger, teachers: Any = None, *, threshold: float = 30.0, beyond: bool = False, **more: Any) -> Curator:
    screen = ThresholdTest(CLASSES, threshold, 8.0, beyond_student=beyond)
    return Curator(teachers or Voters(), Votes(CLASSES), GNMax(CLASSES, 8.0), ledger, screen=screen, **more)


# ── the order of the door ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def diary(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write down what happens in which order, around the real book and the real mechanisms."""
    said: list[str] = []

    def watch(owner: Any, name: str, word: Any) -> None:
        real = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            said.append(word(*given, **named))
            return real(*given, **named)

        monkeypatch.setattr(owner, name, watched)

    watch(ledger, "charge", lambda event, count=1: f"charge {type(event).__name__} {count}")
    watch(ledger, "keep", lambda asked, answers: f"keep {len(asked)}")
    watch(Voters, "vote", lambda self, inputs: f"vote {len(inputs)}")
    watch(Votes, "encode", lambda self, predictions: "encode")
    watch(Votes, "decode", lambda self, codes, inputs: f"decode {len(codes)}")
    watch(GNMax, "contribute", lambda self, ballots, **_: f"GNMax {ballots.shape[1]}")
    watch(ThresholdTest, "contribute", lambda self, ballots, **_: f"test {ballots.shape[1]}")
    return said


def test_one_step_charges_votes_contributes_keeps_and_then_answers(ledger: Ledger, diary: list[str]) -> None:
    plain(ledger).answer(questions(1, 2, 3))
    assert diary == ["charge NoisyMax 3", "vote 3", "encode", "GNMax 3", "keep 3", "decode 3"]


def test_two_steps_are_charged_each_before_it_reads(ledger: Ledger, diary: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: np.zeros(shape, dtype=np.int64))
    halves = np.where(np.arange(TEACHERS)[:, None] < 25, [[1, 2, 3]], [[1, 5, 6]])  # all agree on the first alone
    monkeypatch.setattr(Voters, "vote", lambda self, inputs: diary.append("vote") or Sealed(halves))
    answers = confident(ledger).answer(questions(1, 2, 3))
    assert answers.tolist() == [1, UNANSWERED, UNANSWERED]
    assert diary == ["charge Threshold 3", "vote", "encode", "test 3", "charge NoisyMax 1", "GNMax 1", "keep 3", "decode 1"]


def test_the_charge_is_on_disk_when_the_teachers_are_asked(ledger: Ledger) -> None:
    seen = []

    class Looking(Voters):
        def vote(self, inputs: np.ndarray) -> Sealed:
            with Ledger(ledger.path) as other:
                seen.append((dict(other.totals()), other.entries()[-1].kind))
            return super().vote(inputs)

    plain(ledger, Looking()).answer(questions(1, 2))
    assert seen == [({NoisyMax("gaussian", 8.0): 2}, "charge")]


def test_the_answer_is_on_disk_when_it_is_handed_over(ledger: Ledger) -> None:
    answers = plain(ledger).answer(questions(1, 2, 3))
    with Ledger(ledger.path) as other:
        assert plain(other, Mute()).answer(questions(1, 2, 3)).tolist() == answers.tolist()


def test_over_budget_nobody_is_asked(tmp_path: Path) -> None:
    with Ledger(tmp_path / "b", Budget(1.0, DELTA)) as ledger:
        for curator in (plain(ledger, Mute()), confident(ledger, Mute())):
            with pytest.raises(BudgetExceeded):
                curator.answer(questions(*range(1000)))
        assert ledger.length == 1


def test_a_second_step_over_budget_releases_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    curator = Curator(Voters(), Votes(CLASSES), GNMax(CLASSES, 0.1), ledger, screen=ThresholdTest(CLASSES, 5.0, 8.0))
    monkeypatch.setattr(GNMax, "contribute", lambda *_, **__: pytest.fail("read without a charge"))
    with pytest.raises(BudgetExceeded, match="NoisyMax"):
        curator.answer(questions(1, 2, 3))
    assert dict(ledger.totals()) == {Threshold(8.0): 3}
    assert not curator.known(questions(1))


def test_what_the_book_does_not_take_is_not_handed_over(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise LedgerError("full")

    monkeypatch.setattr(ledger, "keep", full)
    with pytest.raises(LedgerError):
        plain(ledger).answer(questions(1))


# ── the same question ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_question_is_free_and_has_the_same_answer(ledger: Ledger) -> None:
    voters = Voters()
    curator = plain(ledger, voters)
    first = curator.answer(questions(1, 2, 3))
    again = curator.answer(questions(3, 2, 1, 4))
    assert again[:3].tolist() == first[::-1].tolist()
    assert voters.asked == [1, 2, 3, 4]
    assert dict(ledger.totals()) == {NoisyMax("gaussian", 8.0): 4}


def test_a_question_that_stays_silent_stays_silent_for_free(ledger: Ledger) -> None:
    voters = Voters()
    curator = confident(ledger, voters, threshold=400.0)
    for _ in range(2):
        assert curator.answer(questions(1, 2)).tolist() == [UNANSWERED, UNANSWERED]
    assert voters.asked == [1, 2]
    assert dict(ledger.totals()) == {Threshold(8.0): 2}


def test_a_question_repeated_in_one_breath_is_asked_once(ledger: Ledger) -> None:
    voters = Voters()
    answers = plain(ledger, voters).answer(questions(7, 8, 7, 9, 8, 7))
    assert sorted(voters.asked) == [7, 8, 9]
    assert answers[0] == answers[2] == answers[5]
    assert answers[1] == answers[4]
    assert dict(ledger.totals()) == {NoisyMax("gaussian", 8.0): 3}


def test_answers_belong_to_their_own_questions(ledger: Ledger) -> None:
    numbers = [5, 3, 3, 9, 1, 5, 0]
    sure = Curator(Voters(TEACHERS), Votes(CLASSES), GNMax(CLASSES, 4.0), ledger)
    assert sure.answer(questions(*numbers)).tolist() == numbers


def test_another_way_of_asking_is_another_question(ledger: Ledger) -> None:
    voters = Voters()
    inputs = questions(1)
    plain(ledger, voters).answer(inputs)
    Curator(voters, Votes(CLASSES), GNMax(CLASSES, 9.0), ledger).answer(inputs)
    Curator(voters, Votes(CLASSES), LNMax(CLASSES, 0.1), ledger).answer(inputs)
    confident(ledger, voters).answer(inputs)
    plain(ledger, voters).answer(inputs.astype(np.float32))
    plain(ledger, voters).answer(inputs[:, :, None])
    assert len(voters.asked) == 6


class Keyed(Voters):
    """Teachers with a key of their own; `None` leaves them their class."""

    def __init__(self, key: Any) -> None:
        super().__init__(TEACHERS)
        self.key = key


class Plain:
    """A codec like the votes', whose description is what a test says."""

    bound: Bound = OneHot(CLASSES)

    def __init__(self, text: str) -> None:
        self.key = text

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return Votes(CLASSES).encode(predictions)

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return codes


def test_another_ensembles_answers_never_return(ledger: Ledger) -> None:
    """Six ensembles that differ in one thing each are all asked; the rule without salt and teachers gave one answer to five."""
    votes, mechanism = Votes(CLASSES), GNMax(CLASSES, 30.0)
    ensembles = [
        (Keyed("forest"), votes, ""),
        (Keyed("forest"), votes, "shards|50|seed 0"),
        (Keyed("forest"), votes, "shards|50|seed 1"),
        (Keyed("network"), votes, ""),
        (Keyed(None), votes, ""),
        (Keyed("forest"), Plain("Votes(10)"), ""),
    ]
    for teachers, codec, salt in ensembles:
        curator = Curator(teachers, codec, mechanism, ledger, salt=salt)
        assert not curator.known(questions(1, 2))
        curator.answer(questions(1, 2))
        assert curator.known(questions(1, 2))
        assert teachers.asked == [1, 2]
    assert dict(ledger.totals()) == {NoisyMax("gaussian", 30.0): 12}
    unsalted = {f"{codec!r}|{mechanism!r}|None" for _, codec, _ in ensembles[:5]}  # the broken twin: what named a question before
    assert len(unsalted) == 1
    for teachers, codec, salt in ensembles:  # the same ensemble again, in another process: free
        with Ledger(ledger.path) as other:
            again = Keyed(teachers.key)
            Curator(again, codec, mechanism, other, salt=salt).answer(questions(2, 1))
            assert again.asked == []


def test_no_two_descriptions_run_together(ledger: Ledger) -> None:
    for key, text, salt in (
        ("a|b", "c", ""),
        ("a", "b|c", ""),
        ("a", "b", "|c"),
        ('a", "b', "c", ""),
        ("b", "c", "a|"),
        ("", "a|b|c", ""),
    ):
        assert not Curator(Keyed(key), Plain(text), GNMax(CLASSES, 30.0), ledger, salt=salt).known(questions(1))
        Curator(Keyed(key), Plain(text), GNMax(CLASSES, 30.0), ledger, salt=salt).answer(questions(1))
    assert dict(ledger.totals()) == {NoisyMax("gaussian", 30.0): 6}


@pytest.mark.parametrize(
    "text", ["<codec.Mine object at 0x7f3b2c1d0e50>", "Mine(<function f at 0x10aa5c040>)", "Mine([0. 0. ... 1. 1.])"]
)
@pytest.mark.parametrize("name", ["teachers", "codec"])
def test_what_no_process_describes_alike_is_refused_before_any_charge(ledger: Ledger, text: str, name: str) -> None:
    teachers, codec = (Keyed(text), Votes(CLASSES)) if name == "teachers" else (Mute(), Plain(text))
    with pytest.raises(RecipeError, match=f"`{name}` must have a public `key` without memory addresses"):
        Curator(teachers, codec, GNMax(CLASSES, 8.0), ledger)
    assert ledger.length == 1


def test_a_key_stands_for_a_description(ledger: Ledger) -> None:
    Curator(Voters(), Plain("mine"), GNMax(CLASSES, 8.0), ledger).answer(questions(1))
    again = Plain("mine")
    assert Curator(Voters(), again, GNMax(CLASSES, 8.0), ledger).known(questions(1))


@pytest.mark.parametrize("salt", [None, 3, b"x"])
def test_a_salt_is_a_text(ledger: Ledger, salt: Any) -> None:
    with pytest.raises(RecipeError, match="`salt` must be a text"):
        plain(ledger, salt=salt)


def test_teachers_that_cannot_vote_are_refused_before_any_charge(ledger: Ledger) -> None:
    with pytest.raises(RecipeError, match="`teachers` must have a method `vote` or `contributions`"):
        plain(ledger, object())
    assert ledger.length == 1


@pytest.mark.parametrize("votes", [np.full((TEACHERS, 2), SECRET), [[SECRET]], None])
def test_votes_that_are_not_sealed_are_one_line_and_not_quoted(ledger: Ledger, votes: Any) -> None:
    class Loose:
        def vote(self, inputs: np.ndarray) -> Any:
            return votes

    with pytest.raises(RecipeError, match=rf"^`vote` must give a Sealed value\. Got {type(votes).__name__} instead") as caught:
        plain(ledger, Loose()).answer(questions(1, 2))
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))
    assert not any(entry.kind == "release" for entry in ledger.entries())


def test_known_tells_what_is_free(ledger: Ledger) -> None:
    curator = plain(ledger)
    assert not curator.known(questions(1))
    curator.answer(questions(1, 2))
    assert curator.known(questions(1, 2, 1))
    assert not curator.known(questions(1, 3))


def test_after_another_process_answered_first_its_answer_counts(ledger: Ledger) -> None:
    with Ledger(ledger.path) as other:
        elsewhere = Curator(Voters(TEACHERS), Votes(CLASSES), GNMax(CLASSES, 4.0), other)

        class Slow(Voters):
            def vote(self, inputs: np.ndarray) -> Sealed:
                elsewhere.answer(inputs)  # meanwhile
                return Sealed((np.asarray(opened(super().vote(inputs))) + 5) % CLASSES)

        curator = Curator(Slow(TEACHERS), Votes(CLASSES), GNMax(CLASSES, 4.0), ledger)
        assert curator.answer(questions(1, 2)).tolist() == [1, 2]
    assert dict(ledger.totals()) == {NoisyMax("gaussian", 4.0): 4}  # both were charged: both read


def test_nothing_asked_nothing_charged(ledger: Ledger) -> None:
    assert plain(ledger, Mute()).answer([]).shape == (0,)
    assert ledger.length == 1


def test_affordable_counts_both_steps(ledger: Ledger) -> None:
    assert plain(ledger).affordable() == ledger.affordable(NoisyMax("gaussian", 8.0))
    both = confident(ledger).affordable()
    assert both == ledger.affordable(Threshold(8.0), NoisyMax("gaussian", 8.0)) < plain(ledger).affordable()
    ledger.charge(Threshold(8.0), count=both)
    ledger.charge(NoisyMax("gaussian", 8.0), count=both)
    assert confident(ledger).affordable() == 0


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("inputs", [3.0, np.array([{}, []], dtype=object), np.array(["a", None], dtype=object)])
def test_questions_are_plain_rows(ledger: Ledger, inputs: Any) -> None:
    with pytest.raises(DataError, match="`inputs` must be one plain row per question"):
        plain(ledger, Mute()).answer(inputs)
    assert ledger.length == 1


@pytest.mark.parametrize("votes", [np.zeros((TEACHERS, 2), dtype=int), np.zeros((TEACHERS, 4), dtype=int)])
@pytest.mark.parametrize("make", [plain, confident])
def test_votes_for_another_number_of_questions_are_refused(ledger: Ledger, make: Any, votes: np.ndarray) -> None:
    class Odd:
        def vote(self, inputs: np.ndarray) -> Sealed:
            return Sealed(votes)

    curator = make(ledger, Odd())
    with pytest.raises(DataError, match=r"`vote` must give \(teachers, 3, \.\.\.\) for as many inputs"):
        curator.answer(questions(1, 2, 3))
    assert not curator.known(questions(1))


def test_fewer_teachers_than_promised_are_refused(ledger: Ledger) -> None:
    curator = Curator(Voters(), Votes(CLASSES), GNMax(CLASSES, 8.0, teachers=51), ledger)
    with pytest.raises(DataError, match=r"must come from 51 teachers\. Got 50 instead"):
        curator.answer(questions(1))
    assert not curator.known(questions(1))


@pytest.mark.parametrize("baseline", [None, [[0.1] * 10], [[0.1] * 10] * 3, [[math.nan] * 10] * 2, [[2.0] * 10] * 2, 0.1])
def test_a_bad_baseline_is_refused_before_any_charge(ledger: Ledger, baseline: Any) -> None:
    curator = confident(ledger, Mute(), beyond=True)
    with pytest.raises((RecipeError, DataError), match="`baseline` must"):
        curator.answer(questions(1, 2), baseline=baseline)
    assert ledger.length == 1


def test_a_baseline_needs_an_interactive_screen(ledger: Ledger) -> None:
    for curator in (plain(ledger, Mute()), confident(ledger, Mute())):
        with pytest.raises(RecipeError, match="`baseline` must"):
            curator.answer(questions(1), baseline=[[0.1] * 10])
    assert ledger.length == 1


def test_the_interactive_screen_is_asked_beyond_the_student(ledger: Ledger) -> None:
    voters = Voters(TEACHERS)
    curator = confident(ledger, voters, threshold=25.0, beyond=True)
    curator.screen, curator.mechanism = ThresholdTest(CLASSES, 25.0, 1.5, beyond_student=True), GNMax(CLASSES, 4.0)
    agrees, differs = np.eye(CLASSES)[[1]], np.eye(CLASSES)[[4]]
    assert curator.answer(questions(1), baseline=agrees).tolist() == [UNANSWERED]
    assert curator.answer(questions(1), baseline=differs).tolist() == [1]  # another expectation is another question
    assert curator.answer(questions(1, 1), baseline=np.vstack([agrees, differs])).tolist() == [UNANSWERED, 1]
    assert curator.known(questions(1, 1), baseline=np.vstack([agrees, differs]))
    assert not curator.known(questions(1), baseline=np.full_like(agrees, 0.1))  # nobody asked with this expectation
    for wrong in (None, agrees[0]):
        with pytest.raises((RecipeError, DataError), match="`baseline` must"):
            curator.known(questions(1), baseline=wrong)
    assert voters.asked == [1, 1]


def test_a_screen_goes_with_votes(ledger: Ledger) -> None:
    with pytest.raises(RecipeError, match=r"`screen` must come with GNMax or LNMax\. Got NoisyMean"):
        Curator(
            Mute(), Votes(CLASSES), NoisyMean(OneHot(CLASSES), 1.0, TEACHERS), ledger, screen=ThresholdTest(CLASSES, 1.0, 1.0)
        )


@pytest.mark.parametrize("budget_unit", [Unit("institution", 3), Unit("record", 1)])
def test_steps_promise_what_the_book_promises(tmp_path: Path, budget_unit: Unit) -> None:
    other = Unit("institution", 4 - budget_unit.teachers)
    codec = Votes(CLASSES)
    with Ledger(tmp_path / "b", Budget(8.0, DELTA, budget_unit)) as ledger:
        for mechanism, screen in (
            (GNMax(CLASSES, 8.0, other), None),
            (NoisyMean(Ball(3), 8.0, TEACHERS, unit=other), None),
            (GNMax(CLASSES, 8.0, budget_unit), ThresholdTest(CLASSES, 8.0, 8.0, unit=other)),
        ):
            with pytest.raises(RecipeError, match=f"`unit` must reach the {budget_unit.teachers} teachers"):
                Curator(Mute(), codec, mechanism, ledger, screen=screen)
        Curator(Mute(), codec, GNMax(CLASSES, 8.0, Unit("patient", budget_unit.teachers)), ledger)
        add_remove = NoisyMean(Ball(3), 8.0, 9, adjacency=Adjacency.ADD_REMOVE, unit=Unit("institution", budget_unit.teachers))
        with pytest.raises(RecipeError, match=r"`adjacency` must be the book's, replace-one\. Got add-remove"):
            Curator(Mute(), codec, add_remove, ledger)
    gone = Budget(8.0, DELTA, Unit("institution", budget_unit.teachers), Adjacency.ADD_REMOVE)
    with Ledger(tmp_path / "c", gone) as ledger:
        Curator(Mute(), codec, add_remove, ledger)
        replace_one = NoisyMean(Ball(3), 8.0, 9, unit=Unit("institution", budget_unit.teachers))
        with pytest.raises(RecipeError, match=r"`adjacency` must be the book's, add-remove\. Got replace-one"):
            Curator(Mute(), codec, replace_one, ledger)


# ── failures quote nothing ────────────────────────────────────────────────────────────────────────────────────────────


def whole_story(error: BaseException) -> str:
    """Everything a log could print: the chain of causes, and the variables of every frame but this file's."""
    story, waiting, seen = "", [error], []
    while waiting:
        current = waiting.pop()
        seen.append(current)
        story += "".join(traceback.format_exception(current)) + repr(current.args)
        for frame, _ in traceback.walk_tb(current.__traceback__):
            if frame.f_code.co_filename != __file__ or frame.f_code.co_name in ("vote", "encode"):
                for name, value in frame.f_locals.items():
                    story += f"{name} = {'sealed' if isinstance(value, Sealed) else value!r}\n"
        waiting += [cause for cause in (current.__context__, current.__cause__) if cause is not None and cause not in seen]
    return story


class FailingTeacher:
    def __init__(self, failure: type[Exception] = ValueError) -> None:
        self.failure = failure

    def __repr__(self) -> str:
        return "FailingTeacher()"

    def vote(self, inputs: np.ndarray) -> Sealed:
        ages = np.array([SECRET])
        raise self.failure(f"could not read the age {ages[0]}")


class FailingInside:
    """Fails while another failure is handled."""

    def vote(self, inputs: np.ndarray) -> Sealed:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise RuntimeError(f"no patient {SECRET}") from error


class LooseVotes:
    """Give labels that are no whole numbers; a message of the codec's own could quote them."""

    def vote(self, inputs: np.ndarray) -> Sealed:
        return Sealed(np.full((TEACHERS, len(inputs)), SECRET + 0.5))


class QuotingCodec:
    bound: Bound = OneHot(CLASSES)
    key = "quoting"

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        raise ValueError(f"odd label in {predictions + SECRET}")

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return codes


class Raw(QuotingCodec):
    """Hands votes to the mechanism that are none."""

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return -SECRET * np.eye(CLASSES)[predictions]


def test_this_files_own_story_would_tell() -> None:
    with pytest.raises(ValueError, match="age") as caught:
        FailingTeacher().vote(questions(1))
    assert str(SECRET) in whole_story(caught.value)
    with pytest.raises(DataError) as held:
        SmoothNumber(0.1, 1.0).contribute(Sealed([SECRET, math.nan]))
    assert str(SECRET) in whole_story(held.value)  # a mechanism's frame holds what it opened: the door lets no frame out


def test_a_strangers_mechanism_is_not_believed(ledger: Ledger) -> None:
    class Stranger:
        key = "stranger"

        def event(self) -> Gaussian:
            return Gaussian(1.0, 10.0)

        def contribute(self, ballots: Sealed, *, share: float = 1.0) -> np.ndarray:
            raise ArithmeticError(f"cannot divide {SECRET}")

    with pytest.raises(DataError, match=r"`contribute` must not fail\. Got ArithmeticError instead") as caught:
        Curator(Voters(), Votes(CLASSES), Stranger(), ledger).answer(questions(1))
    assert str(SECRET) not in whole_story(caught.value)


@pytest.mark.parametrize(
    ("teachers", "codec", "told"),
    [
        (FailingTeacher(), Votes(CLASSES), "`vote` must not fail. Got ValueError instead"),
        (FailingTeacher(DataError), Votes(CLASSES), "`vote` must not fail. Got DataError instead"),
        (FailingInside(), Votes(CLASSES), "`vote` must not fail. Got RuntimeError instead"),
        (LooseVotes(), Votes(CLASSES), "a step on sealed values must not fail. Got DataError instead"),
        (Voters(), QuotingCodec(), "a step on sealed values must not fail. Got ValueError instead"),
        (Voters(), Raw(), "must be finite votes"),
    ],
)
def test_a_failure_does_not_quote_what_is_private(ledger: Ledger, teachers: Any, codec: Any, told: str) -> None:
    with pytest.raises(DataError) as caught:
        Curator(teachers, codec, GNMax(CLASSES, 8.0), ledger).answer(questions(1, 2))
    assert told in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))
    assert str(SECRET) not in whole_story(caught.value)
    assert not any(entry.kind == "release" for entry in ledger.entries())


def test_a_breach_inside_a_teacher_stays_a_breach_without_its_frames(ledger: Ledger) -> None:
    class Peeking:
        def vote(self, inputs: np.ndarray) -> Sealed:
            age = SECRET  # noqa: F841
            raise Unsealed("a sealed value must not be printed.")

    with pytest.raises(Unsealed) as caught:
        plain(ledger, Peeking()).answer(questions(1))
    assert str(SECRET) not in whole_story(caught.value)


# ── other codecs ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Halves:
    """A codec of vectors that decodes by doubling."""

    bound: Bound = Ball(2, 1.0)

    @property
    def key(self) -> str:
        return "Halves()"

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return predictions / 2

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        assert len(codes) == len(inputs)
        return codes * 2


class Pointers:
    def vote(self, inputs: np.ndarray) -> Sealed:
        return Sealed(np.stack([inputs * (1 if teacher else 1e9) for teacher in range(20)]))


def test_vectors_go_through_the_same_door(ledger: Ledger) -> None:
    curator = Curator(Pointers(), Halves(), NoisyMean(Ball(2, 1.0), 2.0, 20), ledger)
    inputs = np.array([[0.8, 0.0], [0.0, -0.6]])
    first = curator.answer(inputs)
    assert first.shape == (2, 2)
    assert first == pytest.approx(curator.answer(inputs))
    assert np.abs(first - inputs).max() < 2.5  # σ of the decoded mean is 0.2
    assert dict(ledger.totals()) == {Gaussian(2.0 * (1 + 2.0**-24), 2.0): 2}


def test_codes_are_what_was_let_out_and_decoding_them_is_free(ledger: Ledger) -> None:
    curator = Curator(Pointers(), Halves(), NoisyMean(Ball(2, 1.0), 2.0, 20), ledger)
    inputs = np.array([[0.8, 0.0], [0.0, -0.6]])
    codes = curator.codes(inputs)
    length = ledger.length
    assert np.array_equal(curator.answer(inputs), 2 * codes)
    assert np.array_equal(curator.decode(codes, inputs), 2 * codes)
    assert np.array_equal(curator.codes(inputs[::-1]), codes[::-1])
    assert ledger.length == length
    assert Curator(Mute(), Halves(), NoisyMean(Ball(2, 1.0), 2.0, 20), ledger).codes([]).shape == (0,)


class Painted:
    """Votes for a class, painted as a mask of 2×2 or told as a small whole number."""

    bound: Bound = OneHot(CLASSES)

    def __init__(self, *, mask: bool) -> None:
        self.mask = mask

    @property
    def key(self) -> str:
        return f"Painted({self.mask})"

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return np.eye(CLASSES)[predictions]

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        assert len(codes) == len(inputs)
        return np.broadcast_to(codes[:, None, None], (len(codes), 2, 2)).astype(np.uint8) if self.mask else codes.astype(np.uint8)


@pytest.mark.parametrize("mask", [True, False])
def test_a_silent_mask_is_not_a_number_and_a_silent_label_is_minus_one(
    ledger: Ledger, mask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: np.zeros(shape, dtype=np.int64))
    halves = np.where(np.arange(TEACHERS)[:, None] < 25, [[1, 2]], [[1, 5]])  # all agree on the first alone
    monkeypatch.setattr(Voters, "vote", lambda self, inputs: Sealed(halves))
    screen = ThresholdTest(CLASSES, 30.0, 8.0)
    curator = Curator(Voters(), Painted(mask=mask), GNMax(CLASSES, 8.0), ledger, screen=screen)
    answers = curator.answer(questions(1, 2))
    assert answers.shape == ((2, 2, 2) if mask else (2,))
    assert (answers[0] == 1).all()
    assert np.isnan(answers[1]).all() if mask else answers[1] == UNANSWERED


# ── questions in parts ────────────────────────────────────────────────────────────────────────────────────────────────


class Zeros:
    """Twenty teachers who say nothing, and note how much the book on disk holds at the moment they are asked."""

    def __init__(self, ledger: Ledger, dimension: int = 3) -> None:
        self.ledger, self.dimension = ledger, dimension
        self.seen: list[tuple[int, int, int]] = []  # questions, charged so far, charges so far

    def vote(self, inputs: np.ndarray) -> Sealed:
        with Ledger(self.ledger.path) as other:
            charges = [entry for entry in other.entries() if entry.kind == "charge"]
        self.seen.append((len(inputs), sum(entry.body["count"] for entry in charges), len(charges)))
        return Sealed(np.zeros((20, len(inputs), self.dimension)))


class Plainly:
    """A codec that changes nothing."""

    def __init__(self, dimension: int = 3) -> None:
        self.bound = Ball(dimension, 1.0)

    @property
    def key(self) -> str:
        return "Plainly()"

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return predictions

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return codes


class Seeing(Plainly):
    """A codec for certain inputs, made before the charge."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger, self.seen = ledger, []

    def seeing(self, inputs: np.ndarray) -> Plainly:
        if (inputs < 0).any():
            raise DataError("`inputs` must be images. Got others instead.")
        self.seen.append((len(inputs), self.ledger.length))
        return Plainly()


def in_parts(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, codec: Any = None) -> Zeros:
    """Ask five questions of which two fit in memory."""
    monkeypatch.setattr("tutelage.privacy.curator._VALUES", 2 * 3 * 20)
    teachers = Zeros(ledger)
    curator = Curator(teachers, codec or Plainly(), NoisyMean(Ball(3, 1.0), 9.0, 20), ledger)
    assert curator.answer(questions(1, 2, 3, 4, 5)).shape == (5, 3)
    return teachers


def paid_in_time(teachers: Zeros) -> bool:
    """Tell whether every part found all five questions paid for, in one charge."""
    return [row[0] for row in teachers.seen] == [2, 2, 1] and all(row[1:] == (5, 1) for row in teachers.seen)


def heard(curator: Curator, inputs: np.ndarray) -> np.ndarray:
    parts = curator._parts(inputs)
    return np.concatenate([curator._answered(Query.inputs(inputs[part]), curator._seeing(inputs[part])) for part in parts])


def paying_late(curator: Curator, query: Query, fresh: list[int], _: Any) -> np.ndarray:
    inputs = query.rows[fresh]
    released = heard(curator, inputs)
    curator.ledger.charge(curator.mechanism.event(), count=len(inputs))
    return released


def paying_for_the_first_part(curator: Curator, query: Query, fresh: list[int], _: Any) -> np.ndarray:
    inputs = query.rows[fresh]
    curator.ledger.charge(curator.mechanism.event(), count=curator._parts(inputs)[0].stop)
    return heard(curator, inputs)


def looking_late(curator: Curator, query: Query, fresh: list[int], _: Any) -> np.ndarray:
    inputs = query.rows[fresh]
    curator.ledger.charge(curator.mechanism.event(), count=len(inputs))
    return heard(curator, inputs)


def test_all_parts_are_one_charge_before_the_first_vote(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paid_in_time(in_parts(ledger, monkeypatch))
    assert dict(ledger.totals()) == {Gaussian(2.0 * (1 + 2.0**-24), 9.0): 5}
    assert [entry.kind for entry in ledger.entries()] == ["open", "charge", "release"]


@pytest.mark.parametrize("twin", [paying_late, paying_for_the_first_part])
def test_parts_that_are_not_paid_for_in_time_are_seen(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, twin: Any) -> None:
    monkeypatch.setattr(Curator, "_release", twin)
    assert not paid_in_time(in_parts(ledger, monkeypatch))


def test_one_question_too_large_for_memory_is_still_asked(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.privacy.curator._VALUES", 1)
    teachers = Zeros(ledger)
    Curator(teachers, Plainly(), NoisyMean(Ball(3, 1.0), 9.0, 20), ledger).answer(questions(1, 2))
    assert teachers.seen == [(1, 2, 1), (1, 2, 1)]


def test_votes_are_never_divided(ledger: Ledger, private: Path, monkeypatch: pytest.MonkeyPatch, diary: list[str]) -> None:
    monkeypatch.setattr("tutelage.privacy.curator._VALUES", 1)
    for make in (plain, confident):
        make(ledger, private=private).answer(questions(1, 2, 3))
    assert [line for line in diary if line.startswith("vote")] == ["vote 3", "vote 3"]
    assert len(list(private.iterdir())) == 2  # one file of counts per charge


def part_noise(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Give the noise on the sum in units of sigma: (8 parts, 2500 values)."""
    monkeypatch.setattr("tutelage.privacy.curator._VALUES", 50 * 50 * 20)
    teachers, sigma = Zeros(ledger, 50), 60.0
    released = Curator(teachers, Plainly(50), NoisyMean(Ball(50, 1.0), sigma, 20), ledger).codes(questions(*range(400)))
    assert [row[0] for row in teachers.seen] == [50] * 8
    [(event, count)] = ledger.totals()
    assert isinstance(event, Gaussian)
    assert (event.sigma, count) == (sigma, 400)
    return (released * 20 / event.sigma).reshape(8, -1)


def apart(noise: np.ndarray) -> bool:
    """Tell whether parts of 2500 values each know nothing of each other."""
    return bool(np.abs(np.corrcoef(noise) - np.eye(len(noise))).max() < 6 / math.sqrt(noise.shape[1]))


def test_every_part_has_noise_of_its_own_and_as_much_as_was_charged(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = part_noise(ledger, monkeypatch)
    assert apart(noise)
    assert noise.std(axis=1) == pytest.approx(np.ones(8), abs=6 / math.sqrt(2 * noise.shape[1]))
    assert np.abs(noise.mean(axis=1)).max() < 6 / math.sqrt(noise.shape[1])


def test_noise_that_is_used_twice_is_seen(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    real, drawn = mechanisms.rounded_gaussian, {}
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: drawn.setdefault((scale, shape), real(scale, shape)))
    assert not apart(part_noise(ledger, monkeypatch))


def test_a_failure_in_a_later_part_releases_nothing_of_the_first(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.privacy.curator._VALUES", 2 * 3 * 20)

    class Tiring(Zeros):
        def vote(self, inputs: np.ndarray) -> Sealed:
            if self.seen:
                raise ValueError(f"patient {SECRET}")
            return super().vote(inputs)

    curator = Curator(Tiring(ledger), Plainly(), NoisyMean(Ball(3, 1.0), 9.0, 20), ledger)
    with pytest.raises(DataError, match=r"`vote` must not fail\. Got ValueError instead") as caught:
        curator.answer(questions(1, 2, 3))
    assert str(SECRET) not in whole_story(caught.value)
    assert [entry.kind for entry in ledger.entries()] == ["open", "charge"]
    assert not curator.known(questions(1))


# ── codecs that see the question ──────────────────────────────────────────────────────────────────────────────────────


def seen_in_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Tell whether the codec saw every part of the questions before anything was charged, and what comes of refusing one."""
    codec = Seeing(ledger)
    in_parts(ledger, monkeypatch, codec)
    assert [size for size, _ in codec.seen] == [2, 2, 1, 5]  # the last is for decoding
    early, length = all(rows == 1 for _, rows in codec.seen[:3]), ledger.length
    curator = Curator(Mute(), codec, NoisyMean(Ball(3, 1.0), 9.0, 20), ledger)
    with pytest.raises(DataError, match="`inputs` must be images"):
        curator.answer(questions(6, 7, -1))  # the second part
    return early and ledger.length == length


def test_a_codec_looks_at_the_questions_before_the_charge(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen_in_time(ledger, monkeypatch)


def test_a_codec_that_looks_after_the_charge_is_seen(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Curator, "_release", looking_late)
    monkeypatch.setattr(Mute, "vote", lambda self, inputs: Sealed(np.zeros((20, len(inputs), 3))))
    assert not seen_in_time(ledger, monkeypatch)


def test_a_codec_that_sees_cannot_widen_the_bound(ledger: Ledger) -> None:
    class Widening(Plainly):
        def seeing(self, inputs: np.ndarray) -> Plainly:
            wide = Plainly(2)
            wide.bound = Ball(2, 1e12)
            return wide

    mechanism = NoisyMean(Ball(2, 1.0), 2.0, 20)
    released = Curator(Pointers(), Widening(2), mechanism, ledger).codes(np.array([[1e9, 0.0]]))
    assert np.abs(released).max() < 1 + 10 * 2.0 / 20  # the mechanism's own clip, and ten deviations


# ── the sealed account ────────────────────────────────────────────────────────────────────────────────────────────────


def test_counts_are_kept_for_their_owner_alone(ledger: Ledger, private: Path) -> None:
    curator = plain(ledger, private=private)
    curator.answer(questions(1, 2))
    curator.answer(questions(3))
    files = sorted(private.iterdir())
    assert len(files) == 2
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    counts = np.load(files[0])
    assert counts[:, :-1].sum(axis=1).tolist() == [TEACHERS, TEACHERS]
    assert counts[:, -1].tolist() == [1, 1]
    assert counts[0, 1] == 45


def test_counts_lie_under_private_or_nowhere(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(Unsealed, match="`private` must lie in a folder named 'private'"):
        plain(ledger, private=tmp_path / "release")
    assert not (tmp_path / "release").exists()
    plain(ledger).answer(questions(1))
    assert all(file.name.startswith("book.sqlite") for file in tmp_path.iterdir())


def test_vectors_have_no_counts(ledger: Ledger, private: Path) -> None:
    curator = Curator(Pointers(), Halves(), NoisyMean(Ball(2, 1.0), 2.0, 20), ledger, private=private)
    curator.answer(np.zeros((1, 2)))
    assert list(private.iterdir()) == []
    with pytest.raises(DataError, match="`private` must hold the counts"):
        curator.account.data_dependent_rdp(ORDERS)


def test_no_account_without_a_folder_or_counts(ledger: Ledger, private: Path) -> None:
    with pytest.raises(RecipeError, match="`private` must be a folder"):
        plain(ledger).account.data_dependent_rdp(ORDERS)
    with pytest.raises(DataError, match="at least one answer"):
        plain(ledger, private=private).account.data_dependent_rdp(ORDERS)


def test_no_account_for_a_unit_behind_several_teachers(tmp_path: Path, private: Path) -> None:
    unit = Unit("institution", 2)
    with Ledger(tmp_path / "b", Budget(8.0, DELTA, unit)) as ledger:
        for mechanism in (GNMax(CLASSES, 8.0, unit), LNMax(CLASSES, 0.1, unit)):
            curator = Curator(Voters(), Votes(CLASSES), mechanism, ledger, private=private)
            curator.answer(questions(1))
            with pytest.raises(RecipeError, match="`unit` must stand behind one teacher"):
                curator.account.data_dependent_rdp(ORDERS)
        with pytest.raises(RecipeError, match="`unit` must stand behind one teacher"):
            Curator(Voters(), Votes(CLASSES), GNMax(CLASSES, 8.0, unit), ledger).account.sanitised_epsilon(
                SmoothNumber(0.01, 8.0), order=10.0
            )


def counts_of(agreeing: int, rows: int) -> np.ndarray:
    counts = np.zeros((rows, CLASSES))
    counts[:, 1], counts[:, 2] = agreeing, TEACHERS - agreeing
    return counts


def same_price(found: Sealed, expected: np.ndarray) -> None:
    """Equal but for the grid step taken from every lead, which can only raise it."""
    assert opened(found) == pytest.approx(expected, rel=2e-4)
    assert (opened(found) >= expected * (1 - 1e-12)).all()


@pytest.mark.parametrize("agreeing", [26, 40, 50])
def test_gnmax_is_priced_by_its_counts(ledger: Ledger, private: Path, agreeing: int) -> None:
    curator = plain(ledger, Voters(agreeing), private=private)
    curator.answer(questions(1, 2, 3))
    curator.answer(questions(4))
    same_price(curator.account.data_dependent_rdp(ORDERS), consensus.gnmax_rdp(counts_of(agreeing, 4), 8.0, ORDERS).sum(axis=0))


@pytest.mark.parametrize("agreeing", [26, 40, 50])
def test_lnmax_is_priced_by_its_counts(ledger: Ledger, private: Path, agreeing: int) -> None:
    curator = Curator(Voters(agreeing), Votes(CLASSES), LNMax(CLASSES, 0.1), ledger, private=private)
    curator.answer(questions(1, 2, 3))
    moments = consensus.lnmax_log_moments(counts_of(agreeing, 3), 0.1, ORDERS - 1).sum(axis=0)
    same_price(curator.account.data_dependent_rdp(ORDERS), moments / (ORDERS - 1))


@pytest.mark.parametrize("mechanism", [GNMax(CLASSES, 8.0), LNMax(CLASSES, 0.1)], ids=lambda m: type(m).__name__)
def test_both_steps_are_priced_by_their_counts(ledger: Ledger, private: Path, mechanism: Any) -> None:
    screen = ThresholdTest(CLASSES, 40.0, 8.0)
    curator = Curator(Voters(45), Votes(CLASSES), mechanism, ledger, screen=screen, private=private)
    answered = int((curator.answer(questions(*range(12))) != UNANSWERED).sum())
    if isinstance(mechanism, GNMax):
        answers = consensus.gnmax_rdp(counts_of(45, answered), 8.0, ORDERS).sum(axis=0)
    else:
        answers = consensus.lnmax_log_moments(counts_of(45, answered), 0.1, ORDERS - 1).sum(axis=0) / (ORDERS - 1)
    tests = 12 * consensus.threshold_rdp([45], screen.effective_threshold, 8.0, ORDERS)[0]
    same_price(curator.account.data_dependent_rdp(ORDERS), answers + tests)


@pytest.mark.parametrize("mechanism", [GNMax(CLASSES, 8.0), LNMax(CLASSES, 0.5)], ids=lambda m: type(m).__name__)
def test_a_lead_is_priced_a_grid_step_smaller(ledger: Ledger, private: Path, mechanism: Any) -> None:
    """Rounded noise can make a tie of a lead below one step, and ties go to the first class."""
    curator = Curator(Voters(50), Votes(CLASSES), mechanism, ledger, private=private)
    curator.answer(questions(1))
    if isinstance(mechanism, GNMax):
        continuous = consensus.gnmax_rdp(counts_of(50, 1), 8.0, ORDERS)[0]
    else:
        continuous = consensus.lnmax_log_moments(counts_of(50, 1), 0.5, ORDERS - 1)[0] / (ORDERS - 1)
    assert (opened(curator.account.data_dependent_rdp(ORDERS)) > continuous)[:3].all()


def test_an_interactive_screen_has_its_plain_price(ledger: Ledger, private: Path) -> None:
    curator = confident(ledger, threshold=1000.0, beyond=True, private=private)
    assert curator.answer(questions(1, 2), baseline=np.full((2, CLASSES), 0.1)).tolist() == [UNANSWERED] * 2
    same_price(curator.account.data_dependent_rdp(ORDERS), 2 * ORDERS / (2 * 8.0**2))


def test_a_run_that_answered_nothing_pays_its_tests(ledger: Ledger, private: Path) -> None:
    curator = confident(ledger, threshold=1000.0, private=private)
    curator.answer(questions(1, 2))
    same_price(
        curator.account.data_dependent_rdp(ORDERS),
        2 * consensus.threshold_rdp([45], curator.screen.effective_threshold, 8.0, ORDERS)[0],
    )
    assert math.isfinite(curator.account.sanitised_epsilon(SmoothNumber(0.01, 8.0), order=3.0))


def test_what_a_crash_left_uncovered_has_its_full_price(ledger: Ledger, private: Path) -> None:
    curator = confident(ledger, Voters(50), threshold=10.0, private=private)
    curator.answer(questions(1, 2))
    covered = opened(curator.account.data_dependent_rdp(ORDERS))
    ledger.charge(Threshold(8.0), count=3)  # killed before the counts were kept
    ledger.charge(NoisyMax("gaussian", 8.0), count=2)
    lost = 3 * ORDERS / (2 * 8.0**2) + 2 * ORDERS / 8.0**2
    assert opened(curator.account.data_dependent_rdp(ORDERS)) == pytest.approx(covered + lost)


def test_a_half_written_file_of_counts_is_no_file(ledger: Ledger, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curator = plain(ledger, Voters(50), private=private)
    curator.answer(questions(1))
    covered = opened(curator.account.data_dependent_rdp(ORDERS))

    def killed(file: Any, *_: Any, **__: Any) -> None:
        file.write(b"\x93NUMPY")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            curator.answer(questions(2))
    assert opened(curator.account.data_dependent_rdp(ORDERS)) == pytest.approx(covered + ORDERS / 8.0**2)


def test_what_others_did_in_the_same_book_has_its_full_price(ledger: Ledger, private: Path) -> None:
    curator = plain(ledger, Voters(50), private=private)
    curator.answer(questions(1, 2))
    own = opened(curator.account.data_dependent_rdp(ORDERS))
    other = Curator(Voters(50), Votes(CLASSES), GNMax(CLASSES, 6.0), ledger, private=private)
    other.answer(questions(1, 2, 3))
    ledger.charge(Gaussian(1.0, 5.0))
    ledger.charge(SmoothRelease(0.01, 9.0))
    beyond = 3 * ORDERS / 6.0**2 + ORDERS / (2 * 5.0**2) + accounting.smooth_release_rdp(0.01, 9.0, ORDERS)
    assert opened(curator.account.data_dependent_rdp(ORDERS)) == pytest.approx(own + beyond)


def test_after_a_look_the_account_is_infinite(ledger: Ledger, private: Path) -> None:
    curator = plain(ledger, private=private)
    curator.answer(questions(1))
    ledger.charge(NonPrivate("a look"))
    assert np.isinf(opened(curator.account.data_dependent_rdp(ORDERS))).all()


def test_the_account_counts_what_the_mechanism_counts(ledger: Ledger, private: Path) -> None:
    class Soft:
        """A codec whose ballots are shares: the mechanism makes whole votes of them, and so must the account."""

        bound: Bound = Simplex(CLASSES)
        key = "soft"

        def encode(self, predictions: np.ndarray) -> np.ndarray:
            return 0.05 + 0.5 * np.eye(CLASSES)[predictions]

        def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
            return codes

    curator = Curator(Voters(50), Soft(), GNMax(CLASSES, 8.0), ledger, private=private)
    curator.answer(questions(1))
    same_price(curator.account.data_dependent_rdp(ORDERS), consensus.gnmax_rdp(counts_of(50, 1), 8.0, ORDERS)[0])


def test_the_account_is_sealed(ledger: Ledger, private: Path) -> None:
    curator = plain(ledger, private=private)
    curator.answer(questions(1))
    account = curator.account.data_dependent_rdp(ORDERS)
    with pytest.raises(Unsealed):
        str(account)


# ── its release ───────────────────────────────────────────────────────────────────────────────────────────────────────

RELEASE, ORDER = SmoothNumber(0.01, 8.0), 5.0


def test_the_sanitised_figure_is_charged_once(ledger: Ledger, private: Path) -> None:
    curator = plain(ledger, private=private)
    curator.answer(questions(*range(20)))
    first = curator.account.sanitised_epsilon(RELEASE, order=ORDER)
    length = ledger.length
    assert [curator.account.sanitised_epsilon(RELEASE, order=ORDER) for _ in range(3)] == [first] * 3
    assert ledger.length == length
    assert dict(ledger.totals())[RELEASE.event()] == 1
    curator.answer(questions(100))  # another state of the book is another question
    curator.account.sanitised_epsilon(RELEASE, order=ORDER)
    assert dict(ledger.totals())[RELEASE.event()] == 2


@pytest.mark.parametrize("make", [plain, confident])
def test_the_sanitised_figure_is_the_account_plus_its_own_price_plus_noise(
    ledger: Ledger, private: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    curator = make(ledger, private=private)
    curator.answer(questions(*range(20)))
    ledger.charge(Gaussian(1.0, 9.0), count=2)
    scales = []
    monkeypatch.setattr(
        mechanisms, "rounded_gaussian", lambda scale, shape: scales.append(scale) or np.zeros(shape, dtype=np.int64)
    )
    account = float(opened(curator.account.data_dependent_rdp([ORDER]))[0])
    price = float(accounting.smooth_release_rdp(0.01, 8.0, ORDER)[0])
    expected = accounting.rdp_to_epsilon([account + price], [ORDER], DELTA)[0]
    assert curator.account.sanitised_epsilon(RELEASE, order=ORDER) == pytest.approx(expected, abs=1e-5)
    if make is plain:
        smooth = consensus.gnmax_smooth_sensitivity(counts_of(45, 20), 8.0, ORDER, 0.01, TEACHERS)
        assert scales == pytest.approx([8.0 * (smooth * 2**20 + 1)], rel=1e-3)
    else:
        answered = int(dict(ledger.totals())[curator.mechanism.event()])
        local = consensus.gnmax_local_sensitivity(counts_of(45, answered), 8.0, ORDER, TEACHERS).sum(axis=0)
        tests = consensus.threshold_local_sensitivity([45] * 20, curator.screen.effective_threshold, 8.0, ORDER, TEACHERS)
        smooth = consensus.discounted_max(local + tests.sum(axis=0), 0.01)
        assert scales == pytest.approx([8.0 * (smooth * 2**20 + 1)], rel=1e-3)


def test_the_sanitised_figure_pays_for_every_smooth_release(
    ledger: Ledger, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanisms, "rounded_gaussian", lambda scale, shape: np.zeros(shape, dtype=np.int64))
    curator = plain(ledger, private=private)
    curator.answer(questions(*range(20)))
    first = curator.account.sanitised_epsilon(RELEASE, order=ORDER)
    second = curator.account.sanitised_epsilon(SmoothNumber(0.01, 9.0), order=ORDER)
    assert second == pytest.approx(first + float(accounting.smooth_release_rdp(0.01, 9.0, ORDER)[0]), abs=1e-5)


@pytest.mark.parametrize(
    ("release", "order", "told"),
    [
        (RELEASE, 80.0, "conditions C5 and C6"),
        (RELEASE, 20.0, "conditions C5 and C6"),
        (SmoothNumber(0.2, 8.0), 5.0, r"`order` must be below 1/\(1 − e\^\(−2·beta\)\) = 3\.03"),
        (RELEASE, 1.0, "`orders` must be finite numbers > 1"),
        (RELEASE, math.nan, "`orders` must be finite numbers > 1"),
    ],
)
def test_a_figure_that_no_theorem_covers_is_refused_uncharged(
    ledger: Ledger, private: Path, release: SmoothNumber, order: float, told: str
) -> None:
    curator = plain(ledger, private=private)
    curator.answer(questions(1))
    length = ledger.length
    with pytest.raises(RecipeError, match=told):
        curator.account.sanitised_epsilon(release, order=order)
    assert ledger.length == length


def test_no_figure_of_nothing_and_no_charge_for_it(ledger: Ledger, private: Path) -> None:
    with pytest.raises(RecipeError, match="`private` must be a folder"):
        plain(ledger).account.sanitised_epsilon(RELEASE, order=ORDER)
    with pytest.raises(DataError, match="at least one answer"):
        plain(ledger, private=private).account.sanitised_epsilon(RELEASE, order=ORDER)
    with pytest.raises(RecipeError, match=r"`mechanism` must be GNMax for a smooth release\. Got LNMax"):
        Curator(Mute(), Votes(CLASSES), LNMax(CLASSES, 0.1), ledger, private=private).account.sanitised_epsilon(
            RELEASE, order=ORDER
        )
    assert ledger.length == 1


def test_a_figure_over_budget_is_refused_unread(tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(tmp_path / "b", Budget(1.0, DELTA)) as ledger:
        curator = plain(ledger, private=private)
        curator.answer(questions(1))
        monkeypatch.setattr(Sealed, "load", lambda path: pytest.fail("read without a charge"))
        with pytest.raises(BudgetExceeded):
            curator.account.sanitised_epsilon(SmoothNumber(0.01, 0.1), order=ORDER)


# ── at size ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Crowd:
    """A thousand teachers, who all say the input's last digit."""

    def vote(self, inputs: np.ndarray) -> Sealed:
        return Sealed(np.tile((inputs[:, 0] % CLASSES).astype(np.uint8), (1000, 1)))


class Spendthrift:
    """The twin: every vote as ten numbers of eight bytes."""

    key = "spendthrift"

    def __init__(self, codec: Votes) -> None:
        self.codec, self.bound = codec, codec.bound

    def encode(self, ballots: np.ndarray) -> np.ndarray:
        return self.codec.encode(ballots).astype(np.float64)

    def decode(self, codes: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(self.codec.decode(codes, inputs))


def peak(codec: Any, place: Path) -> float:
    """Give the most memory that 1,000 votes on each of 10,000 questions take, in GiB."""
    with Ledger(place, Budget(1e6, DELTA)) as book:
        curator = Curator(Crowd(), codec, GNMax(CLASSES, 40.0), book)
        tracemalloc.start()
        answers = curator.answer(np.arange(10_000.0)[:, None])
        most = tracemalloc.get_traced_memory()[1] / 2**30
        tracemalloc.stop()
    assert np.array_equal(answers, np.arange(10_000) % CLASSES)
    return most


def test_a_thousand_teachers_vote_on_ten_thousand_questions_in_little_memory(tmp_path: Path) -> None:
    assert peak(Votes(CLASSES), tmp_path / "book.sqlite") < 0.5
    assert peak(Spendthrift(Votes(CLASSES)), tmp_path / "other.sqlite") > 0.5
