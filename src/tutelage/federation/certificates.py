"""Keys and certificates of a federation: a CA, one server certificate per machine, one signing key per participant.

Private files are readable by their owner alone (0600, in folders of 0700). A signing key is ECDSA on P-384, in OpenSSH's form:
the engine authenticates nodes with the same key, so that a message and its transport name one participant.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tutelage.privacy.errors import FederationError, RecipeError

DAYS = 365
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def checked_name(name: str) -> str:
    """Refuse a participant's name that could not be a folder's or a host's."""
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise RecipeError(f"`name` must be 1 to 63 of a-z, 0-9 and '-', not beginning with '-'. Got {name!r} instead.")
    return name


def private_folder(path: Path) -> Path:
    """Make a folder that its owner alone can enter."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> Path:
    """Write a new file that its owner alone can read. One that is there is never overwritten: it may be somebody's key."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise RecipeError(f"`{path.name}` must not exist yet. Got a folder that holds one instead: take a new folder.") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    return path


def read_private(path: Path, what: str) -> bytes:
    """Read a private file, and refuse one that others can read."""
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise RecipeError(f"`{what}` must be a readable file. Got «{error.strerror}» for {path.name!r} instead.") from None
    if mode & 0o077:
        raise RecipeError(f"`{what}` must be readable by its owner alone: chmod 600. Got wider rights on {path.name!r} instead.")
    return content


# ── the CA and its certificates ───────────────────────────────────────────────────────────────────────────────────────


class Authority:
    """Issue certificates for a federation's machines. Its key stays with whoever runs the coordinator."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key, self.certificate = key, certificate

    @classmethod
    def new(cls, name: str) -> Authority:
        """Make a CA that may sign certificates of machines and of no other CA."""
        key = ec.generate_private_key(ec.SECP384R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{checked_name(name)} federation CA")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = (
            _builder(subject, subject, key.public_key(), DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(key, made.sign(key, hashes.SHA384()))

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """Read a CA from its folder."""
        key = serialization.load_pem_private_key(read_private(folder / "ca.key", "ca.key"), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(key, x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()))

    def write(self, folder: Path) -> None:
        """Write `ca.crt` and the private `ca.key`."""
        write_private(folder / "ca.key", _pem(self._key))
        write_private(folder / "ca.crt", self.public())

    def public(self) -> bytes:
        """Give the certificate that every participant needs, as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, folder: Path, hosts: Sequence[str], *, stem: str = "server") -> None:
        """Write `STEM.pem` and `STEM.key` for a machine that is reached by these names and addresses."""
        key = ec.generate_private_key(ec.SECP384R1())
        names = [_general(host) for host in hosts]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            _builder(subject, self.certificate.subject, key.public_key(), DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(identifier, critical=False)
        )
        write_private(folder / f"{stem}.key", _pem(key))
        write_private(folder / f"{stem}.pem", made.sign(self._key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks of two machines differ
        .not_valid_after(now + timedelta(days=days))
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, nobody = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, nobody)


# ── signing keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


class SigningKey:
    """Sign in one participant's name."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key

    @classmethod
    def new(cls) -> SigningKey:
        """Draw a key."""
        return cls(ec.generate_private_key(ec.SECP384R1()))

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """Read a private key in OpenSSH's form."""
        content = read_private(path, path.name)
        try:
            key = serialization.load_ssh_private_key(content, None)
        except Exception:  # the message could quote the key
            key = None
        if not (isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP384R1)):
            raise RecipeError(f"`{path.name}` must hold an ECDSA key on P-384 without a password. Got another file instead.")
        return cls(key)

    def write(self, folder: Path, stem: str = "node") -> None:
        """Write `STEM.key` for its owner alone, and `STEM.pub` to hand out."""
        form, nobody = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        write_private(folder / f"{stem}.key", self._key.private_bytes(serialization.Encoding.PEM, form, nobody))
        write_private(folder / f"{stem}.pub", f"{self.public}\n".encode())

    @property
    def public(self) -> str:
        """Give the public key as one line of text: `ecdsa-sha2-nistp384 AAAA…`."""
        encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        return self._key.public_key().public_bytes(encoding, form).decode()

    def sign(self, context: str, content: bytes) -> bytes:
        """Sign a content in a context: what was signed for one purpose never passes for another."""
        return self._key.sign(_bound(context, content), ec.ECDSA(hashes.SHA384()))


def public_key(text: str) -> str:
    """Read a public key's line and give it in its one form, without a comment."""
    try:
        kind, body = text.split()[:2]
        key = serialization.load_ssh_public_key(f"{kind} {body}".encode())
    except Exception:
        key = None
    if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1)):
        raise RecipeError("a public key must be one line of OpenSSH's form, ECDSA on P-384. Got another text instead.")
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def fingerprint(public: str) -> str:
    """Give the name by which people compare a public key, as `ssh-keygen -l` prints it."""
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def verified(public: str, signature: bytes, context: str, content: bytes) -> None:
    """Refuse a content that this participant did not sign in this context."""
    key = serialization.load_ssh_public_key(public.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    try:
        key.verify(signature, _bound(context, content), ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        raise FederationError(
            f"a message must be signed by the key {fingerprint(public)} for «{context}». Got another signature instead."
        ) from None


def _bound(context: str, content: bytes) -> bytes:
    head = f"tutelage federation/1 {context}".encode()
    return len(head).to_bytes(4, "big") + head + content
