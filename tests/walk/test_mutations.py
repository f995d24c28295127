"""Releases changed at random: none verifies with a changed meaning, and none ends in anything but one line of ours.

A careless change leaves the manifest as it is. A forger's manifest fits: then what the ledger or the files contradict is refused,
and the rest shows in the manifest's own SHA-256, which `verify` prints and the data's owner knows.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tutelage import manifest
from tutelage.privacy.errors import Error
from tutelage.recipes.recipe import parse
from tutelage.recipes.run import run
from tutelage.runs import RunFolder
from tutelage.verification import Verdict, verify

FILES = ("guarantee.json", "manifest.json", "recipe.toml", "book.jsonl", "student.skops")
#: Fields that nothing in a release contradicts: on somebody's word, and listed as that.
WORD = {"versions", "accountant"}
#: Figures that may be larger than they need be: a claim that promises less.
MODEST = {"epsilon", "data_independent_epsilon", "mu", "implied_tpr_at_fpr_0.001"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release a small run of a recipe, without its page."""
    from importlib import resources

    text = resources.files("tutelage.recipes").joinpath("digits.toml").read_text(encoding="utf-8").replace("= 200", "= 12")
    return run(parse(text), tmp_path_factory.mktemp("mutations") / "run").folder.release


def changed(content: bytes, choose: random.Random) -> bytes:
    """Change a file somewhere, in one of the ways that disks, editors and forgers have."""
    kind, place = choose.randrange(8), choose.randrange(len(content))
    if kind == 0:
        return content[:place] + bytes([content[place] ^ (1 << choose.randrange(8))]) + content[place + 1 :]
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + choose.choice((b"0", b"9", b"-", b"e9", b" ", b"\n", b'"', b"\x00", b"\xff")) + content[place:]
    if kind == 3:
        return content[:place] + content[place + choose.randint(1, 40) :]
    if kind == 4:
        return content[:place] + content[place : place + 60] + content[place:]
    if kind == 5:
        lines = content.splitlines(keepends=True)
        first, second = choose.randrange(len(lines)), choose.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
        return b"".join(lines)
    spots = [spot for spot in range(len(content)) if content[spot : spot + 1].isdigit()]
    spot = choose.choice(spots)
    if kind == 6:
        return content[:spot] + choose.choice((b"0", b"1", b"8", b"1e400", b"9" * 400, b"NaN", b"null")) + content[spot + 1 :]
    start = content.rfind(b"\n", 0, place) + 1
    end = content.find(b"\n", place)
    line = content[start:end]
    return content[:start] + line + (b"" if line.endswith(b",") else b",") + b"\n" + content[start:]  # a key twice


def forged(content: bytes, choose: random.Random) -> bytes:
    """Change one field of a JSON object, as somebody does who knows the format."""
    told: dict[str, Any] = json.loads(content)
    name = choose.choice(sorted(told))
    value = told[name]
    others: list[Any] = [None, 0, 1, -1, 0.1, 10**18, "", "infinity", True, False, [], {}, ["x"], {"x": 1}, "another"]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        others += [value * 2, value / 2, value * (1 - 1e-9), value + 1]
    if isinstance(value, dict) and value and choose.random() < 0.7:
        inner = choose.choice(sorted(value))
        told[name] = {**value, inner: choose.choice(others)}
    elif choose.random() < 0.1:
        del told[name]
    elif choose.random() < 0.1:
        told[f"{name}_"] = value
    else:
        told[name] = choose.choice(others)
    return json.dumps(told, indent=2, ensure_ascii=False).encode()


def meaning(name: str, content: bytes) -> Any:
    """Read a file as a program would; the student's bytes are what it means."""
    if name == "book.jsonl":
        return [json.loads(line) for line in content.decode().splitlines()]
    return json.loads(content) if name.endswith(".json") else content


def _fault(name: str, true: bytes, other: bytes, manifest_fits: bool, found: Verdict, honest: Verdict) -> str:
    """Say what is wrong with a change that verifies; nothing where that is as it should be."""
    if not manifest_fits:
        return f"{name} was changed, and the manifest was not"
    if found.manifest == honest.manifest:
        return f"{name} was changed, and the printed hash is the same"
    if meaning(name, true) == meaning(name, other) or name == "student.skops":
        return ""  # the printed hash alone tells, and says so: `unbound` lists the student
    if name != "guarantee.json":
        return f"{name} has another meaning"
    before, after = meaning(name, true), meaning(name, other)
    different = {key for key in before if before[key] != after[key]}
    modest = {key for key in different & MODEST if after[key] == "infinity" or after[key] >= before[key] * (1 - 2e-5)}
    modest |= {"mu_is_exact"} if before["mu_is_exact"] else set()  # a curve that is not claimed
    if {**after["labels"], "distinct": 0} == {**before["labels"], "distinct": 0}:
        modest.add("labels")  # that more of the answered records are equal: `unbound` lists it
    return "" if different <= WORD | modest else f"guarantee.json has other {sorted(different)}"


@pytest.mark.parametrize("count", [1_500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_no_change_verifies_with_another_meaning(release: Path, tmp_path: Path, count: int) -> None:
    alone = shutil.copytree(release, tmp_path / "alone")
    originals = {name: (alone / name).read_bytes() for name in FILES}
    honest, choose, kinds = verify(alone), random.Random(count), Counter[str]()
    faults = []
    for _ in range(count):
        name, fits = choose.choice(FILES), choose.random() < 0.6
        forger = name == "guarantee.json" and choose.random() < 0.6
        other = (forged if forger else changed)(originals[name], choose)
        if other == originals[name]:
            continue
        (alone / name).write_bytes(other)
        if fits := fits and name != "manifest.json":
            manifest.write(alone)
        try:
            found = verify(alone)
            kinds["verified"] += 1
            if said := _fault(name, originals[name], other, fits, found, honest):
                faults.append(said)
        except Error as error:
            kinds["refused"] += 1
            if "\n" in str(error) or len(str(error)) > 500:
                faults.append(f"{name}: not one line: {error}")
        (alone / name).write_bytes(originals[name])
        if fits:
            (alone / "manifest.json").write_bytes(originals["manifest.json"])
    assert faults == []
    assert kinds["refused"] > 0.7 * count
    assert verify(alone) == honest


def test_a_twin_that_reads_json_as_it_comes_is_caught(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done before: the last of two equal keys counts, and unknown ones are passed over."""
    from tutelage import claims

    alone = shutil.copytree(release, tmp_path / "alone")
    true = (alone / "guarantee.json").read_text(encoding="utf-8")
    (alone / "guarantee.json").write_text(true.replace("{", '{\n  "epsilon": 0.1,', 1), encoding="utf-8")
    manifest.write(alone)
    with pytest.raises(Error):
        verify(alone)
    monkeypatch.setattr(claims, "read_json", lambda path, *_, **__: json.loads(Path(path).read_text(encoding="utf-8")))
    assert verify(alone).claimed_epsilon > 1  # and whoever opens the file reads 0.1


def test_the_run_itself_verifies(release: Path) -> None:
    assert verify(RunFolder(release.parent)).against_private_book
