"""A sum of which nobody sees the parts: Bonawitz et al. 2017 with masks from full 256-bit secrets, modulo 2⁶⁴.

Every two sites agree on a secret by X25519, under keys that their node keys signed for this study alone. HKDF-SHA256 turns it
into a ChaCha20 key, whose stream one of them adds to its numbers and the other subtracts. Each site adds one stream more, of its
own. Shares of both secrets (Shamir, pycryptodome) lie with all sites, under ChaCha20-Poly1305, so that the streams of a site
that vanishes can be taken away. For every site a survivor gives away one of two shares, never both: which one, it decides once.

Numbers are 64-bit integers and wrap around; what is summed carries its noise already. Not Flower's SecAgg+: there each mask is
expanded from 32 bits by a Mersenne Twister, which 2³² trials undo.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tutelage.federation.certificates import SigningKey, verified
from tutelage.privacy.errors import FederationError, RecipeError, TooFewHospitals

Words = npt.NDArray[np.uint64]
HONEST = 3  # sites that pool nothing, at least: of two, each would know the other's part
_HALF = 16  # bytes that Shamir's scheme shares at once
_TRIES = 512  # choices of shares that are tried before the sum is given up


# ── how many must answer ──────────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class Quorum:
    """Fix, before anything is read, how many sites take part, how many must answer, and how many may pool what they know."""

    sites: int
    threshold: int
    colluders: int = 0

    def __post_init__(self) -> None:
        for name, least in (("sites", 1), ("threshold", 1), ("colluders", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise RecipeError(f"`{name}` must be a whole number ≥ {least}. Got {value!r} instead.")
        if self.threshold > self.sites:
            raise RecipeError(f"`threshold` must be at most the {self.sites} sites. Got {self.threshold} instead.")

    def check_secure(self) -> None:
        """Refuse numbers under which a coordinator could see the sum of fewer sites than the threshold."""
        if self.threshold - self.colluders < HONEST:
            raise TooFewHospitals(
                f"`threshold` minus `colluders` must be at least {HONEST} honest sites for a secure sum. "
                f"Got {self.threshold} − {self.colluders} instead."
            )
        if not all(self._holds(some) for some in range(self.colluders + 1)):
            least = next((t for t in range(1, self.sites + 1) if Quorum(self.sites, t, self.colluders).secure), None)
            wanted = f"`threshold` must be at least {least}" if least else "`colluders` must be fewer"
            raise TooFewHospitals(
                f"{wanted} of {self.sites} sites with {self.colluders} colluders: below, a coordinator that tells different "
                f"stories of who vanished sees the sum of too few. Got a threshold of {self.threshold} instead."
            )

    @property
    def secure(self) -> bool:
        """Tell whether a secure sum may be asked with these numbers."""
        return self.threshold - self.colluders >= HONEST and all(self._holds(some) for some in range(self.colluders + 1))

    def _holds(self, colluders: int) -> bool:
        """Tell whether every sum that can be opened has at least `threshold` sites in it, and no site's two secrets open.

        Proof: docs/theory/secure_sum.md. `inside` sites are told of one set of n sites, the other honest ones of others. A site
        told of n can say of n − t that they vanished, and t − c honest ones must say so before a vanished site's masks open.
        """
        sites, threshold = self.sites, self.threshold
        if threshold <= colluders or 2 * threshold <= sites + colluders:
            return False
        for told in range(threshold, sites + 1):
            for inside in range(max(0, told - colluders), min(told, sites - colluders) + 1):
                outside = sites - colluders - inside
                said = inside * (told - threshold) + outside * (sites - threshold)
                if told - said // (threshold - colluders) < threshold:
                    return False
        return True

    @property
    def noise_parts(self) -> int:
        """Tell among how many sites the noise is divided: the threshold without those who know their own part.

        One at least: a hospital that reads the release knows what noise it added.
        """
        return self.threshold - max(self.colluders, 1)


# ── what travels ──────────────────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass(frozen=True)
class Advertisement:
    """Hold a site's two public keys and a commitment to its own stream, signed by its node key for one study."""

    channel: bytes
    masks: bytes
    commitment: bytes
    signature: bytes

    def content(self, place: int) -> bytes:
        """Give what is signed."""
        return place.to_bytes(4, "big") + self.channel + self.masks + self.commitment

    def plain(self) -> dict[str, str]:
        """Write as plain data."""
        return {name: _text(getattr(self, name)) for name in ("channel", "masks", "commitment", "signature")}

    @classmethod
    def read(cls, plain: Any) -> Advertisement:
        """Read plain data."""
        try:
            made = cls(**{name: _bytes(plain[name]) for name in ("channel", "masks", "commitment", "signature")})
        except Exception:
            raise FederationError(
                "an advertisement must hold two keys, a commitment and a signature. Got others instead."
            ) from None
        if {len(made.channel), len(made.masks), len(made.commitment)} != {32}:
            raise FederationError("an advertisement's keys must be 32 bytes long. Got others instead.")
        return made


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _derived(secret: bytes, context: str, purpose: str) -> bytes:
    """Derive a key of 32 bytes for one purpose in one study."""
    salt = hashlib.sha256(context.encode()).digest()
    return HKDF(hashes.SHA256(), 32, salt, f"tutelage secure sum/1 {purpose}".encode()).derive(secret)


def _stream(key: bytes, count: int) -> Words:
    """Expand a key of 32 bytes into 64-bit words, each used once in all."""
    encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * count)), dtype="<u8")


def _commitment(seed: bytes, context: str, place: int) -> bytes:
    return hashlib.sha256(b"own stream" + place.to_bytes(4, "big") + context.encode() + seed).digest()


def _agreed(mine: bytes, theirs: bytes) -> bytes:
    try:
        return X25519PrivateKey.from_private_bytes(mine).exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:  # a point of small order
        raise FederationError("a site's public key must lead to a secret. Got one that leads to none instead.") from None


def _pair(mine: bytes, theirs: bytes, context: str, pair: tuple[int, int], told: Sequence[int], count: int) -> Words:
    """Give the stream of two sites. It depends on all sites that they were told of: those told of others do not cancel."""
    low, high = sorted(pair)
    purpose = f"mask {low} {high} among {','.join(map(str, sorted(told)))}"
    return _stream(_derived(_agreed(mine, theirs), context, purpose), count)


def _split(secret: bytes, threshold: int, sites: int) -> list[bytes]:
    from Crypto.Protocol.SecretSharing import Shamir

    halves = [Shamir.split(threshold, sites, secret[at : at + _HALF]) for at in (0, _HALF)]
    return [low + high for (_, low), (_, high) in zip(*halves, strict=True)]


def _joined(shares: Sequence[tuple[int, bytes]]) -> bytes:
    from Crypto.Protocol.SecretSharing import Shamir

    return b"".join(Shamir.combine([(place + 1, share[at : at + _HALF]) for place, share in shares]) for at in (0, _HALF))


# ── one site ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@final
@dataclass
class Party:
    """Take one site's part, once. Its state is secret: keep `state()` where private data lies, and `wipe` it afterwards.

    `context` names the study by its hash, `roster` lists all sites' node keys in the study's order, `place` is this site's.
    """

    context: str
    place: int
    roster: Sequence[str]
    quorum: Quorum
    _secrets: dict[str, str] = field(default_factory=dict)
    _public: dict[str, Any] = field(default_factory=dict)  # what was sent and received, by step

    def __post_init__(self) -> None:
        self.quorum.check_secure()
        if len(self.roster) != self.quorum.sites or len(set(self.roster)) != len(self.roster):
            raise RecipeError(f"`roster` must list {self.quorum.sites} different keys. Got {len(set(self.roster))} instead.")

    def state(self) -> dict[str, Any]:
        """Give everything that a process which goes on needs: secret."""
        return {"secrets": dict(self._secrets), "public": dict(self._public)}

    def resume(self, state: Mapping[str, Any]) -> Party:
        """Go on from a state of the same study."""
        self._secrets, self._public = dict(state["secrets"]), dict(state["public"])
        return self

    def wipe(self) -> None:
        """Forget every secret; what was answered stays."""
        self._secrets = {}

    def advertise(self, key: SigningKey) -> Advertisement:
        """Draw the study's keys and sign their public halves. The same again when asked again."""
        if "advertised" not in self._public:
            channel, masks, seed = X25519PrivateKey.generate(), X25519PrivateKey.generate(), os.urandom(32)
            self._secrets = {
                "channel": _text(channel.private_bytes_raw()),
                "masks": _text(masks.private_bytes_raw()),
                "seed": _text(seed),
            }
            made = Advertisement(
                channel.public_key().public_bytes_raw(),
                masks.public_key().public_bytes_raw(),
                _commitment(seed, self.context, self.place),
                b"",
            )
            signature = key.sign(f"secure sum {self.context}", made.content(self.place))
            self._public["advertised"] = Advertisement(made.channel, made.masks, made.commitment, signature).plain()
        return Advertisement.read(self._public["advertised"])

    def share(self, advertised: Mapping[int, Advertisement]) -> dict[int, bytes]:
        """Check everybody's keys, and give each a sealed share of both secrets."""
        if "shared" not in self._public:
            checked_advertisements(advertised, self.context, self.roster, self.quorum)
            if advertised.get(self.place, Advertisement(b"", b"", b"", b"")).plain() != self._public.get("advertised"):
                raise FederationError("`advertised` must hold this site's own keys. Got others instead.")
            seeds, masks = (
                _split(_bytes(self._secrets[name]), self.quorum.threshold, self.quorum.sites) for name in ("seed", "masks")
            )
            self._public["peers"] = {str(place): one.plain() for place, one in advertised.items()}
            self._secrets["own"] = _text(seeds[self.place] + masks[self.place])
            self._public["shared"] = {
                str(place): _text(self._sealed(place, one.channel, seeds[place] + masks[place]))
                for place, one in advertised.items()
                if place != self.place
            }
        return {int(place): _bytes(body) for place, body in self._public["shared"].items()}

    def mask(self, shares: Mapping[int, bytes], values: npt.NDArray[np.int64]) -> Words:
        """Take the shares that others sealed for this site, and give its numbers under all of its masks.

        `values` (integers with their noise in) are used up by this: a second call must bring the same ones, or is refused.
        """
        peers = self._peers()
        senders = sorted({*shares, self.place})
        if not set(senders) <= set(peers) or len(senders) < self.quorum.threshold:
            raise TooFewHospitals(f"at least {self.quorum.threshold} sites must have shared. Got {len(senders)} instead.")
        if "unmasked" in self._public:
            raise FederationError("a site must mask its numbers before it gives shares away. Got a request after that instead.")
        if values.dtype != np.int64:
            raise FederationError(f"`values` of a secure sum must be 64-bit integers. Got {values.dtype} instead.")
        digest = hashlib.sha256(repr((senders, values.shape)).encode() + values.tobytes()).hexdigest()
        if self._public.setdefault("masked", digest) != digest:
            raise FederationError("a site must mask its numbers once. Got a second request with others instead.")
        held = {str(self.place): self._secrets["own"]}
        for place, body in shares.items():
            if place != self.place:
                held[str(place)] = _text(self._opened(place, peers[place].channel, body))
        self._secrets["held"] = "|".join(f"{place}:{share}" for place, share in held.items())
        flat = values.reshape(-1).view(np.uint64).copy()
        flat += _stream(_derived(_bytes(self._secrets["seed"]), self.context, f"own {self.place}"), flat.size)
        for place in senders:
            if place != self.place:
                secret, pair = _bytes(self._secrets["masks"]), (self.place, place)
                mask = _pair(secret, peers[place].masks, self.context, pair, senders, flat.size)
                flat = flat + mask if self.place < place else flat - mask
        return flat.reshape(values.shape)

    def unmask(self, survivors: Sequence[int]) -> dict[int, tuple[str, bytes]]:
        """Give for every site one share: of its own stream if it survived, of its key if it vanished. Decided once."""
        chosen = sorted(set(survivors))
        if "unmasked" in self._public:
            if self._public["survivors"] != chosen:
                raise FederationError(
                    "a site must be asked for its shares once. Got a second request with other survivors instead."
                )
            return {int(place): (kind, _bytes(share)) for place, (kind, share) in self._public["unmasked"].items()}
        held = dict(row.split(":", 1) for row in self._secrets.get("held", "").split("|") if row)
        if len(chosen) < self.quorum.threshold or not set(map(str, chosen)) <= set(held):
            raise TooFewHospitals(
                f"at least {self.quorum.threshold} sites must have survived, all of which had shared. Got {len(chosen)} instead."
            )
        given = {}
        for place, text in held.items():
            both = _bytes(text)
            alive = int(place) in chosen
            given[place] = ["own" if alive else "pairs", _text(both[:32] if alive else both[32:])]
        self._public["unmasked"], self._public["survivors"] = given, chosen
        self.wipe()
        return {int(place): (kind, _bytes(share)) for place, (kind, share) in given.items()}

    def _peers(self) -> dict[int, Advertisement]:
        return {int(place): Advertisement.read(plain) for place, plain in self._public["peers"].items()}

    def _channel(self, place: int, theirs: bytes, *, to: bool) -> tuple[ChaCha20Poly1305, bytes]:
        way = (self.place, place) if to else (place, self.place)
        purpose = f"channel {way[0]} {way[1]}"
        return ChaCha20Poly1305(
            _derived(_agreed(_bytes(self._secrets["channel"]), theirs), self.context, purpose)
        ), purpose.encode()

    def _sealed(self, place: int, theirs: bytes, body: bytes) -> bytes:
        cipher, way = self._channel(place, theirs, to=True)
        nonce = os.urandom(12)
        return nonce + cipher.encrypt(nonce, body, way)

    def _opened(self, place: int, theirs: bytes, body: bytes) -> bytes:
        cipher, way = self._channel(place, theirs, to=False)
        try:
            found = cipher.decrypt(body[:12], body[12:], way)
        except (InvalidTag, ValueError):
            found = b""
        if len(found) != 64:
            raise FederationError(f"the shares from site {place + 1} must be sealed for this site. Got others instead.")
        return found


def checked_advertisements(advertised: Mapping[int, Advertisement], context: str, roster: Sequence[str], quorum: Quorum) -> None:
    """Refuse keys that the study's sites did not sign for this study, two sites with one key, and too few of them."""
    if not set(advertised) <= set(range(len(roster))) or len(advertised) < quorum.threshold:
        raise TooFewHospitals(f"at least {quorum.threshold} of the study's sites must take part. Got {len(advertised)} instead.")
    for place, one in advertised.items():
        verified(roster[place], one.signature, f"secure sum {context}", one.content(place))
    keys = [key for one in advertised.values() for key in (one.channel, one.masks)]
    if len(set(keys)) != len(keys):
        raise FederationError("every site must have keys of its own. Got one key twice instead.")


# ── the coordinator ───────────────────────────────────────────────────────────────────────────────────────────────────


@final
class Collector:
    """Add masked numbers up and take the masks away. It holds nothing from which one site's numbers follow."""

    def __init__(self, context: str, quorum: Quorum, advertised: Mapping[int, Advertisement]) -> None:
        quorum.check_secure()
        self.context, self.quorum, self.advertised = context, quorum, dict(advertised)

    def total(
        self, shared: Sequence[int], masked: Mapping[int, Words], given: Mapping[int, Mapping[int, tuple[str, bytes]]]
    ) -> npt.NDArray[np.int64]:
        """Give the sum over all sites that sent masked numbers. `shared`: those whose keys entered the masks."""
        survivors, vanished = sorted(masked), sorted(set(shared) - set(masked))
        for what, some in (("sent numbers", survivors), ("gave their shares", list(given))):
            if len(some) < self.quorum.threshold:
                raise TooFewHospitals(
                    f"at least {self.quorum.threshold} hospitals must have {what}. Got {len(some)} instead; nothing was released."
                )
        shapes = {one.shape for one in masked.values()}
        if len(shapes) != 1:
            raise FederationError(f"all masked numbers must have one shape. Got {len(shapes)} instead.")
        shape = shapes.pop()
        total = np.zeros(math.prod(shape), dtype=np.uint64)
        for one in masked.values():
            total += one.reshape(-1).astype(np.uint64)
        for place in survivors:
            seed = self._secret(place, "own", given)
            total -= _stream(_derived(seed, self.context, f"own {place}"), total.size)
        for place in vanished:
            secret = self._secret(place, "pairs", given)
            for other in survivors:
                mask = _pair(secret, self.advertised[other].masks, self.context, (other, place), shared, total.size)
                total = total - mask if other < place else total + mask
        return total.view(np.int64).reshape(shape)

    def _secret(self, place: int, kind: str, given: Mapping[int, Mapping[int, tuple[str, bytes]]]) -> bytes:
        """Join shares to the secret that the site had committed itself to; a wrong share among them is left out."""
        shares = [
            (giver, shares[place][1]) for giver, shares in sorted(given.items()) if place in shares and shares[place][0] == kind
        ]
        shares = [(giver, share) for giver, share in shares if len(share) == 32]
        for some in itertools.islice(itertools.combinations(shares, self.quorum.threshold), _TRIES):
            secret = _joined(some)
            if self._is(place, kind, secret):
                return secret
        raise FederationError(
            f"{self.quorum.threshold} right shares must be there for site {place + 1}. Got {len(shares)} that do not fit "
            "its keys instead; nothing was released."
        )

    def _is(self, place: int, kind: str, secret: bytes) -> bool:
        one = self.advertised[place]
        if kind == "own":
            return _commitment(secret, self.context, place) == one.commitment
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() == one.masks
