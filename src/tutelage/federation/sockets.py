"""Bytes between two processes of one owner: a socket in a folder that nobody else can enter."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from types import TracebackType
from typing import final

from tutelage.privacy.errors import FederationError

_MOST = 1 << 32  # bytes of one message


def send(line: socket.socket, body: bytes) -> None:
    """Send one message, with its length before it."""
    line.sendall(len(body).to_bytes(8, "big"))
    line.sendall(body)


def receive(line: socket.socket) -> bytes | None:
    """Receive one message; None where the other side has hung up."""
    head = _exactly(line, 8)
    if head is None:
        return None
    size = int.from_bytes(head, "big")
    if size > _MOST:
        raise FederationError(f"a message must be at most {_MOST >> 30} GiB long. Got a longer one instead.")
    return _exactly(line, size)


def _exactly(line: socket.socket, size: int) -> bytes | None:
    parts, missing = [], size
    while missing:
        part = line.recv(min(missing, 1 << 20))
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def call(path: str, body: bytes, *, seconds: float = 3600.0) -> bytes:
    """Ask the process behind a socket once, and give its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(seconds)
        line.connect(path)
        send(line, body)
        answer = receive(line)
    if answer is None:
        raise FederationError("the process behind a socket must answer. Got a line that was cut instead.")
    return answer


@final
class Door:
    """Listen on a socket that only this user can open. Its path is short: the system allows about a hundred characters."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="tutelage-")  # 0700
        self.path = os.path.join(self._folder, "line")
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(self.path)
        os.chmod(self.path, 0o600)
        self._listening.listen(8)

    def accept(self, seconds: float) -> socket.socket | None:
        """Wait for a caller; None where there was none in time."""
        self._listening.settimeout(seconds)
        try:
            line, _ = self._listening.accept()
        except TimeoutError:
            return None
        line.settimeout(None)
        return line

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self._listening.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Door:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
