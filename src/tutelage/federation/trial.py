"""A consortium on one machine, to try it out: one process for every hospital, one for the coordinator, and the engine's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tutelage.federation import walk
from tutelage.federation.certificates import private_folder
from tutelage.federation.consortium import furnish, init
from tutelage.federation.processes import ends_with_parent
from tutelage.federation.status import read_status
from tutelage.privacy.errors import FederationError, RecipeError

Say = Callable[[str], None]


def up(
    root: Path,
    hospitals: int,
    *,
    trust: str = "coordinator",
    teachers: int = 25,
    queries: int = 100,
    epsilon: float = 8.0,
    port: int = 18080,
    seconds: float = 600.0,
    say: Say = lambda _: None,
) -> walk.Finished:
    """Make keys and data where there are none, start every hospital, carry out the study, and end what was started."""
    if trust not in ("coordinator", "nobody"):
        raise RecipeError(f"`trust` must be 'coordinator' or 'nobody'. Got {trust!r} instead.")
    names = [f"hospital-{number + 1}" for number in range(hospitals)]
    study = root / "coordinator" / "study.toml"
    if not study.exists():
        init(root, names, port=port)
        furnish(root, names, trust=trust, teachers=teachers, queries=queries, epsilon=epsilon, port=port)  # type: ignore[arg-type]
        say(f"made keys, policies and generated data under {root}")
    prepared = walk.prepare(study)
    with started(root, names, seconds=seconds, say=say):
        return walk.over_the_wire(prepared, root / "study", resume=(root / "study" / "private").exists(), say=say)


@contextmanager
def started(
    root: Path, names: list[str], *, seconds: float, say: Say, patience: float = 300.0
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run `tutelage hospital` for each, and end them afterwards."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            running[name] = start_hospital(root / name, seconds=seconds)
        say(f"started {len(names)} hospitals, each a process of its own")
        _wait(root, running, say, patience)
        yield running
    finally:
        for process in running.values():
            stop(process)


def start_hospital(folder: Path, *, seconds: float) -> subprocess.Popen[bytes]:
    """Start one hospital's process; its log lies in its own folder."""
    private_folder(folder / "private")
    log = os.open(folder / "private" / "hospital.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    beside = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, beside)), "OMP_NUM_THREADS": "1"}
    with os.fdopen(log, "wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tutelage.cli", "hospital", str(folder / "policy.toml"), "--seconds", str(seconds)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True, umask=0o077,
            preexec_fn=ends_with_parent(),
        )  # fmt: skip


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a hospital's process: kindly, so that it ends the engine's, then surely."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _wait(root: Path, running: dict[str, subprocess.Popen[bytes]], say: Say, patience: float = 300.0) -> None:
    """Wait until every hospital has trained its teachers."""
    until, ready = time.monotonic() + patience, set[str]()
    while len(ready) < len(running):
        for name, process in running.items():
            status = read_status(root / name / "private")
            if process.poll() is not None:
                raise FederationError(f"{name} must go on. Got an end instead: see {name}/private/hospital.log.")
            if name not in ready and status is not None and status.get("phase") == "waiting for a study":
                ready.add(name)
                say(f"{name} has trained its teachers")
        if time.monotonic() > until:
            raise FederationError(
                f"all hospitals must be ready within {patience:g} s. Got {len(ready)} of {len(running)} instead."
            )
        time.sleep(0.3)
