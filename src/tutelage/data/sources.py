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

    @property
    def name(self) -> str:
        """Name the file."""
        return PurePosixPath(self.address).name


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
    """Find a data set's files below a directory, fetch them where allowed, and check that they are the published.

    Files of another content are passed over: the next folder or form may hold the right ones.
    """
    root = Path(directory)
    if not root.is_dir():
        # Not created: a mistyped path should not fill with downloads.
        raise MissingFiles(f"`directory` must be an existing folder. Got {str(root)!r} instead.\n{_expected(source, root)}")
    strangers: list[str] = []  # files of the right name and another content: many sets share their names (MNIST, Fashion-MNIST)
    for layout in source.layouts:
        for folder in layout.folders:
            paths = {file.name: root / folder / file.name for file in layout.files}
            if all(path.is_file() for path in paths.values()) and (found := _taken(layout, paths, verify, strangers)):
                return found
    for layout in source.layouts:
        if (paths := _brought(layout, root, strangers)) and (found := _taken(layout, paths, verify, strangers)):
            return found
    reason = "no download was asked for"
    if download:
        layout = source.layouts[0]
        try:
            if found := _taken(layout, _fetch(layout, root, progress), verify, strangers):
                return found
            reason = f"nothing in {root / layout.folders[0]} is written over"
        except (DataError, OSError) as error:
            reason = f"a download failed ({error})"
    raise MissingFiles(_absent(source, root, reason, strangers))


def _absent(source: Source, root: Path, reason: str, strangers: Sequence[str]) -> str:
    said = f"`directory` must hold the files of {source.name}. Got {str(root)!r} without them instead, and {reason}.\n"
    if strangers:
        said += "".join(f"{one}\n" for one in dict.fromkeys(strangers))
        said += (
            "Move such files away to have the published ones downloaded. The command line reads published files alone; "
            f"your own are read from Python, by tutelage.data.load({source.name!r}, ..., verify=False).\n"
        )
    return said + _expected(source, root)


def _expected(source: Source, root: Path) -> str:
    """Name the files, the folders they may lie in, the archives that are unpacked, and the public address."""
    forms = []
    for layout in source.layouts:
        names = ", ".join(file.name for file in layout.files)
        forms.append(f"{names} in {' or '.join(str(root / folder) for folder in layout.folders)}")
        if layout.archive is not None:
            forms.append(f"{layout.archive.name} there, which is unpacked")
    first = source.layouts[0]
    addresses = [first.archive.address] if first.archive else [file.addresses[0] for file in first.files]
    return f"Expected: {'; or '.join(forms)}.\nPublic address: {source.home} ({', '.join(addresses)})."


def _brought(layout: Layout, root: Path, strangers: list[str]) -> dict[str, Path] | None:
    """Unpack a layout's archive that somebody brought here by hand, and leave it there."""
    if layout.archive is None:
        return None
    folder = root / layout.folders[0]
    paths = {file.name: folder / file.name for file in layout.files}
    wanted = [name for name, path in paths.items() if not path.is_file()]
    for place in dict.fromkeys((".", *layout.folders)):
        pack = root / place / layout.archive.name
        if not wanted or not pack.is_file():
            continue
        if not _matches(pack, layout.archive.checksum):  # a download that broke off, mostly
            rule = f"`{pack}` must be the published archive ({layout.archive.checksum})."
            strangers.append(f"{rule} Got another content instead; it is left alone.")
        else:
            try:
                downloads.unpack(pack, folder, wanted)
            except (DataError, OSError) as error:  # a folder that must not be written to: a download may say so, too
                strangers.append(f"`{pack}` must be unpacked in {folder}. Got «{error}» instead.")
                return None
            return paths
    return None


def _fetch(layout: Layout, root: Path, progress: Progress | None) -> dict[str, Path]:
    folder = root / layout.folders[0]
    paths = {file.name: folder / file.name for file in layout.files}
    wanted = [file for file in layout.files if not paths[file.name].is_file()]
    if layout.archive is not None and wanted:
        try:
            _unpack(layout.archive, folder, wanted, progress)
            return paths
        except DataError:
            if not all(file.addresses for file in wanted):
                raise
    for file in wanted:
        accept = functools.partial(recognises, file)
        downloads.download(file.addresses, paths[file.name], accept=accept, progress=progress)
    return paths


def _unpack(archive: Archive, folder: Path, wanted: Sequence[File], progress: Progress | None) -> None:
    arriving = folder / f".{archive.name}"
    try:
        accept = functools.partial(_matches, checksum=archive.checksum)
        downloads.download((archive.address,), arriving, accept=accept, progress=progress)
        downloads.unpack(arriving, folder, [file.name for file in wanted])
    finally:
        arriving.unlink(missing_ok=True)


def _taken(layout: Layout, paths: Mapping[str, Path], verify: bool, strangers: list[str]) -> Located | None:
    """Take files that are the published, or say which one is not."""
    for file in layout.files:
        if verify and not recognises(file, paths[file.name]):
            rule = f"`{paths[file.name]}` must be the published file ({file.checksum})."
            strangers.append(f"{rule} Got another content instead; it is left alone.")
            return None
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
