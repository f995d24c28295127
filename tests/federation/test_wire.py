"""The same study over the engine: separate processes, TLS, node authentication, and processes that are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tutelage.federation import walk
from tutelage.federation.agreement import check_hospital
from tutelage.federation.certificates import Authority, SigningKey
from tutelage.federation.consortium import furnish, init
from tutelage.federation.status import read_status
from tutelage.privacy.ledger import Ledger
from tutelage.verification import verify

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow
QUERIES = 40


def ports(count: int) -> int:
    """Find neighbouring ports that nobody uses."""
    for first in range(20000 + os.getpid() % 20000, 60000, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def made(root: Path, sites: int, trust: Any, *changes: tuple[str, str]) -> list[str]:
    names, port = [f"hospital-{number + 1}" for number in range(sites)], ports(sites + 1)
    init(root, names)
    study = furnish(root, names, trust=trust, teachers=3, queries=QUERIES, port=port)
    text = study.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    study.write_text(text, encoding="utf-8")
    return names


@contextmanager
def started(root: Path, names: list[str], *, waiting: bool = True) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    from tutelage.federation import trial

    running = {name: trial.start_hospital(root / name, seconds=400) for name in names}
    try:
        if waiting:
            trial._wait(root, running, lambda text: None)
        yield running
    finally:
        for process in running.values():
            trial.stop(process)


def study(root: Path, say: Callable[[str], None] = lambda text: None, *, resume: bool = False) -> walk.Finished:
    return walk.over_the_wire(walk.prepare(root / "coordinator" / "study.toml"), root / "study", resume=resume, say=say)


def charged(root: Path, name: str) -> int:
    with Ledger(root / name / "private" / "patient.sqlite") as ledger:
        return sum(count for _, count in ledger.totals())


def mine(root: Path) -> list[str]:
    """List processes that this test has left running."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(root) in line and "ps -eo" not in line]


def test_two_hospitals_over_tls_and_every_ledger_agrees(tmp_path: Path) -> None:
    root = tmp_path / "federation"
    names = made(root, 2, "coordinator")
    with started(root, names):
        finished = study(root)
    assert finished.answered == names
    assert finished.remarks == []
    verify(root / "study")
    assert all(one.agrees for name in names for one in check_hospital(root / name, [root / "study"]))
    assert mine(root) == []
    kept = [path for path in root.rglob("*") if path.is_file() and "release" not in path.parts and path.stat().st_mode & 0o004]
    assert [path.name for path in kept if path.suffix in (".key", ".npz", ".npy", ".sqlite", ".db", ".log")] == []
    with (root / "coordinator" / "engine" / "link.log").open() as log:
        assert "Insecure" not in log.read()


def test_a_hospital_that_is_killed_in_a_secure_sum_does_not_stop_it(tmp_path: Path) -> None:
    root = tmp_path / "federation"
    names = made(root, 4, "nobody", ("seconds = 300", "seconds = 60"))
    with started(root, names) as running:

        def say(text: str) -> None:
            if text == "asking for «masked»":
                os.kill(running["hospital-2"].pid, signal.SIGKILL)

        finished = study(root, say)
    assert finished.answered == ["hospital-1", "hospital-3", "hospital-4"]
    verify(root / "study")
    assert [charged(root, name) for name in names] == [QUERIES, 0, QUERIES, QUERIES]
    assert mine(root) == []


def test_strangers_do_not_connect(tmp_path: Path) -> None:
    """A wrong CA and an unregistered key: the study goes on with the others, and nothing is charged at the strangers."""
    root = tmp_path / "federation"
    names = made(root, 4, "coordinator", ("threshold = 3", "threshold = 2"), ("seconds = 300", "seconds = 45"))
    for name in names:
        policy = root / name / "policy.toml"
        policy.write_text(policy.read_text().replace("min_hospitals = 3", "min_hospitals = 2"), encoding="utf-8")
    (root / "hospital-1" / "keys" / "ca.crt").write_bytes(Authority.new("another").public())
    for file in ("node.key", "node.pub"):
        (root / "hospital-2" / "keys" / file).unlink()
    SigningKey.new().write(root / "hospital-2" / "keys")
    with started(root, names):
        finished = study(root)
    assert finished.answered == ["hospital-3", "hospital-4"]
    assert [charged(root, name) for name in names] == [0, 0, QUERIES, QUERIES]
    verify(root / "study")


def test_a_coordinator_that_is_killed_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "federation"
    names = made(root, 2, "coordinator")
    command = [
        sys.executable,
        "-m",
        "tutelage.cli",
        "coordinate",
        str(root / "coordinator" / "study.toml"),
        "--out",
        str(root / "study"),
    ]
    with started(root, names):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 120
        while "answered" not in str((read_status(root / "study" / "private") or {}).get("phase")) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (root / "study" / "release").exists()
        until = time.monotonic() + 30
        while any("flower-superlink" in line for line in mine(root)) and time.monotonic() < until:
            time.sleep(0.2)
        done = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    verify(root / "study")
    assert [charged(root, name) for name in names] == [QUERIES, QUERIES]
    assert mine(root) == []
