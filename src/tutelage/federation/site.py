"""A hospital: it trains alone, and answers a study only as far as its own policy and its own ledgers allow.

Order of everything that leaves: the policy is asked, both ledgers are charged together, teachers answer, the answer is kept on
disk (sealed, under `private/`), and then it is given. The same request again is given the same bytes, and costs nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.federation.certificates import SigningKey, fingerprint, private_folder
from tutelage.federation.envelope import Letter, closed, key_of, opened, signed
from tutelage.federation.policy import Policy
from tutelage.federation.secure_sum import Advertisement, Party
from tutelage.federation.study import Terms, described
from tutelage.privacy.errors import DataError, Error, FederationError, HospitalRefused
from tutelage.privacy.files import parse_json, write_whole
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.sealed import Sealed, quietly

Array = npt.NDArray[Any]
PHASES = ("contribute", "keys", "shares", "masked", "unmask")


class Voters(Protocol):
    """Local teachers: whatever learned here."""

    def vote(self, inputs: Array) -> Sealed:
        """Give every local teacher's label, sealed: (teachers, queries)."""


def request_context(phase: str, study: str) -> str:
    """Name what a request's signature is for."""
    return f"request {phase} {study}"


def answer_context(phase: str, study: str) -> str:
    """Name what an answer's signature is for."""
    return f"answer {phase} {study}"


@final
class Site:
    """Answer requests in a hospital's name. `folder` holds the policy; what is private lies in its folder `private/`."""

    def __init__(self, policy: Policy, folder: Path, key: SigningKey, teachers: Voters) -> None:
        self.policy, self.folder, self.key, self.teachers = policy, folder, key, teachers
        self.private = private_folder(folder / "private")
        self.kept = private_folder(self.private / "kept")
        with self._ledgers():  # made now, so that a damaged one is refused before a study comes
            pass

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, body: bytes) -> bytes:
        """Answer one request. A refusal is an answer too: one sentence, signed, with nothing private in it."""
        phase, study, digest, reader = "unknown", "", "", None
        try:
            phase, study = _addressed(body)
            letter = opened(body, request_context(phase, study))
            closed(b"", str(letter.head.get("reply_to")))  # refused now, and not when there is an answer
            digest, reader = letter.sha256, str(letter.head["reply_to"])
            terms = self._checked(letter, study)
            with self._alone():
                head, arrays = self._answer(phase, terms, letter)
        except Error as error:
            head, arrays = {"refused": f"{type(error).__name__}: {error}"}, {}
        except Exception as error:  # its message may quote private values
            head, arrays = (
                {"refused": f"FederationError: {self.policy.name} failed with {type(error).__name__}; see its own terminal."},
                {},
            )
        said = {**head, "phase": phase, "study": study, "request": digest, "site": self.policy.name}
        answer = signed(self.key, answer_context(phase, study), said, arrays)
        return answer if reader is None else closed(answer, reader)

    def _checked(self, letter: Letter, study: str) -> Terms:
        """Refuse a request that is not of the study's own coordinator, or whose study this hospital does not allow."""
        terms = Terms.read(letter.head.get("terms"))
        if terms.key != study or letter.by != terms.coordinator:
            raise FederationError(
                f"a request must be signed by its study's coordinator. Got {fingerprint(letter.by)} for another study instead."
            )
        self.policy.check(terms, self.key.public, self.folder)
        return terms

    def _answer(self, phase: str, terms: Terms, letter: Letter) -> tuple[dict[str, Any], dict[str, Array]]:
        if (phase == "contribute") != (terms.trust == "coordinator"):
            raise HospitalRefused(f"a study with trust in {terms.trust} must not ask for «{phase}». Got such a request instead.")
        if phase == "contribute":
            return {}, {"votes": self._contribution(terms, letter)}
        party, save = self._party(terms)
        if phase == "keys":
            head: dict[str, Any] = {"advertised": party.advertise(self.key).plain()}
        elif phase == "shares":
            told = {int(place): Advertisement.read(one) for place, one in dict(letter.head.get("advertised", {})).items()}
            given = party.share(told)
            save()
            return {}, {f"to {place}": np.frombuffer(body, dtype=np.uint8) for place, body in given.items()}
        elif phase == "masked":
            return self._masked(terms, letter, party, save)
        else:
            given_away = party.unmask([int(place) for place in letter.head.get("survivors", [])])
            save()
            shares = {f"{kind} {place}": np.frombuffer(share, dtype=np.uint8) for place, (kind, share) in given_away.items()}
            return {}, shares
        save()
        return head, {}

    # ── what leaves ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _contribution(self, terms: Terms, letter: Letter) -> Array:
        """Give every local teacher's contribution, clipped, to a coordinator that this hospital trusts."""
        path = self.kept / f"{terms.key}-votes.npy"
        self._once(path, terms, letter, lambda inputs: self._ballots(terms, inputs).map(terms.sent))
        return _read_kept(path)

    def _masked(
        self, terms: Terms, letter: Letter, party: Party, save: Callable[[], None]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Give the sum of this hospital's votes with its part of the noise, under the masks of the secure sum."""
        path = self.kept / f"{terms.key}-noisy.npy"

        def made(inputs: Array) -> Sealed:
            mechanism = terms.mechanism(terms.unit(terms.promise.unit))
            ballots = self._ballots(terms, inputs)
            return Sealed(quietly("contribute", lambda: mechanism.contribute(ballots, share=terms.share), ours=Error))

        self._once(path, terms, letter, made)
        shares = {int(name.removeprefix("from ")): array.tobytes() for name, array in letter.arrays.items() if name != "inputs"}
        masked = party.mask(shares, _read_kept(path))
        save()
        return {}, {"masked": masked}

    def _ballots(self, terms: Terms, inputs: Array) -> Sealed:
        votes = quietly("vote", lambda: self.teachers.vote(inputs))
        ballots = votes.map(terms.codec.build().encode)
        if ballots.shape != (terms.teachers, terms.queries, terms.codec.dimension):
            raise DataError(f"local teachers must be {terms.teachers}, with one vote per input. Got another number instead.")
        return ballots

    def _once(self, path: Path, terms: Terms, letter: Letter, made: Callable[[Array], Sealed]) -> None:
        """Charge, act, keep: once per study. What was given before is given again for as long as it is kept.

        That it was given stands in the patients' ledger: a copy that somebody deleted is not made again with other noise.
        """
        self._forget()
        if not path.exists():
            if self._given(terms):
                raise HospitalRefused(
                    f"{self.policy.name} must not answer a study twice. Got a request again after its copy was deleted "
                    f"({self.policy.allow.keep_days} days) instead."
                )
            inputs = self._inputs(terms, letter)
            self._charge(terms)
            self._made(path, inputs, made)
        if not self._given(terms):
            with self._ledgers() as ledgers:
                ledgers["patient"].begin(terms.key, plan=terms.key)
                ledgers["patient"].note(given=terms.key)

    def _made(self, path: Path, inputs: Array, made: Callable[[Array], Sealed]) -> None:
        """Act and keep. Whatever fails here says one thing to the outside: which failure it was may depend on private records."""
        try:
            made(inputs).store(path)
            return
        except Exception as error:
            said = str(error) if isinstance(error, Error) else type(error).__name__
        # Raised outside the handler: the failed step's frames hold private values.
        with (self.private / "failures.log").open("a", encoding="utf-8") as log:
            os.fchmod(log.fileno(), 0o600)
            log.write(f"{said}\n")
        raise FederationError(
            f"{self.policy.name} must be able to answer. Got a failure instead, which its own failures.log names."
        )

    def _given(self, terms: Terms) -> bool:
        with self._ledgers() as ledgers:
            rows = ledgers["patient"].entries()
        return any(row.kind == "note" and row.body.get("given") == terms.key for row in rows)

    def _inputs(self, terms: Terms, letter: Letter) -> Array:
        inputs = letter.arrays.get("inputs")
        if inputs is None or inputs.ndim < 2 or len(inputs) != terms.queries or Public.of(inputs).sha256 != terms.public:
            raise HospitalRefused("public inputs must be those whose hash the study names. Got others instead; nothing was read.")
        return inputs

    def _charge(self, terms: Terms) -> None:
        """Charge patients and institution together, or refuse before either is. A crash in between wastes, and hides nothing."""
        with self._ledgers() as ledgers:
            due = []
            for name, ledger in ledgers.items():
                unit = ledger.budget.unit
                event = terms.event(unit)
                paid = sum(count for one, count in ledger.totals(run=terms.key) if one == event)
                missing = max(0, terms.queries - paid)  # a crash came after an earlier charge, and nothing was given for it
                if missing and ledger.affordable(event) < missing:
                    raise HospitalRefused(
                        f"{self.policy.name} must have budget left for {terms.queries:,} answers per {name}. "
                        f"Got room for {ledger.affordable(event):,} instead; nothing was read."
                    )
                due.append((ledger, event, missing))
            for ledger, event, missing in due:
                ledger.begin(terms.key, plan=terms.key)
                ledger.charge(event, count=missing)

    def _forget(self) -> None:
        """Delete kept answers that the policy keeps no longer; that they were given stays in the ledger."""
        until = time.time() - 86_400 * self.policy.allow.keep_days
        for path in self.kept.glob("*.npy"):
            if path.stat().st_mtime < until:
                path.unlink()

    # ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _party(self, terms: Terms) -> tuple[Party, Callable[[], None]]:
        """Give this site's part in the secure sum, as it stands, and what writes it down."""
        path = self.kept / f"{terms.key}-party.json"
        party = Party(terms.key, terms.roster.index(self.key.public), terms.roster, terms.quorum)
        if path.exists():
            party.resume(parse_json(path.read_text(encoding="utf-8")))

        def save() -> None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)  # its mode is there before its content
            os.close(descriptor)
            write_private_whole(path, json.dumps(party.state()))

        return party, save

    @contextmanager
    def _ledgers(self) -> Iterator[dict[str, Ledger]]:
        with ExitStack() as stack:
            found = {}
            for name, budget in self.policy.budgets().items():
                found[name] = stack.enter_context(Ledger(self.private / f"{name}.sqlite", budget))
            yield found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one request at a time through, also of several processes."""
        lock = os.open(self.private / "site.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    # ── what a policy's owner may want to know ────────────────────────────────────────────────────────────────────────

    def would_leave(self, terms: Terms) -> list[str]:
        """Say what a study would take out of this house, in bytes and in meaning, without reading anything private."""
        said = described(terms)
        try:
            self.policy.check(terms, self.key.public, self.folder)
        except HospitalRefused as refusal:
            return [*said, f"nothing would leave: {refusal}"]
        if self._given(terms):
            return [*said, "this study was answered before: the same bytes would leave again while they are kept, at no cost"]
        with self._ledgers() as ledgers:
            for name, ledger in ledgers.items():
                event = terms.event(ledger.budget.unit)
                room = ledger.affordable(event)
                if room < terms.queries:
                    return [*said, f"nothing would leave: the {name} ledger has room for {room:,} of {terms.queries:,} answers"]
                said.append(f"would charge the {name} ledger {terms.queries:,} × {event}")
        size = 8 * terms.queries * terms.codec.dimension
        if terms.trust == "coordinator":
            size = terms.teachers * terms.queries * terms.sent_bytes
            return [*said, f"would send {size:,} bytes: {terms.codec.meaning()}"]
        return [
            *said,
            f"would send {size:,} bytes: local sums plus this site's noise, under masks that only the sum takes away",
            f"would send {2 * 32 * len(terms.hospitals):,} bytes of keys and shares for the masks",
        ]


def write_private_whole(path: Path, text: str) -> None:
    """Write a private file whole or not at all."""
    before = os.umask(0o077)
    try:
        write_whole(path, text)
    finally:
        os.umask(before)


def _addressed(body: bytes) -> tuple[str, str]:
    """Read what a request is about before its signature is checked: the signature's context says it again."""
    try:
        size = int.from_bytes(body[:4], "big")
        at = 4 + size
        length = int.from_bytes(body[at : at + 8], "big")
        head = parse_json(body[at + 8 : at + 8 + length].decode())["head"]
        phase, terms = head["phase"], head["terms"]
        if phase not in PHASES:
            raise ValueError("not a phase")
    except Exception:
        raise FederationError("a request must name a phase and its study. Got other bytes instead.") from None
    return phase, key_of(terms)


def _read_kept(path: Path) -> Array:
    """Read an answer exactly as it was kept: what leaves is this file and nothing else."""
    found: Array = np.load(path, allow_pickle=False)
    return found
