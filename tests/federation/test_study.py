"""A whole study in one process: real messages, policies, ledgers and teachers, without the engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.federation.consortia import QUERIES, TEACHERS, Consortium, answered

from tutelage.federation.agreement import check_hospital
from tutelage.federation.certificates import SigningKey
from tutelage.federation.envelope import disclosed, key_of, opened, reply_key, signed
from tutelage.federation.site import answer_context, request_context
from tutelage.privacy.errors import Error, FederationError, LedgerError, TooFewHospitals
from tutelage.privacy.events import NoisyMax, SummedGaussian
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.sealed import Sealed
from tutelage.verification import verify


def test_a_study_is_released_and_every_ledger_agrees(three: Consortium) -> None:
    finished = three.run()
    assert finished.answered == three.names
    assert finished.remarks == []
    verdict = verify(three.root / "run")
    assert verdict.recomputed_epsilon <= 8.0
    assert verdict.events == QUERIES
    for name in three.names:
        kept = check_hospital(three.root / name, [three.root / "run"])
        assert [one.unit for one in kept] == ["patient", "institution"]
        assert all(one.agrees and one.spent_epsilon <= one.budget_epsilon for one in kept)
        with Ledger(three.root / name / "private" / "institution.sqlite") as ledger:
            assert [event.votes for event, _ in ledger.totals() if isinstance(event, NoisyMax)] == [TEACHERS]


def everything_held(made: Consortium, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, list[Any]]:
    """Run a secure study. Give all that its coordinator ever held, opened and on disk, and what each site wrote down."""
    from tutelage.federation.coordinator import Coordinator

    held: list[bytes] = []
    read = Coordinator._read

    def watching(self: Any, *given: Any) -> Any:
        place, inside = read(self, *given)
        held.append(inside)
        return place, inside

    monkeypatch.setattr(Coordinator, "_read", watching)
    made.run()
    held += [path.read_bytes() for path in (made.root / "run").rglob("*") if path.is_file()]
    return b"".join(held), [np.load(next((made.root / name / "private" / "kept").glob("*-noisy.npy"))) for name in made.names]


def test_a_secure_study_is_released_and_nobody_saw_a_part(four: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    held, written = everything_held(four, monkeypatch)
    verify(four.root / "run")
    with Ledger(four.root / "hospital-1" / "private" / "patient.sqlite") as ledger:
        (event, count), *_ = ledger.totals()
    assert count == QUERIES
    assert event == SummedGaussian(2**0.5, four.prepared().terms.sigma, parts=2)
    assert len(held) > 4 * 8 * QUERIES * 10
    for noisy in written:
        assert noisy.dtype == np.int64
        assert not any(row.tobytes()[:16] in held for row in noisy)
    for name in four.names:
        assert all(path.stat().st_mode & 0o077 == 0 for path in (four.root / name / "private").rglob("*") if path.is_file())


def test_without_masks_the_coordinator_holds_every_part(four: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin of the test above: streams of zeros."""
    from tutelage.federation import secure_sum

    monkeypatch.setattr(secure_sum, "_stream", lambda key, count: np.zeros(count, dtype=np.uint64))
    held, written = everything_held(four, monkeypatch)
    assert all(row.tobytes()[:16] in held for noisy in written for row in noisy)


def test_the_secure_sum_is_exact_on_the_grid(four: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's sum is the sum of what the sites wrote down, to the last bit."""
    seen: list[Any] = []
    from tutelage.federation import coordinator

    total = coordinator.Collector.total
    monkeypatch.setattr(coordinator.Collector, "total", lambda self, *given: seen.append(total(self, *given)) or seen[-1])
    four.run()
    noisy = [np.load(next((four.root / name / "private" / "kept").glob("*-noisy.npy"))) for name in four.names]
    assert np.array_equal(seen[0], np.sum(noisy, axis=0))


@pytest.mark.parametrize("phase", ["keys", "shares", "masked", "unmask"])
def test_a_site_that_vanishes_does_not_stop_a_secure_study(four: Consortium, phase: str) -> None:
    def vanish(handle: Callable[[bytes], bytes], body: bytes) -> list[bytes]:
        gone.append(phase) if f'"phase":"{phase}"'.encode() in body[:9000] else None
        return [] if gone else [handle(body)]

    gone: list[str] = []
    finished = four.run(four.transport(site2=vanish))
    assert gone
    assert len(finished.answered) == 3
    verify(four.root / "run")


def test_two_that_vanish_stop_it_and_nothing_is_released(four: Consortium) -> None:
    with pytest.raises(TooFewHospitals, match="nothing was released"):
        four.run(four.transport(site1=lambda handle, body: [], site2=lambda handle, body: []))
    assert not (four.root / "run" / "release").exists()


# ── charge, then act; keep, then give ─────────────────────────────────────────────────────────────────────────────────


class Watching:
    """Teachers that look at the ledgers when they are asked."""

    def __init__(self, place: Path, inside: Any) -> None:
        self.place, self.inside, self.charged = place, inside, []

    def vote(self, inputs: Any) -> Sealed:
        for unit in ("patient", "institution"):
            with Ledger(self.place / "private" / f"{unit}.sqlite") as ledger:
                self.charged.append(sum(count for _, count in ledger.totals()))
        return self.inside.vote(inputs)


def test_both_ledgers_are_charged_before_a_teacher_is_asked(three: Consortium) -> None:
    site = three.sites[0]
    site.teachers = Watching(three.root / "hospital-1", site.teachers)
    three.run()
    assert site.teachers.charged == [QUERIES, QUERIES]


class Failing:
    def vote(self, inputs: Any) -> Sealed:
        raise ValueError("patient-17 has a secret")


@pytest.mark.parametrize("trust", ["three", "four"])
def test_a_site_that_fails_is_charged_gives_nothing_and_says_nothing_private(trust: str, request: pytest.FixtureRequest) -> None:
    made: Consortium = request.getfixturevalue(trust)
    made.sites[0].teachers = Failing()
    transport = made.transport()
    finished = made.run(transport)
    assert "hospital-1" not in finished.answered
    assert made.charged(0, "patient") == made.charged(0, "institution") == QUERIES
    assert not any(b"secret" in body for _, body in transport.received)
    assert [text for text in finished.remarks if "hospital-1 must be able to answer" in text and "ValueError" not in text]
    log = made.root / "hospital-1" / "private" / "failures.log"
    assert "ValueError" in log.read_text(encoding="utf-8")
    assert "secret" not in log.read_text(encoding="utf-8")
    assert log.stat().st_mode & 0o077 == 0


def test_neither_ledger_is_charged_where_one_has_no_room(three: Consortium) -> None:
    three.rewrite("hospital-1/policy.toml", ("epsilon = 72.0", "epsilon = 1.0"))
    with pytest.raises(LedgerError, match="must be the one the book was opened with"):
        three.reopened()  # a policy cannot raise or lower the budget of data that was asked about already
    for file in (three.root / "hospital-1" / "private").glob("institution.sqlite*"):
        file.unlink()
    three.reopened()
    finished = three.run()
    assert finished.answered == ["hospital-2", "hospital-3"]
    assert any("must have budget left" in text for text in finished.remarks)
    assert three.charged(0, "patient") == three.charged(0, "institution") == 0


def test_a_second_study_finds_the_budget_spent(three: Consortium) -> None:
    three.run()
    three.rewrite("coordinator/study.toml", ('name = "digits"', 'name = "the same under another name"'))
    with pytest.raises(TooFewHospitals, match="must have budget left"):
        three.run(out="again")
    assert [three.charged(place, "patient") for place in range(3)] == [QUERIES] * 3


def test_the_same_request_is_given_the_same_bytes_and_is_free(three: Consortium) -> None:
    three.run()
    kept = next((three.root / "hospital-1" / "private" / "kept").glob("*-votes.npy"))
    before = kept.read_bytes(), kept.stat().st_mtime_ns
    three.reopened()
    three.sites[0].teachers = Failing()  # nobody is asked again
    assert three.run(out="again").answered == three.names
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before
    assert three.charged(0, "patient") == QUERIES


@pytest.mark.parametrize("how", ["after its days", "by hand"])
def test_a_deleted_answer_is_not_made_again(three: Consortium, how: str) -> None:
    three.run()
    for path in (three.root / "hospital-1" / "private" / "kept").glob("*.npy"):
        path.unlink() if how == "by hand" else os.utime(path, (0, 0))
    finished = three.run(out="again")
    assert any("must not answer a study twice" in text for text in finished.remarks)
    assert three.charged(0, "patient") == QUERIES


def test_a_crash_between_charge_and_answer_is_charged_once(three: Consortium) -> None:
    site = three.sites[0]
    good, site.teachers = site.teachers, Failing()
    three.run()
    site.teachers = good
    assert three.run(out="again").answered == three.names
    assert three.charged(0, "patient") == three.charged(0, "institution") == QUERIES


def test_a_full_disk_at_a_site_gives_nothing(three: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Sealed, path: Path) -> None:
        if "hospital-1" in path.parts:
            raise OSError(28, "No space left on device")
        store(self, path)

    store = Sealed.store
    monkeypatch.setattr(Sealed, "store", full)
    finished = three.run()
    assert finished.answered == ["hospital-2", "hospital-3"]
    assert [text for text in finished.remarks if "hospital-1 must be able to answer" in text]


def test_two_coordinators_do_not_share_a_folder(three: Consortium) -> None:
    from tutelage.runs import RunFolder

    with RunFolder(three.root / "run").create().locked(), pytest.raises(LedgerError):
        three.run(resume=True)


# ── crashes of the coordinator ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("crash", ["keys", "shares", "masked", "unmask"])
def test_a_coordinator_goes_on_after_a_crash(four: Consortium, crash: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(Exception):
        pass

    from tutelage.federation.coordinator import Coordinator

    real = Coordinator._round

    def breaking(self: Any, phase: str, *given: Any, **named: Any) -> Any:
        found = real(self, phase, *given, **named)
        if phase == crash:
            raise Killed
        return found

    monkeypatch.setattr(Coordinator, "_round", breaking)
    with pytest.raises(Killed):
        four.run()
    monkeypatch.setattr(Coordinator, "_round", real)
    finished = four.reopened().run(resume=True)
    assert finished.answered == four.names
    verify(four.root / "run")
    assert [four.charged(place, "patient") for place in range(4)] == [QUERIES] * 4


def test_a_finished_study_asks_nobody_again(three: Consortium) -> None:
    three.run()
    transport = three.transport()
    finished = three.run(transport, resume=True)
    assert transport.sent == []
    assert finished.scores


def test_a_study_that_was_changed_is_another_one(three: Consortium) -> None:
    three.run()
    three.rewrite("coordinator/study.toml", ("queries = 40", "queries = 30"))
    with pytest.raises(Error, match="must be the one that this folder was begun with"):
        three.run(resume=True)


# ── sites that misbehave ──────────────────────────────────────────────────────────────────────────────────────────────


def forged(three: Consortium, arrays: dict[str, Any], *, key: SigningKey | None = None, **changes: Any) -> Any:
    """Let a site answer something else, correctly signed by its own key or by another."""
    signer = key or three.sites[0].key
    return lambda handle, body: answered(body, three, arrays, key=signer, phase="contribute", **changes)


GOOD = np.zeros((TEACHERS, QUERIES), dtype=np.uint8)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"votes": GOOD[:, :-1]}, "must have shape"),
        ({"votes": np.full((TEACHERS, QUERIES), np.nan)}, "must have shape"),
        ({"votes": np.full((TEACHERS, QUERIES), 1e9)}, "must have shape"),
        ({"votes": np.zeros((TEACHERS + 1, QUERIES), dtype=np.uint8)}, "must have shape"),
        ({}, "Got none instead"),
    ],
)
def test_a_malformed_contribution_is_left_out(three: Consortium, arrays: dict[str, Any], sentence: str) -> None:
    finished = three.run(three.transport(site0=forged(three, arrays)))
    assert finished.answered == ["hospital-2", "hospital-3"]
    assert [text for text in finished.remarks if sentence in text]
    verify(three.root / "run")


def test_a_vote_for_no_class_moves_one_vote(three: Consortium) -> None:
    """A norm of a billion has nowhere to be written: what arrives is clipped again into one vote per teacher."""
    wild = np.full((TEACHERS, QUERIES), 255, dtype=np.uint8)
    assert three.run(three.transport(site0=forged(three, {"votes": wild}))).answered == three.names


def test_a_key_that_is_not_registered_is_left_out(three: Consortium) -> None:
    finished = three.run(three.transport(site0=forged(three, {"votes": GOOD}, key=SigningKey.new())))
    assert finished.answered == ["hospital-2", "hospital-3"]
    assert any("another key" in text for text in finished.remarks)


def test_another_studys_answer_is_left_out(three: Consortium) -> None:
    finished = three.run(three.transport(site0=forged(three, {"votes": GOOD}, study="0" * 64)))
    assert finished.answered == ["hospital-2", "hospital-3"]


def test_a_second_answer_is_left_out(three: Consortium) -> None:
    finished = three.run(three.transport(site0=lambda handle, body: [handle(body), handle(body)]))
    assert finished.answered == three.names
    assert [text for text in finished.remarks if "must answer once" in text]


def test_a_replayed_answer_is_left_out(three: Consortium) -> None:
    first = three.transport()
    three.run(first)
    old = next(body for node, body in first.received if node == 0)
    finished = three.run(three.transport(site0=lambda handle, body: old), out="again")
    assert finished.answered == ["hospital-2", "hospital-3"]
    assert any("closed for this coordinator" in text for text in finished.remarks)


@pytest.mark.parametrize("garbage", [b"", b"\0" * 100, b"PK\x03\x04", b"\xff" * 8])
def test_garbage_is_left_out(three: Consortium, garbage: bytes) -> None:
    finished = three.run(three.transport(site0=lambda handle, body: garbage))
    assert finished.answered == ["hospital-2", "hospital-3"]
    assert len(finished.remarks) == 1


def test_a_site_that_lies_in_a_secure_sum_stops_no_study(four: Consortium) -> None:
    """Wrong shares of the masks' keys are found by what each site had committed itself to."""

    def lie(handle: Callable[[bytes], bytes], body: bytes) -> bytes:
        answer = handle(body)
        if b'"phase":"unmask"' not in body[:9000]:
            return answer
        wrong = {f"own {place}": np.zeros(32, dtype=np.uint8) for place in range(4)}
        return answered(body, four, wrong, key=four.sites[1].key, phase="unmask")

    assert four.run(four.transport(site1=lie)).answered == four.names
    verify(four.root / "run")


# ── coordinators that misbehave ───────────────────────────────────────────────────────────────────────────────────────


def asked(
    made: Consortium, *, key: SigningKey | None = None, phase: str = "contribute", arrays: Any = None, **changes: Any
) -> Any:
    """Send a request to the first site, and give its refusal."""
    prepared, (private, public) = made.prepared(), reply_key()
    more = {name: changes.pop(name) for name in ("survivors",) if name in changes}
    plain = {**prepared.terms.plain(), **changes}
    study, given = key_of(plain), {"inputs": prepared.asked} if arrays is None else arrays
    head = {"phase": phase, "terms": plain, "nonce": "0", "reply_to": public, **more}
    answer = made.sites[0].handle(signed(key or prepared.key, request_context(phase, study), head, given))
    return opened(disclosed(answer, private), answer_context(phase, study)).head.get("refused")


def test_requests_that_a_hospital_does_not_allow_are_refused_before_anything_is_charged(three: Consortium) -> None:
    other = SigningKey.new()
    plain = three.prepared().terms.plain()
    wrong = {"inputs": three.prepared().asked + 1}
    cases = {
        "must be signed by its study's coordinator": asked(three, key=other),
        "must be signed by a key that hospital-1 knows": asked(three, key=other, coordinator=other.public),
        "must name hospital-1 with its own key": asked(three, hospitals=plain["hospitals"][1:]),
        "at least 2 hospitals must": asked(three, threshold=1),
        "those whose hash the study names": asked(three, arrays=wrong),
        "must be one that hospital-1 allows": asked(three, codec={"kind": "votes", "classes": 11}),
        "must count 3 teachers": asked(three, teachers=4),
        "must not ask for «unmask»": asked(three, phase="unmask"),
        "install one version everywhere": asked(three, version="tutelage-federation/0"),
    }
    for sentence, refusal in cases.items():
        assert refusal is not None, sentence
        assert sentence in refusal or "`threshold` must be at least 2 hospitals" in refusal, (sentence, refusal)
        assert "\n" not in refusal
    assert three.charged(0, "patient") == 0


def test_a_hospital_that_wants_a_secure_sum_gives_no_votes(three: Consortium) -> None:
    three.rewrite("hospital-1/policy.toml", ('secure_sum = "optional"', 'secure_sum = "required"'))
    three.reopened()
    assert "must be asked through a secure sum" in asked(three)
    assert three.charged(0, "patient") == 0


def test_a_hospital_that_tolerates_colluders_refuses_a_sum_that_does_not(four: Consortium) -> None:
    four.rewrite("hospital-1/policy.toml", ("keep_days = 30", "keep_days = 30\ntolerated_colluders = 1"))
    four.reopened()
    assert "must bear 1 colluders" in asked(four, phase="keys", arrays={})


def test_a_hospital_that_knows_its_peers_refuses_phantoms(three: Consortium) -> None:
    """A coordinator that lies about who takes part could isolate one site among hospitals of its own making."""
    three.rewrite(
        "hospital-1/policy.toml", ("keep_days = 30", 'keep_days = 30\nknown_hospitals = ["../coordinator/hospital-2.pub"]')
    )
    three.reopened()
    assert "must be known to hospital-1" in asked(three)


def test_a_request_that_was_changed_on_its_way_is_refused(three: Consortium) -> None:
    def changed(handle: Callable[[bytes], bytes], body: bytes) -> bytes:
        return handle(body[:-1] + bytes([body[-1] ^ 1]))

    finished = three.run(three.transport(site0=changed))
    assert finished.answered == ["hospital-2", "hospital-3"]
    assert three.charged(0, "patient") == 0


def test_survivors_are_decided_once(four: Consortium) -> None:
    four.run()
    assert "must be asked for its shares once" in asked(four, phase="unmask", survivors=[0, 1, 2], arrays={})


def test_what_the_engine_carries_is_closed(three: Consortium) -> None:
    """The engine keeps messages in its own database: no vote may be read there."""
    transport = three.transport()
    three.run(transport)
    kept = np.load(next((three.root / "hospital-1" / "private" / "kept").glob("*-votes.npy")))
    assert all(kept[0].tobytes() not in body for _, body in transport.received)
    for _, body in transport.received:
        with pytest.raises(FederationError):
            opened(body, answer_context("contribute", three.prepared().terms.key))
        with pytest.raises(FederationError, match="must be closed for this coordinator"):
            disclosed(body, reply_key()[0])


def test_a_ledger_without_the_studys_charge_does_not_agree(three: Consortium) -> None:
    three.run(three.transport(site0=lambda handle, body: []))
    with pytest.raises(LedgerError, match="did not take part"):
        check_hospital(three.root / "hospital-1", [three.root / "run"])


def test_what_would_leave_is_said_without_reading_anything(three: Consortium) -> None:
    from tutelage.federation.hospital import would_leave

    terms = three.root / "terms.json"
    terms.write_text(json.dumps(three.prepared().terms.plain()), encoding="utf-8")
    said = would_leave(three.root / "hospital-1" / "policy.toml", terms)
    assert f"would send {TEACHERS * QUERIES:,} bytes" in said[-1]
    three.run()
    kept = np.load(next((three.root / "hospital-1" / "private" / "kept").glob("*-votes.npy")))
    assert kept.nbytes == TEACHERS * QUERIES
    assert "was answered before" in would_leave(three.root / "hospital-1" / "policy.toml", terms)[-1]
    three.rewrite("hospital-1/policy.toml", ("min_hospitals = 2", "min_hospitals = 3"))
    assert "nothing would leave: at least 3 hospitals" in would_leave(three.root / "hospital-1" / "policy.toml", terms)[-1]


def test_a_coordinator_needs_its_own_key(three: Consortium) -> None:
    from tutelage.federation.coordinator import Coordinator

    prepared = three.prepared()
    with pytest.raises(FederationError, match="must be the one that the study names"):
        Coordinator(prepared.terms, SigningKey.new(), three.transport(), None)  # type: ignore[arg-type]


def test_whoever_learns_from_a_curator_learns_from_hospitals(three: Consortium, tmp_path: Path) -> None:
    """`learn` takes a Coordinator as it takes any oracle, and publishes a release of its own."""
    from tutelage.federation.coordinator import Coordinator
    from tutelage.federation.study import budget_of
    from tutelage.students.supervised import SupervisedStudent
    from tutelage.transfer import learn

    prepared = three.prepared()
    with Ledger(tmp_path / "study.sqlite", budget_of(prepared.terms)) as ledger:
        ledger.path.chmod(0o600)
        oracle = Coordinator(prepared.terms, prepared.key, three.transport(), ledger)
        student = lambda: SupervisedStudent("linear")  # noqa: E731
        given = {"student": student, "queries": QUERIES, "test": prepared.test}
        outcome = learn(oracle, prepared.public, out=tmp_path / "learned", **given)
        assert outcome.scores
        assert outcome.guarantee["plan"]["study"] == prepared.terms.key
    assert verify(tmp_path / "learned").events == QUERIES
    assert all(one.agrees for one in check_hospital(three.root / "hospital-1", [tmp_path / "learned"]))


def test_the_overview_shows_phases_and_budgets_and_no_data(three: Consortium) -> None:
    from tutelage.federation.overview import overview
    from tutelage.federation.status import Status

    Status(three.root / "hospital-1" / "private", who="hospital-1").write("waiting for a study")
    three.run()
    rows = {row["who"]: row for row in overview(three.root)}
    assert set(rows) == {"hospital-1", "coordinator"}
    assert rows["coordinator"]["phase"] == "done"
    assert "patient: ε 8 of 8 spent" in rows["hospital-1"]["budget_left"]
    assert "study: ε 8 of 8 spent" in rows["coordinator"]["budget_left"]
    with pytest.raises(Error, match="must hold a participant that was started"):
        overview(three.root / "hospital-2" / "data")
