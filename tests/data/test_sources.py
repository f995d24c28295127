from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile

import pytest

from tutelage.data.sources import Archive, File, Layout, MissingFiles, Source, locate, recognises
from tutelage.privacy.errors import DataError

CONTENT = b"public content"


def sha(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture
def shelf(tmp_path):
    """A published file, and an empty data directory."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "file.bin").write_bytes(CONTENT)
    (tmp_path / "data").mkdir()
    return tmp_path


def source_of(shelf, *, checksum=None, folders=("set", "SET/raw", ".")):
    address = (shelf / "web" / "file.bin").as_uri()
    file = File("file.bin", checksum or sha(CONTENT), addresses=(address,))
    return Source("set", "https://example.org/set", (Layout("bin", folders, (file,)),))


@pytest.mark.parametrize("folder", ["set", "SET/raw", "."])
def test_looks_in_every_folder(shelf, folder):
    place = shelf / "data" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "file.bin").write_bytes(CONTENT)
    found = locate(source_of(shelf), shelf / "data", download=False)
    assert found.kind == "bin"
    assert found.paths["file.bin"].read_bytes() == CONTENT
    assert dict(found.hashes) == {"file.bin": sha(CONTENT).removeprefix("sha256:")}


def test_says_what_is_missing_where_and_whence(shelf):
    with pytest.raises(DataError) as caught:
        locate(source_of(shelf), shelf / "data", download=False)
    message = str(caught.value)
    assert message.startswith("`directory` must hold the files of set. Got ")
    assert "file.bin in " in message
    for folder in ("set", "SET/raw"):
        assert str(shelf / "data" / folder) in message
    assert "https://example.org/set" in message
    assert (shelf / "web" / "file.bin").as_uri() in message
    assert list((shelf / "data").iterdir()) == []


def test_downloads_into_the_first_folder(shelf):
    found = locate(source_of(shelf), shelf / "data")
    assert found.paths["file.bin"] == shelf / "data" / "set" / "file.bin"
    assert found.paths["file.bin"].read_bytes() == CONTENT


def test_a_failed_download_gives_the_whole_message_and_its_reason(shelf):
    source = source_of(shelf)
    (shelf / "web" / "file.bin").unlink()
    with pytest.raises(DataError, match=r"(?s)without them instead, and a download failed .*Expected: file\.bin in"):
        locate(source, shelf / "data")
    assert list((shelf / "data").iterdir()) == []


def test_a_download_with_another_checksum_is_not_kept(shelf):
    with pytest.raises(DataError, match="checksum differs"):
        locate(source_of(shelf, checksum=sha(b"other")), shelf / "data")
    assert not (shelf / "data" / "set" / "file.bin").exists()


def test_a_foreign_file_is_refused_unless_it_is_meant(shelf):
    (shelf / "data" / "file.bin").write_bytes(b"foreign")
    with pytest.raises(MissingFiles) as caught:
        locate(source_of(shelf), shelf / "data", download=False)
    message = str(caught.value)
    assert f"`{shelf / 'data' / 'file.bin'}` must be the published file (sha256:" in message
    assert "The command line reads published files alone" in message
    assert "tutelage.data.load('set', ..., verify=False)" in message
    assert "Public address: https://example.org/set" in message
    assert locate(source_of(shelf), shelf / "data", verify=False).paths["file.bin"].read_bytes() == b"foreign"


def test_a_foreign_file_of_the_same_name_does_not_hide_the_right_one(shelf):
    for folder, content in (("set", b"foreign"), ("SET/raw", CONTENT)):
        (shelf / "data" / folder).mkdir(parents=True)
        (shelf / "data" / folder / "file.bin").write_bytes(content)
    found = locate(source_of(shelf), shelf / "data", download=False)
    assert found.paths["file.bin"] == shelf / "data" / "SET/raw" / "file.bin"
    other = Layout("other", ("set",), (File("file.txt", sha(b"text")),))
    (shelf / "data" / "SET/raw" / "file.bin").unlink()
    (shelf / "data" / "set" / "file.txt").write_bytes(b"text")
    layouts = (*source_of(shelf).layouts, other)
    assert locate(Source("set", "https://example.org/set", layouts), shelf / "data", download=False).kind == "other"


def test_a_foreign_file_elsewhere_does_not_stop_a_download(shelf):
    (shelf / "data" / "file.bin").write_bytes(b"foreign")
    found = locate(source_of(shelf), shelf / "data")
    assert found.paths["file.bin"] == shelf / "data" / "set" / "file.bin"
    assert (shelf / "data" / "file.bin").read_bytes() == b"foreign"


def test_a_foreign_file_where_downloads_go_is_left_alone(shelf):
    (shelf / "data" / "set").mkdir()
    (shelf / "data" / "set" / "file.bin").write_bytes(b"foreign")
    with pytest.raises(MissingFiles, match=r"(?s)is written over.*must be the published file.*Expected: file\.bin in"):
        locate(source_of(shelf), shelf / "data")
    assert (shelf / "data" / "set" / "file.bin").read_bytes() == b"foreign"


def test_a_directory_that_does_not_exist_is_refused_with_what_it_should_hold(shelf):
    with pytest.raises(MissingFiles) as caught:
        locate(source_of(shelf), shelf / "none")
    message = str(caught.value)
    assert message.startswith("`directory` must be an existing folder. Got ")
    assert f"Expected: file.bin in {shelf / 'none' / 'set'}" in message
    assert f"Public address: https://example.org/set ({(shelf / 'web' / 'file.bin').as_uri()})." in message
    assert not (shelf / "none").exists()


def test_md5_is_understood(shelf):
    assert recognises(File("file.bin", "md5:" + hashlib.md5(CONTENT).hexdigest()), shelf / "web" / "file.bin")


def test_another_wrapper_around_the_same_content_is_recognised(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(CONTENT, mtime=1))
    file = File("a.gz", sha(gzip.compress(CONTENT, mtime=2)), payload=sha(CONTENT))
    assert recognises(file, path)
    path.write_bytes(gzip.compress(b"other"))
    assert not recognises(file, path)
    path.write_bytes(gzip.compress(CONTENT)[:-4])
    assert not recognises(file, path)
    path.write_bytes(b"nonsense")
    assert not recognises(file, path)


@pytest.mark.parametrize("inside", ["table.csv", "folder/table.csv"])
def test_another_zip_around_the_same_table_is_recognised(tmp_path, inside):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(inside, CONTENT)
    assert recognises(File("a.zip", sha(b""), payload=sha(CONTENT), member="table.csv"), path)
    assert not recognises(File("a.zip", sha(b""), payload=sha(CONTENT), member="other.csv"), path)
    assert not recognises(File("a.zip", sha(b""), payload=sha(b"other"), member="table.csv"), path)


@pytest.fixture
def packed(shelf):
    """A published archive of two files."""
    for name in ("one.bin", "two.bin"):
        (shelf / "web" / name).write_bytes(name.encode())
    pack = shelf / "web" / "pack.tar.gz"
    with tarfile.open(pack, "w:gz") as tape:
        for name in ("one.bin", "two.bin"):
            tape.add(shelf / "web" / name, f"pack/{name}")
    files = tuple(File(name, sha(name.encode())) for name in ("one.bin", "two.bin"))
    archive = Archive(pack.as_uri(), sha(pack.read_bytes()))
    return Source("set", "https://example.org/set", (Layout("bin", ("set",), files, archive),))


def test_an_archive_is_fetched_unpacked_and_removed(shelf, packed):
    found = locate(packed, shelf / "data")
    assert list(found.paths) == ["one.bin", "two.bin"]
    assert sorted(p.name for p in (shelf / "data" / "set").iterdir()) == ["one.bin", "two.bin"]


def test_an_archive_brought_by_hand_is_unpacked_and_kept(shelf, packed):
    (shelf / "data" / "pack.tar.gz").write_bytes((shelf / "web" / "pack.tar.gz").read_bytes())
    (shelf / "web" / "pack.tar.gz").unlink()
    assert locate(packed, shelf / "data").paths["two.bin"].read_bytes() == b"two.bin"
    assert (shelf / "data" / "pack.tar.gz").exists()


@pytest.mark.parametrize("place", [".", "other"])
def test_the_archive_of_any_form_is_unpacked(shelf, packed, place):
    (shelf / "data" / place).mkdir(exist_ok=True)
    (shelf / "data" / place / "pack.tar.gz").write_bytes((shelf / "web" / "pack.tar.gz").read_bytes())
    layout = packed.layouts[0]
    first = Layout("first", ("first",), (File("no.bin", sha(b"no")),), Archive("https://example.org/no.tar.gz", sha(b"no")))
    second = Layout("second", ("second", "other"), layout.files, layout.archive)
    found = locate(Source("set", packed.home, (first, second)), shelf / "data", download=False)
    assert (found.kind, found.paths["one.bin"]) == ("second", shelf / "data" / "second" / "one.bin")


def test_an_archive_that_broke_off_is_named_and_left_alone(shelf, packed):
    pack = shelf / "data" / "pack.tar.gz"
    pack.write_bytes((shelf / "web" / "pack.tar.gz").read_bytes()[:-9])
    with pytest.raises(DataError, match=r"pack\.tar\.gz` must be the published archive .* it is left alone"):
        locate(packed, shelf / "data", download=False)
    assert pack.exists()


def test_files_have_their_own_addresses_where_the_archive_fails(shelf, packed):
    (shelf / "web" / "pack.tar.gz").unlink()
    with pytest.raises(DataError, match="a download failed"):
        locate(packed, shelf / "data")
    layout = packed.layouts[0]
    files = tuple(File(f.name, f.checksum, addresses=((shelf / "web" / f.name).as_uri(),)) for f in layout.files)
    single = Source("set", packed.home, (Layout("bin", ("set",), files, layout.archive),))
    assert locate(single, shelf / "data").paths["one.bin"].read_bytes() == b"one.bin"
