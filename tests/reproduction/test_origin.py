"""What stands at the head of a result names no place and no day."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tutelage.reproduction import origin, segmentation

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_a_command_names_no_place(tmp_path: Path) -> None:
    words = [f"{tmp_path}/bin/tutelage", "reproduce", "segmentation", "--data", f"{tmp_path}/data", f"--out={tmp_path}/runs"]
    assert origin.command(words) == "tutelage reproduce segmentation --data data --out=runs"
    assert origin.command([f"{tmp_path}/reproduce.py", "a/b", "../other/data"]) == "python reproduce.py a/b data"


def test_a_head_says_machine_versions_and_device() -> None:
    found = origin.head("segmentation", "cpu", words=["tutelage", "reproduce", "segmentation", "--small"])
    assert found["command"] == "tutelage reproduce segmentation --small"
    assert found["machine"]["device"] == "cpu"
    assert found["machine"]["cores"] >= 1
    assert {"python", "numpy", "torch"} <= set(found["versions"])
    assert not re.search(r"20\d\d-\d\d|/home|/tmp", json.dumps(found))


@pytest.mark.parametrize("name", ["segmentation.json", "segmentation.small.json"])
def test_committed_results_have_a_head(name: str) -> None:
    told = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    assert told["command"].startswith("tutelage reproduce segmentation")
    assert {"name", "command", "machine", "versions", "figures"} <= set(told)
    assert [one.name for one in segmentation.read(RESULTS / name)] == [item.name for item in segmentation.ITEMS]
