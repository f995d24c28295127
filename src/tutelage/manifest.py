"""The manifest of a release: every file with its size and SHA-256, so that a release is whole or refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

from tutelage.privacy.errors import LedgerError
from tutelage.privacy.files import parse_json, reading, sync_folder, write_whole
from tutelage.tasks.table import released_files

SCHEMA = 1
NAME = "manifest.json"
#: The time of every released file (1980-01-01, the earliest that an archive can hold): when a run wrote one is private.
TIME = 315_532_800
_BLOCK = 1 << 20
#: Every name that a file of a release may have, beside those of its task. Nobody would look at others before they leave.
_NAMES = re.compile(
    r"(guarantee|inputs|manifest|metrics|scores)\.json|book\.jsonl|recipe\.toml|report\.html|samples\.npz"
    r"|student(\.[a-z0-9]+)?|(codec|decoder)\.safetensors|features-[0-9a-f]{12}\.safetensors"
    r"|(sight|alignment)-[0-9a-f]{12}\.npz|rounds/[1-9][0-9]*\.npz"
)
#: Files that are read as a whole, and how many bytes of them at most.
_LIMITS = {
    "guarantee.json": 1 << 20,
    "scores.json": 1 << 20,
    "recipe.toml": 1 << 20,
    "inputs.json": 1 << 24,
    "metrics.json": 1 << 24,
    NAME: 1 << 26,
    "book.jsonl": 1 << 28,
}


def write(release: Path) -> str:
    """Write the manifest of a folder and give its SHA-256. What a crash left half-written is removed first."""
    for partial in sorted(path for path in release.rglob(".*") if path.is_file()):
        partial.unlink()
    text = _text({name: _described(release / name) for name in _files(release)})
    write_whole(release / NAME, text)
    settle(release)
    return hashlib.sha256(text.encode()).hexdigest()


def allowed(name: str) -> bool:
    """Tell whether a file of a release may have this name."""
    return bool(_NAMES.fullmatch(name)) or name in released_files()


def set_aside(release: Path, place: Path) -> None:
    """Move whatever has no place in a release out of a draft: a custom student's second file, or what a crash left.

    It is moved and no error is raised, since what private data made of a run must not decide whether there is a release.
    """
    shutil.rmtree(place, ignore_errors=True)
    for path in sorted(release.rglob("*"), reverse=True):  # what is in a folder before the folder
        name, mode = path.relative_to(release).as_posix(), path.lstat().st_mode
        if stat.S_ISDIR(mode):
            if not any(path.iterdir()):
                path.rmdir()
        elif not (stat.S_ISREG(mode) and allowed(name)):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(place / name)


def check_sizes(release: Path) -> None:
    """Refuse links, pipes and devices, and files that are larger than they can be, before anything is read."""
    with reading(release, "release", error=LedgerError):
        for name in _files(release):
            limit = _LIMITS.get(name)
            if limit is not None and (release / name).stat().st_size > limit:
                raise LedgerError(f"{name} must be at most {limit >> 20} MB long to be checked. Got a longer file instead.")


def renew(release: Path, name: str) -> str:
    """Write one file's row again, and give the manifest's new SHA-256."""
    files = {**_read(release)[0], name: _described(release / name)}
    text = _text(files)
    write_whole(release / NAME, text)
    settle(release)
    return hashlib.sha256(text.encode()).hexdigest()


def check(release: Path) -> tuple[frozenset[str], str]:
    """Refuse a folder that is not exactly what its manifest lists. Give the names of its files, and the manifest's SHA-256."""
    files, digest = _read(release)
    found = {name for name in _files(release) if name != NAME}
    if strangers := sorted(found - set(files)):
        hint = " Run `tutelage report` again." if strangers == ["report.html"] else ""
        raise LedgerError(f"a release must hold the files of its manifest alone. Got {strangers[0]!a} beside them instead.{hint}")
    if missing := sorted(set(files) - found):
        raise LedgerError(f"a release must hold every file of its manifest. Got none named {missing[0]!a} instead.")
    for name, row in files.items():
        if row != _described(release / name):
            hint = " Run `tutelage report` again." if name == "report.html" else ""
            raise LedgerError(f"{name!a} must be the file that the manifest lists. Got another one instead.{hint}")
    return frozenset(files), digest


def settle(release: Path) -> None:
    """Give all files and folders one time and one mode, and write them to disk."""
    for path in (*sorted(release.rglob("*"), reverse=True), release):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
        os.utime(path, (TIME, TIME))
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _read(release: Path) -> tuple[dict[str, Any], str]:
    path = release / NAME
    with reading(path, "manifest", error=LedgerError):
        text = path.read_bytes()
        content = parse_json(text.decode())
    files = content.get("files") if isinstance(content, dict) and set(content) == {"schema", "files"} else None
    rows = isinstance(files, dict) and all(isinstance(row, dict) and set(row) == {"bytes", "sha256"} for row in files.values())
    if not rows or content["schema"] != SCHEMA or _text(files).encode() != text:
        raise LedgerError("`manifest` must be one that this version writes. Got another form instead.")
    return files, hashlib.sha256(text).hexdigest()


def _text(files: dict[str, Any]) -> str:
    rows = {name: row for name, row in files.items() if name != NAME}
    return json.dumps({"schema": SCHEMA, "files": rows}, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def _files(release: Path) -> list[str]:
    """Name all files of a folder. A link, or a folder without a file, has no place in a release."""
    found, folders = [], set()
    for path in release.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            found.append(path.relative_to(release).as_posix())
        elif stat.S_ISDIR(mode):
            folders.add(path.relative_to(release).as_posix())
        else:
            raise LedgerError(f"a release must hold plain files. Got another kind, {path.name!a}, instead.")
    if empty := sorted(folder for folder in folders if not any(name.startswith(f"{folder}/") for name in found)):
        raise LedgerError(f"a release must hold no empty folder. Got {empty[0]!a} instead.")
    return sorted(found)


def _described(path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}
