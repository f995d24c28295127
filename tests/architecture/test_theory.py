"""Every event has its proof, and every file or name that the proofs and the review mention exists."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from tutelage.privacy import events

ROOT = Path(__file__).resolve().parents[2]
THEORY = ROOT / "docs" / "theory"
INDEX = THEORY / "README.md"
KINDS = [kind.__name__ for kind in get_args(events.Event)]
PAGES = [
    *sorted(THEORY.glob("*.md")),
    *(ROOT / page for page in ("REVIEW.md", "CONTRIBUTING.md", "docs/pitfalls.md", "docs/limits.md")),
]

_QUOTED = re.compile(r"`([^`\s]+)`")
_PATH = re.compile(r"^(?:src|tests|docs|benchmarks|examples|privacy)/[\w./-]+\.\w+(?::[\w.]+)?$")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def snake(name: str) -> str:
    """`SmoothRelease` → `smooth_release`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def mentioned(text: str) -> list[tuple[str, str]]:
    """Find (path, name or nothing) for every quoted `path/file.ext` or `path/file.py:name`."""
    quoted = (match for match in _QUOTED.findall(text) if _PATH.match(match))
    return [(path, name) for path, _, name in (match.partition(":") for match in quoted)]


def located(path: str) -> Path:
    """Paths in the review are relative to the package; all others to the repository."""
    return ROOT / ("src/tutelage/" + path if path.startswith("privacy/") else path)


@cache
def names(path: Path) -> frozenset[str]:
    """Collect what a module defines: functions, classes, `Class.method`, assigned names."""
    found: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def rows() -> dict[str, str]:
    """Give the index's table rows by the event or statement they begin with."""
    lines = INDEX.read_text(encoding="utf-8").splitlines()
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("|") and not line.startswith("|--")}


def test_there_are_events_to_prove() -> None:
    assert {"Gaussian", "NonPrivate"} <= set(KINDS)
    defined = {
        name
        for name, value in vars(events).items()
        if isinstance(value, type) and value.__module__ == events.__name__ and not name.startswith("_")
    }
    assert defined == set(KINDS)  # a class that is not in the union is no event, and must not look like one


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_a_page_that_names_it(kind: str) -> None:
    page = THEORY / f"{snake(kind)}.md"
    assert page.is_file()
    text = page.read_text(encoding="utf-8")
    assert re.search(rf"\b{kind}\b", text)
    assert "**Event.**" in text
    assert "**Claim" in text
    assert "**Proof" in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_a_row_with_proof_code_and_test(kind: str) -> None:
    row = rows()[f"`{kind}`"]
    assert f"({snake(kind)}.md)" in row
    paths = [path for path, _ in mentioned(row)]
    assert any(path.startswith("src/") for path in paths)
    assert any(path.startswith("tests/") for path in paths)


def test_every_page_is_in_the_index() -> None:
    linked = {Path(link).name for link in _LINK.findall(INDEX.read_text(encoding="utf-8"))}
    assert {page.name for page in THEORY.glob("*.md")} - {INDEX.name} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_and_name_exists(page: Path) -> None:
    missing = []
    for path, name in mentioned(page.read_text(encoding="utf-8")):
        file = located(path)
        if not file.is_file() or (name and name not in names(file)):
            missing.append(f"{path}:{name}")
    assert missing == []


def test_names_are_really_looked_up() -> None:
    file = ROOT / "src" / "tutelage" / "privacy" / "accounting.py"
    assert {"cost", "Cost", "ORDERS"} <= names(file)
    assert "Cost.epsilon" in names(file)
    assert "no_such_function" not in names(file)
    text = "see `src/a/b.py:C.d` and `tests/x.py`, not `word` or `a b/c.py`"
    assert mentioned(text) == [("src/a/b.py", "C.d"), ("tests/x.py", "")]


def test_the_review_takes_an_hour_and_a_half() -> None:
    text = (ROOT / "REVIEW.md").read_text(encoding="utf-8")
    tables = text.split("| min | file | look for |")[1:]
    minutes = [sum(int(cell) for cell in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)) for table in tables]
    assert minutes == [60, 30]
    core = {path.name for path in (ROOT / "src" / "tutelage" / "privacy").glob("*.py")} - {"__init__.py"}
    listed = set(re.findall(r"^\| \d+ \| `privacy/(\w+\.py)` \|", text, flags=re.MULTILINE))
    assert listed == core
