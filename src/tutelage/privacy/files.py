"""The boundary for files: what is read may be damaged or forged, what is written is there whole or not at all.

    with reading(path, "student"):              # whatever goes wrong in here ends in one line that names the file
        model = load(path)
    claim = read_json(path, "guarantee", error=LedgerError)

The message of what went wrong is withheld, because it may quote the file.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tutelage.privacy.errors import DataError, Error

_DEPTH = 64  # no file of ours is nested half as deep; Python itself gives up at about a thousand
_WHOLE = 2**63  # what SQLite and NumPy hold


@contextmanager
def reading(path: str | os.PathLike[str], what: str, *, error: type[Error] = DataError) -> Iterator[None]:
    """Turn whatever a damaged file raises into one line of `error`. Errors of this package pass as they are."""
    try:
        yield
    except Error:
        raise
    except Exception as failure:  # a damaged file can raise anything: RecursionError, zlib.error, OverflowError, SyntaxError, …
        rule, got = f"`{what}` must be a file that is whole and readable.", type(failure).__name__
        raise error(f"{rule} Got {got} from {_shown(path)} instead.") from None


def _shown(path: str | os.PathLike[str]) -> str:
    """Give the name of a file in one line: it may hold line breaks, or bytes that are no text."""
    name = os.path.basename(os.fsdecode(path))
    return name if name.isprintable() and name else ascii(name)


def read_json(path: str | os.PathLike[str], what: str, *, error: type[Error] = DataError) -> Any:
    """Read a JSON file as strictly as `parse_json` does."""
    with reading(path, what, error=error):
        return parse_json(Path(path).read_bytes().decode())


def read_json_lines(path: str | os.PathLike[str], what: str, *, error: type[Error] = DataError) -> list[Any]:
    """Read a file with one JSON value per line."""
    with reading(path, what, error=error), Path(path).open(encoding="utf-8", newline="\n") as lines:  # U+2028 is no line's end
        return [parse_json(line) for line in lines]


def parse_json(text: str) -> Any:
    """Read JSON that has one meaning only, or raise ValueError.

    Refused: a key twice, NaN and infinities (also 1e999), whole numbers that no 64 bits hold, text that no UTF-8 holds, and
    nesting deeper than 64.
    """
    value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_int=_whole, parse_float=_finite)
    level = [value]
    for _ in range(_DEPTH + 1):  # by levels, so that deep nesting costs no stack
        for part in level:
            if isinstance(part, str):
                part.encode()  # half a surrogate pair is a ValueError here, and not later
        level = [inner for part in level for inner in _parts(part)]
    if level:
        raise ValueError("JSON must not be nested as deep as this")
    return value


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key must stand once in a JSON object")
    return found


def _refuse(word: str) -> Any:
    raise ValueError("JSON has no such number")


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -_WHOLE <= int(digits) < _WHOLE:
        raise ValueError("a whole number must fit 64 bits")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number must be finite")
    return value


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, and never a part. On return it is on disk.

    It is written under `.NAME.partial` beside it first. What a crash left there is overwritten the next time.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    while True:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of two that write the same file, one after the other
            if not _is(partial, descriptor):  # the other one has put it in place meanwhile
                continue
            file.truncate(0)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(descriptor)
            partial.replace(target)
        break
    sync_folder(target.parent)


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Write a folder's list of names to disk: without it a new or renamed file may be gone after a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
