"""The engine's part: carry bytes between a coordinator and its sites over Flower. No other file imports it.

Flower ships an app to every site and runs it there. Ours holds no logic: both halves are two functions of this file, which the
hospital installed, and which hand bytes to a socket that its owner alone can open. Behind the site's socket stands
`tutelage hospital`, with the data, the policy and the ledgers; behind the coordinator's, `tutelage coordinate`. So an app that
somebody else uploads can do no more at a site than send bytes that the site refuses (run the engine as another user: see
docs/hospital/).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tutelage.federation.certificates import private_folder
from tutelage.federation.processes import ends_with_parent
from tutelage.federation.sockets import Door, call, receive, send
from tutelage.privacy.errors import FederationError

_KIND = f"{MessageType.QUERY}.tutelage"
_BYTES = "bytes"
_POLL = 0.5
_APP = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tutelage-study"
version = "1.0.0"
description = "Carries bytes between a coordinator and its sites."
license = "Apache-2.0"

[tool.flwr.app]
publisher = "tutelage"

[tool.flwr.app.components]
serverapp = "tutelage.federation.wire:server"
clientapp = "tutelage.federation.wire:client"

[tool.flwr.app.config]
socket = {socket}
"""

# ── what runs inside the engine ───────────────────────────────────────────────────────────────────────────────────────

client = ClientApp()
server = ServerApp()


@client.query("tutelage")
def _relay(message: Message, context: Context) -> Message:
    """At a site: hand the bytes to the hospital's own process, and its answer back."""
    answer = call(str(context.node_config["socket"]), message.content[_BYTES]["body"])
    return Message(RecordDict({_BYTES: ConfigRecord({"body": answer})}), reply_to=message)


@server.main()
def _serve(grid: Grid, context: Context) -> None:
    """At the coordinator: do what its own process says until that hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(str(context.run_config["socket"]))
        while (order := receive(line)) is not None:
            head, _, body = order.partition(b"\n")
            wanted = json.loads(head)
            if wanted["do"] == "nodes":
                send(line, json.dumps(sorted(grid.get_node_ids())).encode())
            else:
                _exchange(grid, line, wanted, body)


def _exchange(grid: Grid, line: socket.socket, wanted: dict[str, Any], body: bytes) -> None:
    """Send one message to every node that is addressed, and give back each answer as soon as it is there."""
    sent: dict[str, int] = {}
    until, at = time.monotonic() + wanted["seconds"], 0
    parts = []
    for node, size in wanted["to"]:
        content = RecordDict({_BYTES: ConfigRecord({"body": body[at : at + size]})})
        parts.append((node, Message(content, dst_node_id=node, message_type=_KIND, ttl=wanted["seconds"] + 60)))
        at += size
    for node, message in parts:
        for identity in grid.push_messages([message]):
            if identity:
                sent[identity] = node
    while sent and time.monotonic() < until:
        for reply in grid.pull_messages(list(sent)):
            node = sent.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                found = reply.content[_BYTES]["body"] if not reply.has_error() else b""
                send(line, json.dumps({"from": node}).encode() + b"\n" + found)
        time.sleep(_POLL if sent else 0)
    send(line, b'{"from": null}\n')


# ── the engine's processes ────────────────────────────────────────────────────────────────────────────────────────────


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FederationError(f"`{name}` must be installed: pip install 'tutelage[federated]'. Got no such program instead.")
    return found


def _environment(home: Path) -> dict[str, str]:
    """Keep the engine quiet, its files in one folder, and its programs on this package."""
    beside = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": str(home),
        "PATH": os.pathsep.join(beside),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


@final
class Program:
    """Hold one process of the engine, with everything that it starts, and end all of it together."""

    def __init__(self, command: list[str], folder: Path, log: str) -> None:
        private_folder(folder)
        self.log = folder / log
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            self._process = subprocess.Popen(
                [_program(command[0]), *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                cwd=folder, env=_environment(folder / "flwr"), umask=0o077, start_new_session=True,
                preexec_fn=ends_with_parent(),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Give the process's number, which is that of its group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Tell whether it has not ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process and all of its group: kindly, then surely."""
        for signum, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signum)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        with suppress(ProcessLookupError):  # what it started and left behind
            os.killpg(self.pid, signal.SIGKILL)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def link(folder: Path, certificates: Path, port: int, *, insecure: bool = False) -> Program:
    """Start the engine's server at the coordinator."""
    secured = ["--insecure"] if insecure else _tls(certificates, "server")
    command = ["flower-superlink", *secured, "--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    return Program(
        [*command, "--database", str(folder / "link.db"), "--host", "127.0.0.1", "--port", str(port)], folder, "link.log"
    )


def node(folder: Path, certificates: Path, address: str, port: int, place: str, *, insecure: bool = False) -> Program:
    """Start the engine's client at a site: it calls the coordinator's address and is never called."""
    certificates = certificates.resolve()
    secured = ["--insecure"] if insecure else ["--root-certificates", str(certificates / "ca.crt"), *_tls(certificates, "server")]
    command = ["flower-supernode", *secured, "--superlink", address, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--auth-supernode-private-key", str(certificates / "node.key"), "--node-config", f"socket='{place}'"]
    return Program([*command, "--max-retries", "20", "--max-wait-time", "120"], folder, "node.log")


def _tls(certificates: Path, stem: str) -> list[str]:
    place = certificates.resolve()
    return [
        "--ssl-ca-certfile", str(place / "ca.crt"), "--ssl-certfile", str(place / f"{stem}.pem"),
        "--ssl-keyfile", str(place / f"{stem}.key"),
    ]  # fmt: skip


def _cli(folder: Path, *words: str, patience: float = 120.0) -> str:
    """Run one of the engine's commands and give what it printed."""
    done = subprocess.run(
        [_program("flwr"), *words], cwd=folder, env=_environment(folder / "flwr"), capture_output=True, text=True,
        timeout=patience, stdin=subprocess.DEVNULL, umask=0o077,
    )  # fmt: skip
    if done.returncode:
        last = ([line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["nothing"])[-1]
        raise FederationError(f"`flwr {words[0]}` must succeed. Got «{last.strip()[:200]}» instead.")
    return done.stdout


def connect(folder: Path, certificates: Path, address: str, *, insecure: bool = False) -> None:
    """Write down, for the engine's commands, where the server is and by which CA it is known."""
    home = private_folder(folder / "flwr")
    known = "insecure = true" if insecure else f'root-certificates = "{(certificates / "ca.crt").resolve()}"'
    text = f'[superlink]\ndefault = "study"\n\n[superlink.study]\naddress = "{address}"\n{known}\n'
    (home / "config.toml").write_text(text, encoding="utf-8")


def register(folder: Path, key: Path) -> None:
    """Let a site's public key in."""
    _cli(folder, "supernode", "register", str(key.resolve()), "study")


@final
class Wire:
    """Give a coordinator its sites, over a run of the engine that lasts until this is closed."""

    def __init__(self, door: Door, line: socket.socket) -> None:
        self._door, self._line = door, line

    def nodes(self) -> list[int]:
        """List the nodes that are connected now."""
        send(self._line, b'{"do": "nodes"}\n')
        answer = receive(self._line)
        if answer is None:
            raise FederationError("the engine's server must go on until the study has ended. Got a line that was cut instead.")
        return [int(one) for one in json.loads(answer)]

    def exchange(self, bodies: Mapping[int, bytes], seconds: float) -> Iterator[tuple[int, bytes]]:
        """Send each its bytes and give (node, answer) as answers come; empty where a node failed. Nodes may stay silent."""
        head = {"do": "exchange", "to": [[one, len(body)] for one, body in bodies.items()], "seconds": seconds}
        send(self._line, json.dumps(head).encode() + b"\n" + b"".join(bodies.values()))
        while True:
            answer = receive(self._line)
            if answer is None:
                raise FederationError(
                    "the engine's server must go on until the study has ended. Got a line that was cut instead."
                )
            head_text, _, body = answer.partition(b"\n")
            if (found := json.loads(head_text)["from"]) is None:
                return
            yield int(found), body


@contextmanager
def run(folder: Path, *, patience: float = 120.0) -> Iterator[Wire]:
    """Start a run of the engine and hold its line. The link and the nodes are there already."""
    with Door() as door:
        app = private_folder(folder / "app")
        (app / "pyproject.toml").write_text(_APP.format(socket=json.dumps(door.path)), encoding="utf-8")
        _cli(folder, "run", str(app), "study")
        line = door.accept(patience)
        if line is None:
            raise FederationError(f"the engine must start within {patience:g} s. Got nothing instead: see link.log.")
        with line:
            yield Wire(door, line)


@contextmanager
def served(
    folder: Path, certificates: Path, address: str, keys: Sequence[Path], *, insecure: bool = False, say: Callable[[str], None]
) -> Iterator[Wire]:
    """Start the engine's server, let these public keys in, and hold a run's line."""
    port = int(address.rpartition(":")[2])
    private_folder(folder)
    (folder / "link.db").unlink(missing_ok=True)  # nodes of an earlier study would still be counted as connected
    with link(folder, certificates, port, insecure=insecure) as started:
        connect(folder, certificates, address, insecure=insecure)
        _answering(folder, started)
        for key in keys:
            register(folder, key)
        say(f"the engine answers at {address}; {len(keys)} hospitals may connect")
        with run(folder) as transport:
            yield transport


def _answering(folder: Path, started: Program, patience: float = 60.0) -> None:
    """Wait until the server answers."""
    until = time.monotonic() + patience
    while True:
        try:
            _cli(folder, "supernode", "list", "study")
            return
        except FederationError:
            if not started.running or time.monotonic() > until:
                raise FederationError(f"the engine's server must answer within {patience:g} s. Got none: see link.log.") from None
            time.sleep(1)
