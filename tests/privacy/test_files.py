"""The boundary for files: damaged ones end in one line, written ones are whole."""

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tutelage.privacy.errors import DataError, Error, LedgerError, RecipeError
from tutelage.privacy.files import parse_json, read_json, read_json_lines, reading, write_whole


def refused(path: str | Path, read: Callable[[Any], object], error: type[Error] = DataError) -> str:
    """Read inside the boundary; give the one line that must come of it."""
    line = r"^`thing` must be a file that is whole and readable\. Got \w+ from .+ instead\.$"
    with pytest.raises(error, match=line) as caught, reading(path, "thing", error=error):
        read(path)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__  # no traceback shows the failure, or what its message quotes
    return str(caught.value)


def damaged_zip(path: Path) -> None:
    np.savez_compressed(path, a=np.arange(1000))
    content = bytearray(path.read_bytes())
    content[60:120] = b"\x5a" * 60
    path.write_bytes(content)


def encrypted_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"x")
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


ARRAYS: dict[str, Callable[[Path], object]] = {
    "half an npz": lambda path: (np.savez(path, a=np.arange(9)), path.write_bytes(path.read_bytes()[:100])),
    "an npz with other bytes in it": damaged_zip,
    "an npz under a password": encrypted_zip,
    "a pickle": lambda path: path.write_bytes(b"\x80\x04N."),
    "nothing": lambda path: path.touch(),
    "a folder": lambda path: path.mkdir(),
    "no file": lambda path: None,
    "a header that is no Python": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x08\x00((((((((" + b"\0" * 64),
    "a header that promises terabytes": lambda path: path.write_bytes(
        b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,)}".ljust(117) + b"\n"
    ),
}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_a_damaged_array_file_is_one_line(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "thing.npz"
    make(path)

    def read(where: Path) -> None:
        with where.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            assert {name: loaded[name] for name in loaded.files}

    assert "thing.npz" in refused(path, read)


JSON = {
    "deep": "[" * 100_000,
    "deep and closed": "[" * 66 + "]" * 66,
    "deep objects": '{"a":' * 65 + "1" + "}" * 65,
    "an integer of 400 digits": '{"epsilon": 1' + "0" * 400 + "}",
    "an integer of 5,000 digits": "1" + "0" * 5000,
    "an integer of 64 bits and one": "9223372036854775808",
    "a float beyond floats": "1e400",
    "NaN": '{"epsilon": NaN}',
    "infinity": "-Infinity",
    "a key twice": '{"epsilon": 0.1, "delta": 1e-5, "epsilon": 8.0}',
    "a key twice, spelled otherwise": '{"a": 1, "\\u0061": 2}',
    "half a surrogate": '{"name": "\\ud800"}',
    "half a surrogate as key": '[{"\\udfff": 1}]',
    "half a file": '{"epsilon": ',
    "two values": "1 2",
    "a mark of byte order": "\ufeff1",
    "nothing": "",
}


@pytest.mark.parametrize("text", JSON.values(), ids=JSON)
def test_json_with_no_or_two_meanings_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "thing.json").write_text(text)
    with pytest.raises(LedgerError, match=r"^`claim` must be a file that is whole and readable\. Got \w+ from thing\.json inst"):
        read_json(tmp_path / "thing.json", "claim", error=LedgerError)
    (tmp_path / "thing.jsonl").write_text("{}\n" + text + "\n")
    with pytest.raises(DataError, match=r"^`rows` must be a file that is whole and readable\. Got \w+ from thing\.jsonl inst"):
        read_json_lines(tmp_path / "thing.jsonl", "rows")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, -2.5, "ε", null, true]}', {"a": [1, -2.5, "ε", None, True]}),
        ("-9223372036854775808", -(2**63)),
        ("[" * 64 + "1" + "]" * 64, eval("[" * 64 + "1" + "]" * 64)),
        ("1e-400", 0.0),
        ('"\\ud83d\\ude00"', "😀"),
    ],
)
def test_plain_json_is_read(text: str, value: object) -> None:
    assert parse_json(text) == value


def test_bytes_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "thing").write_bytes(b'"\xff\xfe"')
    with pytest.raises(DataError, match="Got UnicodeDecodeError from thing instead"):
        read_json(tmp_path / "thing", "claim")


@pytest.mark.parametrize("path", ["a\0b", "a\nb", "\udcff", "", "." * 5000])
def test_a_path_that_is_none_is_one_line(path: str) -> None:
    refused(path, lambda where: Path(where).read_bytes())


@pytest.mark.parametrize(
    ("what", "read"),
    [
        ("OverflowError", lambda path: (1e308) ** 2),
        ("KeyError", lambda path: {}["epsilon"]),
        ("AttributeError", lambda path: None.epsilon),  # type: ignore[attr-defined]
        ("RecursionError", lambda path: (lambda f: f(f))(lambda f: f(f))),
        ("ZeroDivisionError", lambda path: 1 / 0),
    ],
)
def test_what_a_file_leads_to_is_one_line_too(what: str, read: Callable[[Any], object]) -> None:
    for error in (DataError, RecipeError, LedgerError):
        assert f"Got {what} from recipe.toml" in refused("private/recipe.toml", read, error)


def test_the_failure_is_not_quoted() -> None:
    def fail(path: object) -> None:
        raise ValueError("Ada Lovelace, 36")

    assert "Ada" not in refused("x", fail)


def test_our_own_errors_and_interrupts_pass() -> None:
    for error in (RecipeError("`sigma` must be > 0. Got -1 instead."), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, reading("x", "thing"):
            raise error
        assert caught.value is error


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_written_is_there(tmp_path: Path) -> None:
    for content in ("one ε\n", b"two\x00", ""):
        write_whole(tmp_path / "thing", content)
        assert (tmp_path / "thing").read_bytes() == (content.encode() if isinstance(content, str) else content)
        assert os.listdir(tmp_path) == ["thing"]


def test_what_a_crash_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / ".thing.partial").write_text("a longer half of a file")
    write_whole(tmp_path / "thing", "x")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"thing": "x"}


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".thing.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"):
        write_whole(tmp_path / "thing", "x")
    assert (tmp_path / "precious").read_text() == "precious"


WRITER = """
import sys
from pathlib import Path
from tutelage.privacy.files import write_whole

if sys.argv[2] == "twin":
    write_whole = lambda path, content: Path(path).write_text(content)
print("ready", flush=True)
while True:
    for letter in "ab":
        write_whole(sys.argv[1], letter * 300_000)
"""


def whole_after_kills(path: Path, manner: str, kills: int) -> int:
    """Kill two writers of one file again and again; count how often it was left in parts, or read in parts meanwhile."""
    parts = 0
    for kill in range(kills):
        command = [sys.executable, "-c", WRITER, str(path), manner]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for moment in range(40):
            time.sleep(0.001 + kill * 0.0003)
            if moment == 39:
                for writer in writers:
                    writer.send_signal(signal.SIGKILL)
                    writer.communicate()
            parts += path.exists() and path.read_text() not in ("a" * 300_000, "b" * 300_000)
    return parts


def test_no_kill_and_no_second_writer_leaves_a_part(tmp_path: Path) -> None:
    assert whole_after_kills(tmp_path / "whole", "ours", 3) == 0
    assert whole_after_kills(tmp_path / "twin", "twin", 3) > 0  # a plain write is caught
