"""Messages between participants: plain JSON and arrays, in one form of bytes that can be hashed and signed. Never pickle."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tutelage.federation.certificates import SigningKey, public_key, verified
from tutelage.privacy.errors import Error, FederationError
from tutelage.privacy.files import parse_json

Array = npt.NDArray[Any]
_LONGEST = 1 << 24  # bytes of a head


@final
@dataclass(frozen=True)
class Letter:
    """Hold what one participant signed: who, and what."""

    by: str  # the public key
    head: dict[str, Any]
    arrays: dict[str, Array] = field(repr=False)
    sha256: str = ""


def canonical(content: Any) -> bytes:
    """Write plain data in the one way that is hashed and signed."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def key_of(content: Any) -> str:
    """Give the key of plain data: the hash of its one form."""
    return hashlib.sha256(canonical(content)).hexdigest()


def packed(head: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """Write a head and its arrays as bytes."""
    rows, bodies = [], []
    for name, array in (arrays or {}).items():
        plain = np.ascontiguousarray(array)
        plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
        if plain.dtype.kind not in "biuf":
            raise FederationError(f"`{name}` of a message must be numbers. Got {plain.dtype} instead.")
        rows.append([name, plain.dtype.str, list(plain.shape)])
        bodies.append(plain.tobytes())
    text = canonical({"head": dict(head), "arrays": rows})
    return len(text).to_bytes(8, "big") + text + b"".join(bodies)


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read bytes back; what is not exactly one message is refused."""
    try:
        size = int.from_bytes(content[:8], "big")
        if size > _LONGEST:
            raise ValueError("too long")
        told = parse_json(content[8 : 8 + size].decode())
        head, rows, at = told["head"], told["arrays"], 8 + size
        if set(told) != {"head", "arrays"} or not isinstance(head, dict):
            raise ValueError("not a message")
        arrays: dict[str, Array] = {}
        for name, kind, shape in rows:
            dtype = np.dtype(kind)
            if (
                dtype.kind not in "biuf"
                or dtype.str != kind
                or name in arrays
                or not all(type(n) is int and n >= 0 for n in shape)
            ):
                raise ValueError("not an array")
            count = int(np.prod(shape, dtype=object)) if shape else 1
            if at + count * dtype.itemsize > len(content):
                raise ValueError("cut off")
            arrays[name] = np.frombuffer(content, dtype=dtype, count=count, offset=at).reshape(shape)
            at += count * dtype.itemsize
        if at != len(content):
            raise ValueError("too long")
    except Error:
        raise
    except Exception:  # damaged bytes can raise anything, and the message may quote them
        raise FederationError("a message must be whole and in this version's form. Got other bytes instead.") from None
    return head, arrays


def signed(key: SigningKey, context: str, head: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """Write a message with its signature before it."""
    content = packed(head, arrays)
    row = canonical({"by": key.public, "signature": base64.b64encode(key.sign(context, content)).decode()})
    return len(row).to_bytes(4, "big") + row + content


def opened(letter: bytes, context: str) -> Letter:
    """Check a message's signature in its context, and read it. Whether its signer may say so is the caller's question."""
    try:
        size = int.from_bytes(letter[:4], "big")
        row = parse_json(letter[4 : 4 + size].decode())
        by, signature, content = public_key(row["by"]), base64.b64decode(row["signature"], validate=True), letter[4 + size :]
    except Exception:
        raise FederationError("a message must be whole and signed. Got other bytes instead.") from None
    verified(by, signature, context, content)
    head, arrays = unpacked(content)
    return Letter(by, head, arrays, hashlib.sha256(letter).hexdigest())


# ── closed letters ────────────────────────────────────────────────────────────────────────────────────────────────────


def reply_key() -> tuple[bytes, str]:
    """Draw the key pair to which one coordinator's process is answered: (private bytes, public text)."""
    key = X25519PrivateKey.generate()
    return key.private_bytes_raw(), base64.b64encode(key.public_key().public_bytes_raw()).decode()


def closed(letter: bytes, to: str) -> bytes:
    """Close a letter for one reader: the engine carries it, and keeps it in its database, without being able to read it."""
    try:
        theirs = X25519PublicKey.from_public_bytes(base64.b64decode(to, validate=True))
        mine = X25519PrivateKey.generate()
        secret = mine.exchange(theirs)
    except Exception:
        raise FederationError(
            "a request must bring the key to which it is answered. Got none that can be used instead."
        ) from None
    public, nonce = mine.public_key().public_bytes_raw(), os.urandom(12)
    return public + nonce + ChaCha20Poly1305(_reply(secret, public)).encrypt(nonce, letter, public)


def disclosed(body: bytes, private: bytes) -> bytes:
    """Open a closed letter."""
    public, nonce, inside = body[:32], body[32:44], body[44:]
    try:
        secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
        return ChaCha20Poly1305(_reply(secret, public)).decrypt(nonce, inside, public)
    except Exception:
        raise FederationError("an answer must be closed for this coordinator. Got other bytes instead.") from None


def _reply(secret: bytes, public: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, public, b"tutelage federation/1 reply").derive(secret)
