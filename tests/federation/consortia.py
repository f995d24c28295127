"""Small consortia for tests: real keys, policies, ledgers, teachers and messages; only the engine is left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tutelage.federation.certificates import SigningKey
from tutelage.federation.consortium import furnish, init
from tutelage.federation.envelope import closed, opened, signed
from tutelage.federation.hospital import open_site
from tutelage.federation.policy import read_policy
from tutelage.federation.site import Site, answer_context, request_context
from tutelage.federation.walk import Finished, Prepared, coordinate, prepare
from tutelage.privacy.ledger import Ledger

TEACHERS, QUERIES = 3, 40


@dataclass
class Consortium:
    """Hold a consortium's folders and its sites, which answer in this process."""

    root: Path
    names: list[str]
    sites: dict[int, Site] = field(default_factory=dict)

    def prepared(self) -> Prepared:
        return prepare(self.root / "coordinator" / "study.toml")

    def transport(self, **instead: Callable[[Callable[[bytes], bytes], bytes], bytes]) -> Wayward:
        return Wayward({place: site.handle for place, site in self.sites.items()}, instead)

    def run(self, transport: Wayward | None = None, *, resume: bool = False, out: str = "run") -> Finished:
        return coordinate(self.prepared(), self.root / out, transport or self.transport(), resume=resume)

    def rewrite(self, file: str, *changes: tuple[str, str]) -> None:
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")

    def reopened(self) -> Consortium:
        """Start every site's process again: policies and ledgers are read anew."""
        for place, name in enumerate(self.names):
            old, folder = self.sites[place], self.root / name
            self.sites[place] = Site(read_policy(folder / "policy.toml"), folder, old.key, old.teachers)
        return self

    def charged(self, place: int, unit: str) -> int:
        with Ledger(self.root / self.names[place] / "private" / f"{unit}.sqlite") as ledger:
            return sum(count for _, count in ledger.totals())


class Wayward:
    """Carry bytes within one process; some sites may be made to misbehave."""

    def __init__(self, sites: Mapping[int, Callable[[bytes], bytes]], instead: Mapping[str, Any]) -> None:
        self.sites, self.instead = dict(sites), {int(name.removeprefix("site")): step for name, step in instead.items()}
        self.sent: list[tuple[int, bytes]] = []
        self.received: list[tuple[int, bytes]] = []

    def nodes(self) -> list[int]:
        return sorted(self.sites)

    def exchange(self, bodies: Mapping[int, bytes], seconds: float) -> Iterator[tuple[int, bytes]]:
        for node, body in bodies.items():
            self.sent.append((node, body))
            step = self.instead.get(node)
            answers = self.sites[node](body) if step is None else step(self.sites[node], body)
            for answer in [answers] if isinstance(answers, bytes) else answers:
                self.received.append((node, answer))
                yield node, answer


def answered(body: bytes, made: Consortium, arrays: Any, *, key: SigningKey, phase: str, **changes: Any) -> bytes:
    """Answer a request in somebody's name, as a site would: correctly signed, and closed for the coordinator."""
    letter = opened(body, request_context(phase, made.prepared().terms.key))
    head = {"phase": phase, "study": made.prepared().terms.key, "request": letter.sha256, "site": "hospital-1", **changes}
    return closed(signed(key, answer_context(phase, head["study"]), head, arrays), letter.head["reply_to"])


def built(root: Path, sites: int, trust: Any) -> Consortium:
    names = [f"hospital-{number + 1}" for number in range(sites)]
    init(root, names)
    furnish(root, names, trust=trust, teachers=TEACHERS, queries=QUERIES)
    made = Consortium(root, names)
    for place, name in enumerate(names):
        made.rewrite(
            f"{name}/policy.toml", (f'kind = "{read_policy(root / name / "policy.toml").teachers.kind}"', 'kind = "linear"')
        )
        made.sites[place] = open_site(root / name / "policy.toml")
    return made


def copied(original: Consortium, root: Path) -> Consortium:
    """Give a consortium of its own to a test: the same keys and trained teachers, empty ledgers."""
    shutil.copytree(original.root, root)
    made = Consortium(root, original.names, dict(original.sites))
    for place, name in enumerate(made.names):
        for file in (root / name / "private").glob("*.sqlite*"):
            file.unlink()
        old = original.sites[place]
        made.sites[place] = Site(old.policy, root / name, SigningKey.read(root / name / "keys" / "node.key"), old.teachers)
    return made
