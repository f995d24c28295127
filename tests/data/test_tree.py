"""Files below a folder: links to other places are followed, each of them, and nothing hidden is read."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

from tutelage.data.tree import files


def laid(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def found(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in files(root)]


def test_links_are_followed_and_what_is_hidden_is_not(tmp_path: Path) -> None:
    laid(tmp_path / "store", "one/a", "one/deep/b", "one/.c", "one/.tool/d", "two/e")
    laid(tmp_path / "root", "f", ".hidden/g")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "store" / "one")
    (tmp_path / "root" / ".link").symlink_to(tmp_path / "store" / "two")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "store" / "two" / "e")
    (tmp_path / "way").symlink_to(tmp_path / "root")
    assert found(tmp_path / "root") == found(tmp_path / "way") == ["f", "file", "link/a", "link/deep/b"]


def test_links_in_a_ring_end(tmp_path: Path) -> None:
    laid(tmp_path, "root/one/a", "root/two/b", "beside/c")
    (tmp_path / "root" / "one" / "back").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "one" / "self").symlink_to(tmp_path / "root" / "one")
    (tmp_path / "root" / "two" / "above").symlink_to(tmp_path)  # nobody meant what lies beside the folder
    assert found(tmp_path / "root") == ["one/a", "two/b"]


def test_a_link_inside_is_left_out_and_every_link_elsewhere_is_followed(tmp_path: Path) -> None:
    laid(tmp_path, "root/patient/left/a", "store/b")
    (tmp_path / "root" / "first").symlink_to(tmp_path / "root" / "patient" / "left")  # before it in the alphabet
    for name in ("then", "there"):
        (tmp_path / "root" / name).symlink_to(tmp_path / "store")
    assert found(tmp_path / "root") == ["patient/left/a", "then/b", "there/b"]
    (tmp_path / "root" / "then").unlink()  # one patient's link goes: the other's stays as it was
    assert found(tmp_path / "root") == ["patient/left/a", "there/b"]


def test_rings_outside_end_too(tmp_path: Path) -> None:
    laid(tmp_path, "root/a", "store/b", "store/deep/c")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "deep" / "back").symlink_to(tmp_path / "store")
    assert found(tmp_path / "root") == ["a", "link/b", "link/deep/c"]


def test_what_is_no_file_is_left_out_and_stops_nothing(tmp_path: Path) -> None:
    """Each of these raised an error before, or waited for a writer that never came."""
    laid(tmp_path / "root", "a", "one/b")
    root = tmp_path / "root" / "one"
    (root / "self").symlink_to("self")
    (root / "nowhere").symlink_to(tmp_path / "nothing")
    for number in range(60):
        (root / f"chain{number:02d}").symlink_to(f"chain{number + 1:02d}")
    os.mkfifo(root / "pipe")
    assert found(tmp_path / "root") == ["a", "one/b"]


def test_a_folder_deeper_than_calls_may_be_is_walked(tmp_path: Path) -> None:
    laid(tmp_path / "root", "a", "/".join(["d"] * 200) + "/b")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        names = [path.name for path in files(tmp_path / "root")]
    finally:
        sys.setrecursionlimit(before)
    assert names == ["a", "b"]
