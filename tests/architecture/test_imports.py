"""The floor plan: who may import whom, who may draw noise, who may open a seal, and what every file keeps to."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from types import ModuleType

import pytest

import tutelage

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tutelage"
PRIVACY = sorted((SOURCE / "privacy").glob("*.py"))
SCRIPTS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.name != "result.py")
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def python(code: str, *blocked: str) -> str:
    """Run code in a fresh interpreter where some packages are not installed."""
    text = BLOCKED.format(blocked=blocked) + code
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=os.environ, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ── what works without what ───────────────────────────────────────────────────────────────────────────────────────────


def test_importing_the_package_is_light() -> None:
    heavy = ("torch", "matplotlib", "sklearn", "skops", "pydantic", "jinja2", "dp_accounting", "typer", "rich")
    loaded = python(f"import tutelage\nprint([name for name in {heavy!r} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_the_package_and_its_commands_work_without_torch(tmp_path: Path) -> None:
    recipe = (SOURCE / "recipes" / "digits.toml").read_text(encoding="utf-8").replace("= 200", "= 20")
    (tmp_path / "small.toml").write_text(recipe, encoding="utf-8")
    said = python(
        f"""
import tutelage
for name in tutelage.__all__:
    getattr(tutelage, name)
from tutelage.cli import app
def call(*words):
    app([*map(str, words)], standalone_mode=False)
call("plan", "--teachers", 8, "--queries", 62, "--sigma", 0.075, "--delta", 0.01, "--json")
call("run", {str(tmp_path / "small.toml")!r}, "--out", {str(tmp_path / "run")!r}, "--json")
call("verify", {str(tmp_path / "run")!r}, "--json")
call("version")
import tutelage.reproduction.accounting, tutelage.data
assert "torch" not in sys.modules
""",
        "torch",
        "torchvision",
        "safetensors",
    )
    assert '"solved_for": "epsilon"' in said
    assert '"verified": true' in said


# ── the floor plan ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_import_contracts_hold() -> None:
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS


def imported(path: Path) -> set[str]:
    """Name the packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} must import by whole names"
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("path", PRIVACY, ids=lambda path: path.name)
def test_privacy_imports_little(path: Path) -> None:
    strangers = imported(path) - sys.stdlib_module_names - {"numpy", "scipy", "dp_accounting", "mpmath", "tutelage"}
    assert not strangers
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tutelage"):
            assert (node.module or "").startswith("tutelage.privacy")


# ── one file draws noise, two open seals ──────────────────────────────────────────────────────────────────────────────

DRAWS = {
    "random", "secrets", "urandom", "getrandom", "SystemRandom", "default_rng", "Generator", "RandomState", "SeedSequence",
    "normal", "standard_normal", "laplace", "gumbel", "uniform", "randint", "integers", "randbits", "getrandbits", "rvs",
    "choice", "shuffle", "permutation", "uuid4",
}  # fmt: skip


def names(path: Path) -> list[tuple[int, str]]:
    """Every name that a file imports or reads from something else, with its line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            found.append((node.lineno, node.attr))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            words = [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
            found += [(node.lineno, part) for word in words for part in word.split(".")]
    return found


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "from secrets import randbits",
        "noise = os.urandom(8)",
        "np.random.default_rng(0)",
        "generator.normal(0, 1)",
        "from numpy.random import Generator as G",
        "scipy.stats.norm.rvs()",
    ],
)
def test_the_scan_sees_noise(line: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(line, encoding="utf-8")
    assert {name for _, name in names(tmp_path / "file.py")} & DRAWS


def test_only_noise_draws_noise() -> None:
    drawing = {path.name for path in PRIVACY if any(name in DRAWS for _, name in names(path))}
    assert drawing == {"noise.py", "entries.py", "chance.py"}
    # chance.py draws nothing: it puts the process's own generators back.
    assert {name for _, name in names(SOURCE / "privacy" / "chance.py") if name in DRAWS} == {"random"}
    # entries.py draws the names of ledgers and charges, which are no noise: in one place.
    assert [name for _, name in names(SOURCE / "privacy" / "entries.py") if name in DRAWS] == ["urandom"]


def test_noise_comes_from_the_operating_system_alone() -> None:
    drawn = {name for _, name in names(SOURCE / "privacy" / "noise.py") if name in DRAWS}
    assert drawn == {"urandom"}


def test_seals_are_opened_in_two_files() -> None:
    opening = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(name in ("_open", "_KEY", "_Sealed__value") for _, name in names(path))
    }
    assert opening == {"privacy/mechanisms.py", "privacy/ledger.py"}


# ── public names ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_is_what_is_public() -> None:
    own = {
        name
        for name, value in vars(tutelage).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and str(getattr(value, "__module__", "")).startswith("tutelage")
    }
    assert set(tutelage.__all__) == own | set(tutelage._LATER) | {"__version__"}
    assert len(set(tutelage.__all__)) == len(tutelage.__all__)
    assert tutelage.__all__ == sorted(tutelage.__all__)


def test_every_public_name_resolves_and_says_what_it_is() -> None:
    assert set(tutelage.__all__) <= set(dir(tutelage))
    for name in tutelage.__all__:
        value = getattr(tutelage, name)
        assert value is getattr(tutelage, name)
        if callable(value):
            assert value.__name__ == name
            assert value.__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tutelage.nothing


def test_versions_agree() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == tutelage.__version__
    assert f"## [{tutelage.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# ── size and words ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_files_stay_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    assert not re.search(r"(?:utils|helpers|manager)", path.stem)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 70, f"{node.name} is {node.end_lineno - node.lineno + 1} lines long"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_benchmark_has_a_result_and_a_row(path: Path) -> None:
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    results = sorted((ROOT / "benchmarks" / "results").glob(f"{path.stem}*.json"))
    results = [result for result in results if result.name.split(".")[0] == path.stem]
    assert results
    assert f"| `{path.name}`" in table
    for result in results:
        record = json.loads(result.read_text(encoding="utf-8"))
        assert {"machine", "versions", "command", "figures"} <= set(record)
        assert f"results/{result.name}" in table


def test_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


def tracked() -> list[Path]:
    """The text files that git holds or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


ABSOLUTE = re.compile(r"(?<![\w.~$}/-])/(?:(?:home|root|Users|work|mnt|opt|srv|var|data|workspace)/[\w.-]+|tmp/[\w.-]+/)")
ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
REGISTRY = re.compile(r"index-url|artifactory|nexus|/simple/|\.(?:internal|local|corp|lan)\b(?!\()")


def test_tracked_files_name_no_machine() -> None:
    here = Path(__file__).resolve()
    for path in tracked():
        if path == here or path.suffix in (".svg",):
            continue
        with tokenize.open(path) if path.suffix == ".py" else path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                for pattern in (ABSOLUTE, ADDRESS, REGISTRY):
                    found = pattern.search(line)
                    assert not found or _harmless(found[0], line), f"{path.relative_to(ROOT)}:{number}: {found}"


def _harmless(found: str, line: str) -> bool:
    """A version may have four parts too (0.2.3.1 is no host), and a test may speak of its own loopback."""
    return found.startswith(("127.0.0.", "0.")) or "==" in line
