"""A hospital's own process: read the policy, train local teachers, then answer what comes through the engine's door."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, final

import numpy as np

from tutelage.data.dataset import Private
from tutelage.federation.certificates import SigningKey
from tutelage.federation.codes import ClassMoments, class_moments
from tutelage.federation.policy import Policy, read_policy
from tutelage.federation.records import read_records
from tutelage.federation.site import Site
from tutelage.federation.sockets import Door, receive, send
from tutelage.federation.status import Status
from tutelage.privacy.errors import DataError, Error
from tutelage.privacy.sealed import Sealed, quietly
from tutelage.privacy.units import Shards
from tutelage.teachers.estimators import EstimatorTeachers

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]
PLACES = "class-moments"
_AGAIN = 3.0  # seconds before the engine's client is started again


def open_site(path: Path, *, progress: Progress = lambda what, done, total: None) -> Site:
    """Read a policy and train the hospital's teachers on its own data. What was trained before is read from `private/`."""
    folder, policy = path.parent, read_policy(path)
    key = SigningKey.read(folder / policy.engine.certificates / "node.key")
    private = read_records(folder / policy.data, policy.classes)
    shelf = folder / "private" / "teachers"
    shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
    teachers = teachers_of(policy, private, shelf)
    parts = private.split(policy.teachers.count, seed=policy.teachers.seed)

    def fit() -> None:
        teachers.fit(private, parts, progress=lambda done, total: progress("training teachers", done, total))

    quietly("fit", fit, ours=Error)
    return Site(policy, folder, key, teachers)


def teachers_of(policy: Policy, private: Private, shelf: Path) -> Any:
    """Build the local teachers that the policy names: each hospital may have others."""
    how = policy.teachers
    if how.kind == PLACES:
        return MomentPlaces(policy.classes)
    if how.kind != "unet":
        return EstimatorTeachers(how.kind, seed=how.seed, checkpoint=shelf)
    import dataclasses

    from tutelage.nets.inputs import arranged
    from tutelage.nets.unet import UNet
    from tutelage.teachers.segmenter import GENTLE, Segmenter

    network = UNet(shape=tuple(arranged(private.inputs[:1]).shape[1:]), widths=how.widths)
    training = dataclasses.replace(GENTLE, steps=how.steps)
    return Segmenter(network, training=training, device="cpu", seed=how.seed, checkpoint=shelf)


@final
class MomentPlaces:
    """Train nothing: every place answers with the counts and sums of its own records, by class."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._found: Sealed | None = None

    def fit(self, private: Private, shards: Shards, *, progress: Callable[[int, int], None] | None = None) -> MomentPlaces:
        """Read every record once."""
        width = int(np.prod(private.inputs.shape[1:]))
        codec = ClassMoments(self.classes, width, 1.0)
        with np.errstate(all="ignore"):
            self._found = Sealed(class_moments(private.inputs, private.targets, shards.indices, codec))
        return self

    def vote(self, inputs: object) -> Sealed:
        """Give every place's moments, sealed: (places, 1, dimension)."""
        if self._found is None:
            raise DataError("`teachers` must be fitted before they are asked. Got none instead.")
        return self._found


def serve(site: Site, door: Door, *, seconds: float, say: Say, tend: Callable[[], None] = lambda: None) -> None:
    """Answer requests, one at a time, until the time is over. `tend` is called every second or so."""
    status = Status(site.private, who=site.policy.name)
    status.write("waiting for a study")
    until = time.monotonic() + seconds
    try:
        _answer_until(until, site, door, status, say, tend)
    finally:
        status.write("stopped")


def _answer_until(until: float, site: Site, door: Door, status: Status, say: Say, tend: Callable[[], None]) -> None:
    while time.monotonic() < until:
        tend()
        line = door.accept(1.0)
        if line is None:
            continue
        with line:
            line.settimeout(60.0)
            try:
                body = receive(line)
                if body is None:
                    continue
                status.write("answering a study")
                answer = site.handle(body)
                send(line, answer)
            except OSError:  # whoever asked has gone; the answer is kept
                say("a request was broken off; its answer is kept")
                continue
        say(f"answered a request with {len(answer):,} bytes")
        status.write("waiting for a study")


def run(policy: Path, *, seconds: float, say: Say, progress: Progress = lambda what, done, total: None) -> None:
    """Train, then connect to the coordinator and serve for a bounded time."""
    signal.signal(signal.SIGTERM, _interrupted)  # as systemd stops it: like Ctrl-C
    told: Policy = read_policy(policy)
    site = open_site(policy, progress=progress)
    with Door() as door, _Engine(told, policy.parent, door.path, say) as engine:
        say(f"{told.name} asks {told.engine.coordinator} for studies; it stops by itself after {seconds:,.0f} s, or with Ctrl-C")
        serve(site, door, seconds=seconds, say=say, tend=engine.tend)


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@final
class _Engine:
    """Keep the engine's client going: it ends where the coordinator is away, or does not know this site's key yet."""

    def __init__(self, policy: Policy, folder: Path, place: str, say: Say) -> None:
        self._policy, self._folder, self._place, self._say = policy, folder, place, say
        self._node = self._start()
        self._next = 0.0

    def _start(self) -> Any:
        from tutelage.federation import wire

        engine = self._policy.engine
        certificates = self._folder / engine.certificates
        return wire.node(
            self._folder / "engine", certificates, engine.coordinator, engine.port, self._place, insecure=engine.insecure
        )

    def tend(self) -> None:
        """Start the client again where it has ended, some seconds later."""
        if self._node.running or time.monotonic() < self._next:
            return
        if self._next:
            self._node = self._start()
            self._next = 0.0
            return
        self._say("the coordinator is away, or does not know this site's key yet; trying again")
        self._node.stop()
        self._next = time.monotonic() + _AGAIN

    def __enter__(self) -> _Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._node.stop()


def would_leave(policy: Path, terms: Path) -> list[str]:
    """Say what a study would take out, from its terms alone: no teacher is trained and no record is read."""
    from tutelage.federation.study import Terms
    from tutelage.privacy.files import read_json

    told = read_policy(policy)
    key = SigningKey.read(policy.parent / told.engine.certificates / "node.key")
    return Site(told, policy.parent, key, _Nobody()).would_leave(Terms.read(read_json(terms, "terms")))


class _Nobody:
    """Stand where teachers are not needed."""

    def vote(self, inputs: object) -> NoReturn:
        """There is nobody to vote."""
        raise DataError("a dry run must not ask teachers.")
