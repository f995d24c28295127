"""Downloads: streamed to a temporary file, checked, then renamed, so that a file that exists is whole."""

from __future__ import annotations

import os
import shutil
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any, final

from tutelage.privacy.errors import DataError

Progress = Callable[[str, int, int], None]  # file name, bytes so far, bytes in all (0: unknown)

_CHUNK = 1 << 20
_PATIENCE = 30.0  # seconds without a byte


def download(addresses: Sequence[str], target: Path, *, accept: Callable[[Path], bool], progress: Progress | None = None) -> None:
    """Fetch a file from the first address whose content is accepted."""
    failures = []
    for address in addresses:
        try:
            # Connected first: where there is no network, no empty folder is left behind.
            with _connect(address) as answer, _Arriving(target) as arriving:
                _stream(answer, arriving.stream, target.name, progress)
                arriving.stream.flush()
                if accept(arriving.path):
                    arriving.keep()
                    return
            failures.append(f"{address}: the checksum differs")
        except (OSError, HTTPException) as error:
            failures.append(f"{address}: {getattr(error, 'reason', None) or error or type(error).__name__}")
    got = "; ".join(failures) or "no address"
    raise DataError(f"`{target.name}` must come from its public address. Got {got} instead.")


def unpack(archive: Path, folder: Path, names: Sequence[str]) -> None:
    """Take the named files, wherever they stand in a .tar.gz or .zip, and nothing else."""
    # Names come from our own table and only their content from the archive: no path in it is ever followed.
    wanted = set(names)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as pack:
                for member in pack.namelist():
                    if (name := PurePosixPath(member).name) in wanted:
                        with pack.open(member) as source:
                            _write(source, folder / name)
                        wanted.discard(name)
        else:
            with tarfile.open(archive) as tape:
                for entry in tape:
                    name = PurePosixPath(entry.name).name
                    if name in wanted and entry.isfile() and (content := tape.extractfile(entry)) is not None:
                        _write(content, folder / name)
                        wanted.discard(name)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataError(f"`{archive.name}` must be a readable archive. Got {type(error).__name__} instead.") from None
    if wanted:
        absent = ", ".join(sorted(wanted))
        raise DataError(f"`{archive.name}` must hold {', '.join(names)}. Got an archive without {absent} instead.")


@final
class _Arriving:
    """Open a temporary neighbour of a file that takes its place only when kept."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._kept = False
        self.path = target.with_name(f".{target.name}.{os.getpid()}.part")

    def __enter__(self) -> _Arriving:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self.stream = self.path.open("wb")
        return self

    def keep(self) -> None:
        """Let the temporary file take the target's place on leaving."""
        self._kept = True

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self.stream.close()
        if self._kept and kind is None:
            os.replace(self.path, self._target)
        else:
            self.path.unlink(missing_ok=True)


def _write(source: IO[bytes], target: Path) -> None:
    with _Arriving(target) as arriving:
        shutil.copyfileobj(source, arriving.stream, _CHUNK)
        arriving.keep()


def _connect(address: str) -> Any:
    return urllib.request.urlopen(urllib.request.Request(address, headers={"User-Agent": "tutelage"}), timeout=_PATIENCE)


def _stream(answer: Any, into: IO[bytes], name: str, progress: Progress | None) -> None:
    total, done = int(answer.headers.get("Content-Length") or 0), 0
    while chunk := answer.read(_CHUNK):
        into.write(chunk)
        done += len(chunk)
        if progress is not None:
            progress(name, done, total)
    if total and done != total:
        raise OSError(f"{done} of {total} bytes arrived")
