"""Where the files of a data set are looked for, how they are recognised, and what to say when they are not there."""

from __future__ import annotations

import functools
import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO, final

from tutelage.data import downloads
from tutelage.data.downloads import Progress
from tutelage.privacy.errors import DataError

_CHUNK = 1 << 20


@final
class MissingFiles(DataError):
    """The files of a data set are not here and could not be fetched: put them there, and all is well."""


@final
@dataclass(frozen=True)
class File:
    """Name one public file and how it is recognised."""

    name: str
    checksum: str  # "md5:..." or "sha256:...", of the file as published; md5 where that is what its publisher gives
    payload: str = ""  # the same of what is inside the wrapper: distributors rewrap (Debian strips gzip headers)
    member: str = ""  # which file inside a .zip the payload is
    addresses: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Archive:
    """Name a public .tar.gz or .zip that holds all files of a layout."""

    address: str
    checksum: str


@final
@dataclass(frozen=True)
class Layout:
    """List files that stand together in one folder, and the folders to look in, best first."""

    kind: str
    folders: tuple[str, ...]
    files: tuple[File, ...]
    archive: Archive | None = None


@final
@dataclass(frozen=True)
class Source:
    """Describe where a data set comes from."""

    name: str
    home: str  # the public page
    layouts: tuple[Layout, ...]  # forms it may lie there in; the first is the one downloaded


@final
@dataclass(frozen=True)
class Located:
    """Say which form was found, where its files are, and their sha256."""

    kind: str
    paths: Mapping[str, Path]
    hashes: Mapping[str, str]


def locate(
    source: Source,
    directory: Path | str,
    *,
    download: bool = True,
    verify: bool = True,
    progress: Progress | None = None,
) -> Located:
    """Find a data set's files below a directory, fetch them where allowed, and check that they are the published."""
    root = Path(directory)
    if not root.is_dir():
        # Not created: a mistyped path should not fill with downloads.
        raise MissingFiles(f"`directory` must be an existing folder. Got {str(root)!r} instead.")
    for layout in source.layouts:
        for folder in layout.folders:
            paths = {file.name: root / folder / file.name for file in layout.files}
            if all(path.is_file() for path in paths.values()):
                return _checked(layout, paths, verify)
    reason = "no download was asked for"
    if download:
        layout = source.layouts[0]
        try:
            paths = _fetch(layout, root, progress)
            return _checked(layout, paths, verify)
        except (DataError, OSError) as error:
            reason = f"a download failed ({error})"
    raise MissingFiles(_absent(source, root, reason))


def _absent(source: Source, root: Path, reason: str) -> str:
    forms = []
    for layout in source.layouts:
        names = ", ".join(file.name for file in layout.files)
        forms.append(f"{names} in {' or '.join(str(root / folder) for folder in layout.folders)}")
    first = source.layouts[0]
    addresses = [first.archive.address] if first.archive else [file.addresses[0] for file in first.files]
    return (
        f"`directory` must hold the files of {source.name}. Got {str(root)!r} without them instead, and {reason}.\n"
        f"Expected: {'; or '.join(forms)}.\n"
        f"Public address: {source.home} ({', '.join(addresses)})."
    )


def _fetch(layout: Layout, root: Path, progress: Progress | None) -> dict[str, Path]:
    folder = root / layout.folders[0]
    paths = {file.name: folder / file.name for file in layout.files}
    wanted = [file for file in layout.files if not paths[file.name].is_file()]
    if layout.archive is not None:
        try:
            _unpack(layout.archive, root, folder, wanted, progress)
            return paths
        except DataError:
            if not all(file.addresses for file in wanted):
                raise
    for file in wanted:
        accept = functools.partial(recognises, file)
        downloads.download(file.addresses, paths[file.name], accept=accept, progress=progress)
    return paths


def _unpack(archive: Archive, root: Path, folder: Path, wanted: Sequence[File], progress: Progress | None) -> None:
    names = [file.name for file in wanted]
    pack = PurePosixPath(archive.address).name
    for path in (root / pack, folder / pack):  # somebody may have brought it here by hand
        if path.is_file() and _matches(path, archive.checksum):
            return downloads.unpack(path, folder, names)
    arriving = folder / f".{pack}"
    try:
        accept = functools.partial(_matches, checksum=archive.checksum)
        downloads.download((archive.address,), arriving, accept=accept, progress=progress)
        downloads.unpack(arriving, folder, names)
    finally:
        arriving.unlink(missing_ok=True)
    return None


def _checked(layout: Layout, paths: Mapping[str, Path], verify: bool) -> Located:
    for file in layout.files:
        if verify and not recognises(file, paths[file.name]):
            raise DataError(
                f"`{paths[file.name]}` must be the published file ({file.checksum}). Got another content instead. "
                "Remove it to have it downloaded, or pass verify=False if you mean to read your own."
            )
    hashes = {file.name: digest(paths[file.name], "sha256") for file in layout.files}
    return Located(layout.kind, MappingProxyType(dict(paths)), MappingProxyType(hashes))


def recognises(file: File, path: Path) -> bool:
    """Tell whether a path holds the published content, in the published wrapper or in another."""
    if _matches(path, file.checksum):
        return True
    if not file.payload:
        return False
    kind, _, want = file.payload.partition(":")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inside = [name for name in archive.namelist() if PurePosixPath(name).name == file.member]
                if len(inside) != 1:
                    return False
                with archive.open(inside[0]) as stream:
                    return _digest(stream, kind) == want
        with gzip.open(path, "rb") as stream:
            return _digest(stream, kind) == want
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile):
        return False


def digest(path: Path, kind: str) -> str:
    """Hash a file."""
    try:
        with path.open("rb") as stream:
            return _digest(stream, kind)
    except OSError as error:
        raise DataError(f"`{path}` must be a readable file. Got {type(error).__name__} instead.") from None


def _digest(stream: IO[bytes] | gzip.GzipFile, kind: str) -> str:
    # md5 recognises a file that its publisher names by md5; nothing rests on its being hard to forge.
    state = hashlib.new(kind, usedforsecurity=False)
    while chunk := stream.read(_CHUNK):
        state.update(chunk)
    return state.hexdigest()


def _matches(path: Path, checksum: str) -> bool:
    kind, _, want = checksum.partition(":")
    return digest(path, kind) == want
