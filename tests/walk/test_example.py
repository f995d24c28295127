"""What the documentation shows runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_runs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time costs nothing
        runpy.run_path(str(ROOT / "examples" / "digits.py"))
        said = capsys.readouterr().out
        assert said.startswith("Changing all data of one record")
        assert "'private student'" in said
        assert "recomputed_epsilon=8.0" in said
    assert (tmp_path / "runs" / "mine" / "release" / "report.html").exists()


def test_the_guide_shows_the_example_whole() -> None:
    example = (ROOT / "examples" / "digits.py").read_text(encoding="utf-8")
    guide = (ROOT / "docs" / "guide" / "python.md").read_text(encoding="utf-8")
    (shown, *_) = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    assert example.endswith(shown)


def test_the_reference_shows_an_embedded_recipe_whole() -> None:
    reference = (ROOT / "docs" / "reference" / "recipe.md").read_text(encoding="utf-8")
    (shown, *_) = re.findall(r"```toml\n(.*?)```", reference, flags=re.DOTALL)
    assert shown == (ROOT / "src" / "tutelage" / "recipes" / "digits-confident.toml").read_text(encoding="utf-8")


def test_every_field_of_a_guarantee_is_documented() -> None:
    import json

    text = (ROOT / "docs" / "reference" / "guarantee.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE))
    assert set(json.loads(shown)) == rows


LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", goal.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, target
