from __future__ import annotations

import http.server
import tarfile
import threading
import zipfile
from io import BytesIO

import pytest

from tutelage.data.downloads import download, unpack
from tutelage.privacy.errors import DataError


@pytest.fixture
def published(tmp_path):
    path = tmp_path / "published" / "file.bin"
    path.parent.mkdir()
    path.write_bytes(b"x" * 3_000_000)
    return path


def test_a_file_arrives_whole_with_its_progress(tmp_path, published):
    seen = []
    target = tmp_path / "data" / "sub" / "file.bin"
    download(
        [published.as_uri()], target, accept=lambda path: path.stat().st_size == 3_000_000, progress=lambda *s: seen.append(s)
    )
    assert target.read_bytes() == published.read_bytes()
    assert seen[-1] == ("file.bin", 3_000_000, 3_000_000)
    assert [p.name for p in target.parent.iterdir()] == ["file.bin"]


def test_the_next_address_is_tried_and_a_wrong_content_never_kept(tmp_path, published):
    wrong = published.with_name("wrong.bin")
    wrong.write_bytes(b"wrong")
    target = tmp_path / "file.bin"
    addresses = [(tmp_path / "absent").as_uri(), wrong.as_uri(), published.as_uri()]
    download(addresses, target, accept=lambda path: path.stat().st_size > 100)
    assert target.stat().st_size == 3_000_000
    other = tmp_path / "folder" / "other.bin"
    with pytest.raises(DataError, match=r"(?s)absent.*checksum differs"):
        download(addresses[:2], other, accept=lambda path: path.stat().st_size > 100)
    assert list(other.parent.iterdir()) == []


def test_an_interrupted_download_leaves_nothing_and_keeps_what_was_there(tmp_path, published):
    target = tmp_path / "data" / "file.bin"
    target.parent.mkdir()
    target.write_bytes(b"before")

    def stop(*_state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download([published.as_uri()], target, accept=lambda path: True, progress=stop)
    assert [p.read_bytes() for p in target.parent.iterdir()] == [b"before"]


def test_a_connection_that_ends_early_is_noticed(tmp_path):
    class Short(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"x" * 10)

        def log_message(self, *_arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Short) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(DataError, match="public address"):
                download([f"http://127.0.0.1:{server.server_port}/f"], tmp_path / "file.bin", accept=lambda path: True)
        finally:
            server.shutdown()
            thread.join()
    assert list(tmp_path.iterdir()) == []


def write_tar(path, members):
    with tarfile.open(path, "w:gz") as tape:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tape.addfile(entry, BytesIO(content))


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as pack:
        for name, content in members.items():
            pack.writestr(name, content)


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_unpacks_the_named_files_and_nothing_else(tmp_path, write):
    write(tmp_path / "pack", {"folder/a.bin": b"a", "../../b.bin": b"b", "folder/evil": b"no"})
    unpack(tmp_path / "pack", tmp_path / "out", ["a.bin", "b.bin"])
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == {"a.bin": b"a", "b.bin": b"b"}
    with pytest.raises(DataError, match=r"without c\.bin"):
        unpack(tmp_path / "pack", tmp_path / "out", ["a.bin", "c.bin"])


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_refuses_a_damaged_archive(tmp_path, write):
    path = tmp_path / "pack"
    write(path, {"a.bin": bytes(range(256)) * 400})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError):
        unpack(path, tmp_path, ["a.bin"])
