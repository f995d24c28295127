"""A sum of which nobody sees the parts: exact when one vanishes, refused when it would be unsafe, and broken in its weak twin."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tutelage.federation import secure_sum
from tutelage.federation.certificates import SigningKey
from tutelage.federation.secure_sum import Advertisement, Collector, Party, Quorum
from tutelage.privacy.errors import FederationError, RecipeError, TooFewHospitals

KEYS = [SigningKey.new() for _ in range(5)]
ROSTER = [key.public for key in KEYS]
SHAPE = (7, 3)


class Protocol:
    """One secure sum, step by step, with every byte that the coordinator ever holds."""

    def __init__(self, sites: int, threshold: int, colluders: int = 0, study: str = "study") -> None:
        self.quorum = Quorum(sites, threshold, colluders)
        self.parties = [Party(study, place, ROSTER[:sites], self.quorum) for place in range(sites)]
        self.study, self.seen = study, bytearray()

    def advertise(self, alive: set[int]) -> dict[int, Advertisement]:
        self.advertised = {place: self.parties[place].advertise(KEYS[place]) for place in sorted(alive)}
        self.seen += json.dumps({place: one.plain() for place, one in self.advertised.items()}).encode()
        return self.advertised

    def share(self, alive: set[int]) -> None:
        self.shares = {place: self.parties[place].share(self.advertised) for place in sorted(alive)}
        self.seen += b"".join(body for given in self.shares.values() for body in given.values())

    def mask(self, alive: set[int], values: list[Any]) -> None:
        sent = {place: {other: given[place] for other, given in self.shares.items() if other != place} for place in sorted(alive)}
        self.masked = {place: self.parties[place].mask(some, values[place]) for place, some in sent.items()}
        self.seen += b"".join(one.tobytes() for one in self.masked.values())

    def unmask(self, alive: set[int]) -> Any:
        self.given = {place: self.parties[place].unmask(sorted(self.masked)) for place in sorted(alive)}
        self.seen += b"".join(share for given in self.given.values() for _, share in given.values())
        return Collector(self.study, self.quorum, self.advertised).total(sorted(self.shares), self.masked, self.given)


def drawn(sites: int) -> list[Any]:
    return list(np.random.default_rng(3).integers(-(2**62), 2**62, (sites, *SHAPE)))


def run(
    sites: int, threshold: int, colluders: int = 0, *, gone: int | None = None, before: str = "", values: Any = None
) -> tuple[Protocol, Any, Any]:
    """Run it all, with one site gone before a step. Give the protocol, its sum, and what the sum must be."""
    protocol, alive, values = Protocol(sites, threshold, colluders), set(range(sites)), values or drawn(sites)

    def at(step: str) -> set[int]:
        if step == before:
            alive.discard(-1 if gone is None else gone)
        return alive

    protocol.advertise(at("advertise"))
    protocol.share(at("share"))
    protocol.mask(at("mask"), values)
    total = protocol.unmask(at("unmask"))
    with np.errstate(over="ignore"):
        expected = np.sum([values[place] for place in protocol.masked], axis=0)
    return protocol, total, expected


@pytest.mark.parametrize("before", ["advertise", "share", "mask", "unmask"])
@pytest.mark.parametrize("gone", [0, 2, 3])
def test_one_site_may_vanish_at_any_point(gone: int, before: str) -> None:
    protocol, total, expected = run(4, 3, gone=gone, before=before)
    assert np.array_equal(total, expected)
    assert (gone in protocol.masked) is (before == "unmask")


def test_the_sum_wraps_around_as_64_bits_do() -> None:
    values = [np.full(SHAPE, 2**63 - 1, dtype=np.int64) for _ in range(3)]
    _, total, _ = run(3, 3, values=values)
    assert (total == ((3 * (2**63 - 1) + 2**63) % 2**64) - 2**63).all()


# ── what the coordinator holds ────────────────────────────────────────────────────────────────────────────────────────


def planted(sites: int) -> list[Any]:
    """Codes that nobody else would write by chance: eight bytes of a pattern in every cell."""
    return [np.full(SHAPE, 0x5EC0DE5EC0DE0000 + place, dtype=np.int64) for place in range(sites)]


@pytest.mark.parametrize("before", ["", "mask", "unmask"])
def test_nothing_that_the_coordinator_holds_contains_a_sites_codes(before: str) -> None:
    values = planted(4)
    protocol, total, expected = run(4, 3, gone=1, before=before, values=values)
    assert np.array_equal(total, expected)
    for value in values:
        assert value[0, :1].tobytes() not in protocol.seen
    # Own streams are opened by design: without them the pairs' masks still cover every number.
    for place, masked in protocol.masked.items():
        shares = [(giver, given[place][1]) for giver, given in protocol.given.items()][:3]
        key = secure_sum._derived(secure_sum._joined(shares), "study", f"own {place}")
        left = masked.reshape(-1) - secure_sum._stream(key, masked.size)
        assert not np.isin(left, values[place].view(np.uint64)).any()


def test_without_masks_the_pattern_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: streams of zeros."""
    monkeypatch.setattr(secure_sum, "_stream", lambda key, count: np.zeros(count, dtype=np.uint64))
    values = planted(4)
    protocol, _, _ = run(4, 3, values=values)
    assert all(value[0, :1].tobytes() in protocol.seen for value in values)


# ── masks from few bits ───────────────────────────────────────────────────────────────────────────────────────────────

_SPACE = 1 << 11  # in place of Flower's 2³²: the same attack, small enough for a test


def folded(key: bytes, count: int) -> Any:
    """Expand a mask as Flower's SecAgg+ does: fold the key into one small seed, then the Mersenne Twister."""
    words = np.frombuffer(key, dtype="<u4")
    seed = int(np.bitwise_xor.reduce(words)) % _SPACE
    return np.random.RandomState(seed).randint(0, 2**63, count, dtype=np.uint64)


def broken_into(protocol: Protocol, victim: int, stream: Callable[[bytes, int], Any]) -> Any:
    """Attack one of three sites: its own stream opens by design, one peer colludes, the other pair's seed is tried out."""
    masked = protocol.masked[victim].reshape(-1)
    shares = [(giver, given[victim][1]) for giver, given in protocol.given.items()]
    left = masked - stream(secure_sum._derived(secure_sum._joined(shares[:3]), "study", f"own {victim}"), masked.size)
    colluder, honest = (place for place in range(3) if place != victim)
    secret = base64.b64decode(protocol.masks[colluder])
    known = secure_sum._agreed(secret, protocol.advertised[victim].masks)
    mask = stream(
        secure_sum._derived(known, "study", f"mask {min(victim, colluder)} {max(victim, colluder)} among 0,1,2"), masked.size
    )
    left = left - mask if victim < colluder else left + mask
    for seed in range(_SPACE):
        guess = np.random.RandomState(seed).randint(0, 2**63, masked.size, dtype=np.uint64)
        found = (left - guess if victim < honest else left + guess).view(np.int64)
        if (found >= 0).all() and (found <= 25).all():  # votes of 25 teachers
            return found
    return None


@pytest.mark.parametrize("weak", [True, False])
def test_masks_of_few_bits_are_broken_and_ours_are_not(weak: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if weak:
        monkeypatch.setattr(secure_sum, "_stream", folded)
    votes = [np.random.default_rng(place).integers(0, 26, SHAPE) for place in range(3)]
    protocol = Protocol(3, 3)
    protocol.advertise({0, 1, 2})
    protocol.masks = [party.state()["secrets"]["masks"] for party in protocol.parties]
    protocol.share({0, 1, 2})
    protocol.mask({0, 1, 2}, votes)
    assert np.array_equal(protocol.unmask({0, 1, 2}), sum(votes))
    found = broken_into(protocol, 0, secure_sum._stream)
    assert (found is not None) is weak
    if weak:
        assert np.array_equal(found, votes[0].reshape(-1))


def test_a_mask_takes_all_bits_of_its_key() -> None:
    """Keys that differ in one bit, anywhere, give unrelated streams: there is no folding to 32 bits."""
    key = bytes(range(32))
    streams = {secure_sum._stream(key, 4).tobytes()}
    for bit in range(256):
        other = bytearray(key)
        other[bit // 8] ^= 1 << bit % 8
        streams.add(secure_sum._stream(bytes(other), 4).tobytes())
    twin = bytearray(key)
    twin[0], twin[4] = twin[4], twin[0]  # the same XOR of words
    assert len(streams | {secure_sum._stream(bytes(twin), 4).tobytes()}) == 258


# ── who may take part, and how many ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("sites", "threshold", "colluders"), [(2, 2, 0), (3, 2, 0), (4, 3, 1), (8, 5, 1), (10, 6, 1), (5, 3, 0)])
def test_unsafe_numbers_are_refused(sites: int, threshold: int, colluders: int) -> None:
    with pytest.raises(TooFewHospitals):
        Quorum(sites, threshold, colluders).check_secure()


@pytest.mark.parametrize(("sites", "threshold", "colluders", "parts"), [(3, 3, 0, 2), (4, 3, 0, 2), (8, 6, 1, 5), (5, 4, 1, 3)])
def test_noise_is_divided_among_those_who_stay_unknown(sites: int, threshold: int, colluders: int, parts: int) -> None:
    quorum = Quorum(sites, threshold, colluders)
    quorum.check_secure()
    assert quorum.noise_parts == parts


def stories(sites: int, threshold: int, place: int) -> list[tuple[frozenset[int], frozenset[int] | None]]:
    """List all that one honest site can be told: who takes part (it among them), and who of these survived, or nothing."""
    found: list[tuple[frozenset[int], frozenset[int] | None]] = []
    for size in range(threshold, sites + 1):
        for told in map(frozenset, itertools.combinations(range(sites), size)):
            if place in told:
                found.append((told, None))
                alive = (map(frozenset, itertools.combinations(told, some)) for some in range(threshold, size + 1))
                found += [(told, one) for some in alive for one in some]
    return found


def smallest_opened(sites: int, threshold: int, colluders: int) -> int:
    """Tell every honest site every story, and give the fewest sites whose sum opens. The last sites collude."""
    honest, wanted, least = range(sites - colluders), threshold - colluders, sites
    for heard in itertools.product(*(stories(sites, threshold, place) for place in honest)):
        own = [sum(one is not None and place in told and place in one for told, one in heard) for place in range(sites)]
        gone = [sum(one is not None and place in told and place not in one for told, one in heard) for place in range(sites)]
        assert not any(own[place] >= wanted and gone[place] >= wanted for place in range(sites))
        for told in {told for told, _ in heard}:
            among = [place for place in honest if heard[place][0] == told] + [place for place in told if place not in honest]
            opened = [place for place in among if own[place] >= wanted or place not in honest]
            rest = told - set(opened)
            if set(opened) & set(honest) and all(gone[place] >= wanted for place in rest):
                least = min(least, len(opened))
    return least


@pytest.mark.parametrize(("sites", "threshold", "colluders"), [(3, 3, 0), (4, 3, 0), (4, 4, 1)])
def test_no_lie_opens_a_smaller_sum(sites: int, threshold: int, colluders: int) -> None:
    """Try every story that a coordinator can tell: whatever opens has as many sites as the threshold."""
    Quorum(sites, threshold, colluders).check_secure()
    assert smallest_opened(sites, threshold, colluders) >= threshold


def test_below_the_least_threshold_a_lie_does() -> None:
    """The broken twin: 3 of 5, where two stories open the sum of two sites."""
    sites, threshold = 5, 3
    told = frozenset(range(sites))
    heard = [(told, frozenset({0, 1, 2})), (told, frozenset({0, 1, 3})), (told, frozenset({0, 1, 4}))]
    gone = [sum(place not in alive for _, alive in heard) for place in range(sites)]
    own = [sum(place in alive for _, alive in heard) for place in range(sites)]
    assert [place for place in range(sites) if own[place] >= threshold] == [0, 1]
    assert all(count >= 2 for count in gone[2:])  # one more honest site that says so, and the rest opens
    assert not Quorum(sites, threshold).secure


def test_sites_that_were_told_of_different_sets_do_not_cancel() -> None:
    protocol, values = Protocol(4, 3), drawn(4)
    protocol.advertise({0, 1, 2, 3})
    protocol.share({0, 1, 2, 3})
    told = {0: {1, 2}, 1: {0, 2}, 2: {0, 1, 3}}  # the last one hears of a fourth
    protocol.masked = {
        place: protocol.parties[place].mask({other: protocol.shares[other][place] for other in others}, values[place])
        for place, others in told.items()
    }
    protocol.shares.pop(3)
    assert not np.array_equal(protocol.unmask({0, 1, 2}), np.sum(values[:3], axis=0))


def test_keys_that_a_site_did_not_sign_for_this_study_are_refused() -> None:
    protocol, other = Protocol(3, 3), Protocol(3, 3, study="another study")
    protocol.advertise({0, 1, 2})
    replayed = {**protocol.advertised, 1: other.advertise({1})[1]}
    with pytest.raises(FederationError, match="must be signed by the key"):
        protocol.parties[0].share(replayed)
    stolen = Party("study", 1, ROSTER[:3], protocol.quorum).advertise(KEYS[4])  # an unregistered key in site 2's place
    with pytest.raises(FederationError, match="must be signed by the key"):
        protocol.parties[0].share({**protocol.advertised, 1: stolen})
    moved = {0: protocol.advertised[0], 1: protocol.advertised[2], 2: protocol.advertised[1]}
    with pytest.raises(FederationError, match="must be signed by the key"):
        protocol.parties[0].share(moved)


def test_a_site_masks_and_unmasks_once() -> None:
    protocol, values = Protocol(4, 3), drawn(4)
    protocol.advertise({0, 1, 2, 3})
    protocol.share({0, 1, 2, 3})
    protocol.mask({0, 1, 2, 3}, values)
    sent = {other: given[0] for other, given in protocol.shares.items() if other != 0}
    assert np.array_equal(protocol.parties[0].mask(sent, values[0]), protocol.masked[0])  # the same again
    with pytest.raises(FederationError, match="mask its numbers once"):
        protocol.parties[0].mask(sent, values[1])
    protocol.parties[0].unmask([0, 1, 2, 3])
    with pytest.raises(FederationError, match="asked for its shares once"):
        protocol.parties[0].unmask([0, 1, 2])
    with pytest.raises(FederationError, match="before it gives shares away"):
        protocol.parties[0].mask(sent, values[0])
    with pytest.raises(TooFewHospitals):
        protocol.parties[1].unmask([0, 1])


def test_a_site_goes_on_after_a_crash() -> None:
    protocol, values = Protocol(3, 3), drawn(3)
    protocol.advertise({0, 1, 2})
    protocol.share({0, 1, 2})
    state = json.loads(json.dumps(protocol.parties[1].state()))
    protocol.parties[1] = Party("study", 1, ROSTER[:3], protocol.quorum).resume(state)
    protocol.mask({0, 1, 2}, values)
    with np.errstate(over="ignore"):
        assert np.array_equal(protocol.unmask({0, 1, 2}), np.sum(values, axis=0))
    assert protocol.parties[1].state()["secrets"] == {}


def test_a_wrong_share_is_left_out_where_enough_are_right() -> None:
    protocol, values = Protocol(4, 3), drawn(4)
    protocol.advertise({0, 1, 2, 3})
    protocol.share({0, 1, 2, 3})
    protocol.mask({0, 1, 2, 3}, values)
    protocol.unmask({0, 1, 2, 3})
    lies = {place: (kind, bytes(32)) for place, (kind, _) in protocol.given[0].items()}
    collector = Collector("study", protocol.quorum, protocol.advertised)
    with np.errstate(over="ignore"):
        expected = np.sum(values, axis=0)
    assert np.array_equal(collector.total([0, 1, 2, 3], protocol.masked, {**protocol.given, 0: lies}), expected)
    with pytest.raises(FederationError, match="nothing was released"):
        collector.total([0, 1, 2, 3], protocol.masked, {**protocol.given, 0: lies, 1: lies})
    with pytest.raises(TooFewHospitals, match="nothing was released"):
        collector.total([0, 1, 2, 3], protocol.masked, {place: protocol.given[place] for place in (0, 1)})


def test_shares_for_another_site_do_not_open() -> None:
    protocol = Protocol(3, 3)
    protocol.advertise({0, 1, 2})
    protocol.share({0, 1, 2})
    with pytest.raises(FederationError, match="sealed for this site"):
        protocol.parties[0].mask({1: protocol.shares[1][2], 2: protocol.shares[2][0]}, drawn(3)[0])


@pytest.mark.parametrize("values", [{"sites": 0, "threshold": 1}, {"sites": 3, "threshold": 4}, {"sites": 3, "threshold": True}])
def test_numbers_that_are_none_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        Quorum(**values)
