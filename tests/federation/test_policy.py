"""Policies, studies, keys and certificates: read strictly, refused in one sentence, never readable by others."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tutelage.federation.certificates import Authority, SigningKey, private_folder, public_key, verified
from tutelage.federation.consortium import furnish, init
from tutelage.federation.envelope import opened, packed, signed, unpacked
from tutelage.federation.policy import read_policy
from tutelage.federation.records import read_records
from tutelage.federation.study import Terms, read_study
from tutelage.federation.walk import prepare
from tutelage.privacy.errors import DataError, Error, FederationError, RecipeError

NAMES = ["north", "south", "west"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("policy") / "federation"
    init(root, NAMES)
    furnish(root, NAMES, trust="nobody", teachers=2, queries=10)
    return root


def test_nothing_that_is_made_can_be_read_by_others(made: Path) -> None:
    for path in made.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path.name
    for name in NAMES:
        assert not (made / name / "keys" / "ca.key").exists()
        assert {path.name for path in (made / name / "keys").iterdir()} == {
            "ca.crt", "coordinator.pub", "node.key", "node.pub", "server.key", "server.pem",
        }  # fmt: skip


def test_nothing_is_overwritten(made: Path) -> None:
    before = (made / "north" / "keys" / "node.key").read_bytes()
    with pytest.raises(RecipeError, match="must not exist yet"):
        init(made, NAMES)
    assert (made / "north" / "keys" / "node.key").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "north"', 'name = "../north"', "`name` must be 1 to 63"),
        ("epsilon = 8.0", "epsilon = -8.0", "`budget.patient.epsilon` must be greater than 0"),
        ("epsilon = 8.0", "epsilon = inf", "`budget.patient.epsilon` must be a finite number"),
        ("delta = 1e-05", "delta = 1.0", "must be less than 1"),
        ("[budget.institution]", "[budget.hospital]", "`budget.institution` must be given"),
        ("min_hospitals = 3", "min_hospitals = 1", "`allow.min_hospitals` must be greater than or equal to 2"),
        ('secure_sum = "required"', 'secure_sum = "maybe"', "`allow.secure_sum` must be 'required' or 'optional'"),
        ("keep_days = 30", "keep_day = 30", "Did you mean `keep_days`?"),
        ('codecs = ["', 'codecs = ["x', "`allow.codecs.0` must"),
        ("port =", "insecure = true\nport =", None),
        ('coordinator = "127.0.0.1', 'insecure = true\ncoordinator = "example.org', "`engine.insecure` must be left out"),
        ("count = 2", "count = 2.5", "`teachers.count` must be a valid integer"),
    ],
)  # fmt: skip
def test_policies_are_read_strictly(made: Path, tmp_path: Path, old: str, new: str, sentence: str | None) -> None:
    text = (made / "north" / "policy.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "policy.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    if sentence is None:
        assert read_policy(tmp_path / "policy.toml").engine.insecure
        return
    with pytest.raises(RecipeError) as refused:
        read_policy(tmp_path / "policy.toml")
    assert sentence in str(refused.value)


@pytest.mark.parametrize("text", ["", "name = ", "\x00"])
def test_a_file_that_is_no_policy_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError):
        read_policy(tmp_path / "policy.toml")
    with pytest.raises(RecipeError, match="must be a readable TOML file"):
        read_policy(tmp_path / "none.toml")


def test_insecure_is_for_loopback_alone(made: Path, tmp_path: Path) -> None:
    text = (made / "coordinator" / "study.toml").read_text(encoding="utf-8")
    (tmp_path / "study.toml").write_text(text.replace("seconds = 300", "seconds = 300\ninsecure = true"), encoding="utf-8")
    assert read_study(tmp_path / "study.toml").insecure
    moved = text.replace("seconds = 300", "seconds = 300\ninsecure = true").replace("127.0.0.1:18080", "example.org:18080")
    (tmp_path / "study.toml").write_text(moved, encoding="utf-8")
    with pytest.raises(RecipeError, match="`insecure` must be left out"):
        read_study(tmp_path / "study.toml")


def test_terms_are_named_by_all_that_they_say(made: Path) -> None:
    terms = prepare(made / "coordinator" / "study.toml").terms
    assert Terms.read(terms.plain()) == terms
    plain = terms.plain()
    for name, value in {"sigma": terms.sigma * 2, "queries": 9, "threshold": 2, "public": "0" * 64, "name": "x"}.items():
        changed = {**plain, name: value}
        try:
            assert Terms.read(changed).key != terms.key
        except Error:
            assert name == "threshold"  # two of three are no secure sum


@pytest.mark.parametrize("change", [{"sigma": -1.0}, {"extra": 1}, {"hospitals": []}, {"queries": True}, {"trust": "everybody"}])
def test_terms_that_no_study_writes_are_refused(made: Path, change: dict[str, object]) -> None:
    with pytest.raises(Error):
        Terms.read({**prepare(made / "coordinator" / "study.toml").terms.plain(), **change})


def test_records_that_others_can_read_are_refused(made: Path, tmp_path: Path) -> None:
    place = private_folder(tmp_path / "data")
    (place / "records.npz").write_bytes((made / "north" / "data" / "records.npz").read_bytes())
    (place / "records.npz").chmod(0o644)
    with pytest.raises(RecipeError, match="readable by its owner alone"):
        read_records(place, 10)
    (place / "records.npz").chmod(0o600)
    assert len(read_records(place, 10))
    (place / "records.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="must be a file that is whole and readable"):
        read_records(place, 10)


# ── certificates, keys, messages ──────────────────────────────────────────────────────────────────────────────────────


def test_a_server_is_known_by_its_own_ca_alone(tmp_path: Path) -> None:
    import socket
    import threading

    ours, other = Authority.new("ours"), Authority.new("other")
    for name, authority in (("ours", ours), ("other", other)):
        authority.issue(private_folder(tmp_path / name), ["localhost", "127.0.0.1"])
    listening = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ours" / "server.pem", tmp_path / "ours" / "server.key")

    def answer() -> None:
        for _ in range(2):
            line, _ = listening.accept()
            try:
                context.wrap_socket(line, server_side=True).close()
            except OSError:
                line.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    for authority, known in ((ours, True), (other, False)):
        trusting = ssl.create_default_context(cadata=authority.public().decode())
        with socket.create_connection(listening.getsockname()) as line:
            if known:
                trusting.wrap_socket(line, server_hostname="localhost").close()
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    trusting.wrap_socket(line, server_hostname="localhost")
    thread.join(5)
    listening.close()


def test_a_signature_is_for_one_purpose() -> None:
    key = SigningKey.new()
    signature = key.sign("answer", b"content")
    verified(key.public, signature, "answer", b"content")
    for context, content in (("request", b"content"), ("answer", b"contents"), ("answe", b"rcontent")):
        with pytest.raises(FederationError, match="must be signed by the key"):
            verified(key.public, signature, context, content)


@pytest.mark.parametrize("text", ["", "ssh-rsa AAAA", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384 AAAA", "\0"])
def test_texts_that_are_no_key_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="a public key must be"):
        public_key(text)


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    SigningKey.new().write(tmp_path)
    assert public_key((tmp_path / "node.pub").read_text() + " a comment") == SigningKey.read(tmp_path / "node.key").public
    (tmp_path / "node.key").chmod(0o640)
    with pytest.raises(RecipeError, match="chmod 600"):
        SigningKey.read(tmp_path / "node.key")


def test_messages_are_read_strictly() -> None:
    import numpy as np

    arrays = {
        "one": np.arange(6, dtype=np.uint16).reshape(2, 3),
        "two": np.float32([1.5]),
        "none": np.zeros((0, 4), dtype=np.int64),
    }
    content = packed({"a": [1, "b"]}, arrays)
    head, read = unpacked(content)
    assert head == {"a": [1, "b"]}
    assert all(np.array_equal(read[name], array) and read[name].dtype == array.dtype for name, array in arrays.items())
    for wrong in (
        content[:-1],
        content + b"\0",
        b"",
        content[:20],
        b"\xff" * 40,
        content.replace(b"<u2", b"|O1"),
        content.replace(b"[2,3]", b"[2,4]"),
    ):
        with pytest.raises(FederationError):
            unpacked(wrong)
    with pytest.raises(FederationError, match="must be numbers"):
        packed({}, {"text": np.array(["a"])})


def test_letters_are_opened_in_their_context_alone() -> None:
    key = SigningKey.new()
    letter = signed(key, "answer keys 1", {"a": 1})
    assert opened(letter, "answer keys 1").by == key.public
    for wrong in (letter[:-1], letter[:40], b"", letter.replace(b"signature", b"signatur_")):
        with pytest.raises(FederationError):
            opened(wrong, "answer keys 1")
    with pytest.raises(FederationError):
        opened(letter, "answer keys 2")
