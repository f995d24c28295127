"""The coordinator: one message to every site, and what comes back becomes one released answer, or nothing.

`trust = "coordinator"`: votes arrive in a seal, and leave it through the mechanism that adds the noise, after the coordinator's
own ledger was charged. `trust = "nobody"`: every site has added its part of the noise, and only the sum is ever seen.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol, final

import numpy as np
import numpy.typing as npt

from tutelage.data.dataset import Public
from tutelage.federation.certificates import SigningKey, private_folder, verified
from tutelage.federation.codes import VoteCodec
from tutelage.federation.envelope import Letter, disclosed, opened, packed, reply_key, signed, unpacked
from tutelage.federation.secure_sum import Advertisement, Collector, checked_advertisements
from tutelage.federation.site import answer_context, request_context
from tutelage.federation.study import NOTHING, Terms
from tutelage.privacy.errors import Error, FederationError, TooFewHospitals
from tutelage.privacy.files import write_whole
from tutelage.privacy.ledger import Ledger
from tutelage.privacy.mechanisms import SmoothNumber
from tutelage.privacy.oracle import Released
from tutelage.privacy.queries import Query
from tutelage.privacy.sealed import Sealed, quietly

Array = npt.NDArray[Any]
Say = Callable[[str], None]


class Transport(Protocol):
    """Carry bytes to sites and back. Nodes are numbers; who is behind one, its signature says."""

    def nodes(self) -> list[int]:
        """List the nodes that are connected now."""

    def exchange(self, bodies: Mapping[int, bytes], seconds: float) -> Iterator[tuple[int, bytes]]:
        """Send each node its bytes, and give answers as they come, until all are there or the time is over."""


@final
@dataclass
class Traffic:
    """Count the bytes and the seconds of a study, by phase: public facts."""

    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Write as plain data."""
        return {"sent_bytes": self.sent, "received_bytes": self.received, "seconds": self.seconds}


@final
class Coordinator:
    """Ask the hospitals of a study, each once, and release what they say together.

    A site that answers late, not at all, twice, in another form or for another request counts as absent, with one sentence in
    `remarks`. Fewer than the threshold, and nothing is released. `journal` is a folder for what a secure sum's rounds brought, so
    that another process can go on where this one was killed: keys, sealed shares and masked numbers, none of them a site's codes.
    """

    shards = "hospitals by node key; at each, patients by a keyed hash of their ids"

    def __init__(
        self,
        terms: Terms,
        key: SigningKey,
        transport: Transport,
        ledger: Ledger,
        *,
        seconds: float = 900.0,
        say: Say = lambda _: None,
        journal: Path | None = None,
    ) -> None:
        if key.public != terms.coordinator:
            raise FederationError("`key` must be the one that the study names. Got another instead.")
        terms.check()
        self.terms, self.key, self.transport, self.ledger = terms, key, transport, ledger
        self.seconds, self.say, self.journal = seconds, say, journal
        self.remarks: list[str] = []
        self.answered: list[str] = []
        self.traffic = Traffic()
        self._reading, self._reply_to = reply_key()
        self._nodes: dict[int, int] = {}  # place in the study → the engine's node

    # ── what an oracle does (tutelage.privacy.oracle) ─────────────────────────────────────────────────────────────────

    @property
    def plan(self) -> dict[str, Any]:
        """Say how this oracle answers, for a guarantee."""
        return self.terms.told()

    @property
    def codec(self) -> Any:
        """Give the study's codec."""
        return self.terms.codec.build()

    @property
    def run(self) -> str:
        """Name the study, as every ledger does."""
        return self.ledger.run

    @property
    def noise(self) -> float | None:
        """Give the deviation of the noise on every number of a mean if all hospitals answer; None where winners are released."""
        return None if isinstance(self.terms.codec, VoteCodec) else self.noise_of(len(self.terms.hospitals))

    def noise_of(self, hospitals: int) -> float:
        """Give the deviation of the noise on a mean of so many hospitals."""
        spread = 1.0 if self.terms.trust == "coordinator" else math.sqrt(hospitals * self.terms.share)
        return self.terms.sigma * spread / (hospitals * self.terms.teachers)

    @property
    def batch(self) -> int | None:
        """Ask about everything at once: each hospital gets one message."""
        return self.terms.queries

    def names(self, query: Query) -> list[str]:
        """Name every answer: the study, and the input's bytes."""
        return query.keys(json.dumps(["hospitals", self.terms.key]))

    def ask(self, query: Query, *, student_probs: npt.ArrayLike | None = None) -> Released:
        """Give one answer per public input. What was released before is given again, and nobody is asked."""
        names, inputs = self.names(query), self._rows(query)
        if student_probs is not None:
            raise FederationError("`student_probs` must be left out: hospitals are asked once. Got some instead.")
        known = self.ledger.recall(names)
        if len(known) < len(set(names)):
            if Public.of(inputs).sha256 != self.terms.public:
                raise FederationError("`query` must ask about the public inputs that the study names. Got others instead.")
            self._charge()
            released = self._central(inputs) if self.terms.trust == "coordinator" else self._secure(inputs)
            self.ledger.keep(names, released)
            known = self.ledger.recall(names)
        return Released(np.stack([known[name] for name in names]), tuple(names), lambda codes: self.decode(codes, inputs))

    def _rows(self, query: Query) -> Array:
        """Give the public inputs that are asked about. A statistic has none: what is asked stands in the study."""
        if query.kind != "statistic":
            return query.rows
        if dict(query.content) != self.terms.codec.model_dump(mode="json"):
            raise FederationError("`query` must ask for the statistic that the study names. Got another instead.")
        return NOTHING

    def known(self, query: Query, *, student_probs: npt.ArrayLike | None = None) -> bool:
        """Tell whether all of this was released before, so that nobody has to be asked."""
        names = self.names(query)
        return len(self.ledger.recall(names)) == len(set(names))

    def remaining(self, wanted: int | None = None, *, beside: SmoothNumber | None = None) -> int:
        """Tell how many more answers the study's own ledger holds; a hospital's is its own business."""
        room, rows = self.ledger.affordable(self.terms.event(self.ledger.budget.unit)), self.ledger.entries()
        if not any(row.kind == "release" and row.body.get("run") == self.run for row in rows):
            room += self._paid()  # for an attempt that was broken off: nothing was given for it
        return room if wanted is None else min(room, wanted)

    def _paid(self) -> int:
        event = self.terms.event(self.ledger.budget.unit)
        return sum(count for one, count in self.ledger.totals(run=self.run) if one == event)

    def decode(self, codes: Array, inputs: npt.ArrayLike) -> Array:
        """Turn released codes into answers."""
        return np.asarray(self.codec.decode(codes, np.asarray(inputs)))

    def reserve(self, rounds: int, template: Query) -> NoReturn:
        """Refuse: every round would be a message to every hospital."""
        raise FederationError("`rounds` of a conversation must be held on one machine. Got hospitals instead: ask them once.")

    def data_dependent_epsilon(self) -> None:
        """Give nothing: counts of hospitals are not kept."""

    def sanitised(self, release: SmoothNumber, *, order: float) -> None:
        """Give nothing, as there is no data-dependent price."""

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _charge(self) -> None:
        """Charge the study's own ledger before any site is asked; an attempt that was broken off gave nothing for its charge."""
        missing = self.terms.queries - self._paid()
        if missing > 0:
            self.ledger.charge(self.terms.event(self.ledger.budget.unit), count=missing)

    def _central(self, inputs: Array) -> Array:
        """Add the noise once, to sealed votes."""
        letters = self._round("contribute", {}, {"inputs": inputs})
        terms = self.terms
        labels = isinstance(terms.codec, VoteCodec)
        shape, kind = (terms.teachers, terms.queries), "u" if labels else "f"
        shape = shape if labels else (*shape, terms.codec.dimension)
        votes = {
            place: Sealed(letter.arrays["votes"])
            for place, letter in letters.items()
            if self._has(place, letter, "votes", shape, kind)
        }
        self._quorum(votes, "answered")
        mechanism = terms.mechanism(self.ledger.budget.unit, places=len(votes) * terms.teachers)
        ballots = Sealed.concatenate([one.map(terms.received) for one in votes.values()])  # a vote for no class is one for 0
        return quietly("contribute", lambda: mechanism.contribute(ballots), ours=Error)

    def _secure(self, inputs: Array) -> Array:
        """Collect masked sums, and see their total alone."""
        terms, quorum = self.terms, self.terms.quorum
        advertised: dict[int, Advertisement] = {}
        for place, letter in self._round("keys", {}, {}).items():
            if (one := self._try(functools.partial(self._keys, place, letter))) is not None:
                advertised[place] = one
        self._quorum(advertised, "took part")
        checked_advertisements(advertised, terms.key, terms.roster, quorum)
        told = {str(place): one.plain() for place, one in advertised.items()}
        letters = self._round("shares", {"advertised": told}, {}, only=list(advertised))
        shared = {
            place: {to: letter.arrays[f"to {to}"] for to in advertised if to != place}
            for place, letter in letters.items()
            if all(self._has(place, letter, f"to {to}", None, "u") for to in advertised if to != place)
        }
        self._quorum(shared, "gave shares")
        posts = {
            place: {"inputs": inputs, **{f"from {other}": given[place] for other, given in shared.items() if other != place}}
            for place in shared
        }
        letters = self._round("masked", {}, posts, only=list(shared), each=True)
        shape = (terms.queries, terms.codec.dimension)
        masked = {
            place: letter.arrays["masked"] for place, letter in letters.items() if self._has(place, letter, "masked", shape, "u")
        }
        self._quorum(masked, "sent numbers")
        letters = self._round("unmask", {"survivors": sorted(masked)}, {}, only=sorted(masked))
        given_away = {place: _shares(letter) for place, letter in letters.items()}
        self._quorum(given_away, "gave their shares")
        total = Collector(terms.key, quorum, advertised).total(sorted(shared), masked, given_away)
        return terms.mechanism(self.ledger.budget.unit, places=len(masked) * terms.teachers).combine([total])

    # ── rounds ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _round(
        self,
        phase: str,
        head: Mapping[str, Any],
        arrays: Mapping[Any, Any],
        *,
        only: list[int] | None = None,
        each: bool = False,
    ) -> dict[int, Letter]:
        """Send one signed request to every site, and keep the first good answer of each."""
        terms, context = self.terms, request_context(phase, self.terms.key)
        if (kept := self._journaled(phase)) is not None:
            return kept
        self.say(f"asking for «{phase}»")
        began = time.monotonic()
        whole = {**head, "phase": phase, "terms": terms.plain(), "nonce": secrets.token_hex(16), "reply_to": self._reply_to}
        if only is None:
            nodes = self._connected()
            body = signed(self.key, context, whole, arrays)
            bodies = dict.fromkeys(nodes, body)
        else:
            if not set(only) <= set(self._nodes):  # this process goes on where another one was killed
                self._meet()
            common = None if each else signed(self.key, context, whole, arrays)
            bodies = {
                self._nodes[place]: common or signed(self.key, context, whole, arrays[place])
                for place in only
                if place in self._nodes
            }
        digests = {node: hashlib.sha256(body).hexdigest() for node, body in bodies.items()}
        found: dict[int, Letter] = {}
        bodies_found: dict[int, bytes] = {}
        for node, answer in self.transport.exchange(bodies, self.seconds):
            self.traffic.received[phase] = self.traffic.received.get(phase, 0) + len(answer)
            step = functools.partial(self._read, phase, node, answer, digests.get(node, ""), found)
            if (taken := self._try(step)) is not None:
                place, inside = taken
                bodies_found[place] = inside
                self.say(f"{terms.hospitals[place].name} answered «{phase}»: {len(found)} of {len(bodies)}")
        self.traffic.sent[phase] = sum(map(len, bodies.values()))
        self.traffic.seconds[phase] = round(time.monotonic() - began, 3)
        if len(found) >= terms.threshold:
            self._journal(phase, bodies_found)
        return dict(sorted(found.items()))

    def _journal(self, phase: str, letters: Mapping[int, bytes]) -> None:
        """Keep a round's answers on disk before the next one is begun: a site decides once, so the study must, too."""
        if self.journal is None or self.terms.trust != "nobody":
            return
        private_folder(self.journal)
        arrays = {str(place): np.frombuffer(body, dtype=np.uint8) for place, body in letters.items()}
        path = self.journal / f"{self.terms.key}-{phase}"
        path.touch(mode=0o600)
        write_whole(path, packed({"phase": phase}, arrays))

    def _journaled(self, phase: str) -> dict[int, Letter] | None:
        path = None if self.journal is None else self.journal / f"{self.terms.key}-{phase}"
        if path is None or not path.is_file() or not path.stat().st_size:
            return None
        _, arrays = unpacked(path.read_bytes())
        context = answer_context(phase, self.terms.key)
        return {int(place): opened(body.tobytes(), context) for place, body in arrays.items()}

    def _read(self, phase: str, node: int, answer: bytes, digest: str, found: dict[int, Letter]) -> tuple[int, bytes]:
        """Take one answer, or say in one sentence why not."""
        if not answer:
            raise FederationError("a site must answer. Got an error of the engine instead.")
        inside = disclosed(answer, self._reading)
        letter = opened(inside, answer_context(phase, self.terms.key))
        roster = self.terms.roster
        if letter.by not in roster:
            raise FederationError("an answer must be signed by a hospital of the study. Got one by another key instead.")
        place = roster.index(letter.by)
        if letter.head.get("request") != digest:
            raise FederationError("an answer must be to the request that was sent. Got one to another request instead.")
        if place in found:
            raise FederationError(f"{self.terms.hospitals[place].name} must answer once. Got a second answer instead, left out.")
        if "refused" in letter.head:
            raise FederationError(f"{self.terms.hospitals[place].name} refused: {str(letter.head['refused'])[:500]}")
        found[place] = letter
        self._nodes[place] = node
        return place, inside

    def _meet(self) -> None:
        """Learn which node is which hospital again, by asking for keys that were given before."""
        journal, self.journal = self.journal, None
        try:
            self._round("keys", {}, {})
        finally:
            self.journal = journal

    def _connected(self) -> list[int]:
        """Wait until as many nodes are connected as the study has hospitals, or for a third of the time."""
        until = time.monotonic() + self.seconds / 3
        before = -1
        while len(nodes := self.transport.nodes()) < len(self.terms.hospitals) and time.monotonic() < until:
            if len(nodes) != before:
                self.say(f"{len(nodes)} of {len(self.terms.hospitals)} hospitals are connected")
                before = len(nodes)
            time.sleep(0.5)
        if len(nodes) < self.terms.threshold:
            raise TooFewHospitals(
                f"at least {self.terms.threshold} hospitals must be connected. Got {len(nodes)} instead; nothing was released."
            )
        return nodes

    def _try(self, step: Callable[[], Any]) -> Any:
        """Take one site's step; a failure is that site's alone."""
        try:
            return step()
        except Error as error:
            self._remark(str(error))
            return None

    def _remark(self, text: str) -> None:
        self.remarks.append(text)
        self.say(text)

    def _has(self, place: int, letter: Letter, name: str, shape: tuple[int, ...] | None, kind: str) -> bool:
        array = letter.arrays.get(name)
        if array is not None and array.dtype.kind == kind and (shape is None or array.shape == shape):
            return True
        got = "none" if array is None else f"{array.dtype} of shape {array.shape}"
        wanted = "numbers" if shape is None else f"shape {shape}"
        self._remark(f"`{name}` of {self.terms.hospitals[place].name} must have {wanted}. Got {got} instead; it was left out.")
        return False

    def _keys(self, place: int, letter: Letter) -> Advertisement:
        one = Advertisement.read(letter.head.get("advertised"))
        verified(self.terms.roster[place], one.signature, f"secure sum {self.terms.key}", one.content(place))
        return one

    def _quorum(self, some: Mapping[int, Any], what: str) -> None:
        if len(some) < self.terms.threshold:
            why = f" {self.remarks[-1]}" if self.remarks else ""
            raise TooFewHospitals(
                f"at least {self.terms.threshold} hospitals must have {what}. Got {len(some)} instead; nothing was released.{why}"
            )
        self.answered = [self.terms.hospitals[place].name for place in sorted(some)]


def _shares(letter: Letter) -> dict[int, tuple[str, bytes]]:
    found = {}
    for name, array in letter.arrays.items():
        kind, _, place = name.partition(" ")
        if kind in ("own", "pairs") and place.isdigit():
            found[int(place)] = (kind, array.tobytes())
    return found


@final
class Direct:
    """Carry bytes between sites and a coordinator in one process: the same Site, the same Coordinator, no engine."""

    def __init__(self, sites: Mapping[int, Callable[[bytes], bytes]]) -> None:
        self.sites = dict(sites)

    def nodes(self) -> list[int]:
        """List the sites."""
        return sorted(self.sites)

    def exchange(self, bodies: Mapping[int, bytes], seconds: float) -> Iterator[tuple[int, bytes]]:
        """Ask one site after the other."""
        for node, body in bodies.items():
            yield node, self.sites[node](body)
