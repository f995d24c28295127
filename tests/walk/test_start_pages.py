"""What the pages of docs/start show runs as it stands, and the examples, the site and the wheel with them."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
WALKS = ("table", "images", "masks", "volumes")


def shell(folder: Path, lines: str) -> str:
    """Run commands as a reader would type them."""
    shims = folder / "bin"
    shims.mkdir(exist_ok=True)
    for name, words in (("python", ""), ("tutelage", "-m tutelage.cli")):
        (shims / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (shims / name).chmod(0o755)
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    set_ = {**os.environ, "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-e", "-c", lines], cwd=folder, env=set_, capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def blocks(page: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "start" / f"{page}.md").read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", WALKS)
def test_every_walk_runs(page: str, tmp_path: Path) -> None:
    said = shell(tmp_path, "\n".join(blocks(page)))
    assert "declared" in said
    assert (tmp_path / "runs" / "clinic" / "release" / "report.html").is_file()
    assert (tmp_path / "model" / "model.onnx").is_file()
    if page in ("table", "images"):
        text = (tmp_path / "predictions.csv").read_text(encoding="utf-8")
        assert len(text.splitlines()) > 100
    else:
        assert len(list((tmp_path / "drawn").iterdir())) > 7
    if page == "volumes":
        import nibabel

        for drawn in (tmp_path / "drawn").iterdir():
            given = nibabel.load(tmp_path / "clinic" / "test" / "imagesTr" / drawn.name)
            assert np.allclose(nibabel.load(drawn).affine, given.affine)
            assert nibabel.load(drawn).shape == given.shape


@pytest.mark.parametrize("page", WALKS)
def test_walks_are_short(page: str) -> None:
    """Commands are counted: from data to a used model in ten at most."""
    commands = [line for block in blocks(page) for line in block.splitlines() if line.startswith("tutelage")]
    assert len(commands) <= 10
    assert [line.split()[1] for line in commands if line.split()[1] in ("init", "run", "export", "predict")] == [
        "init", "run", "export", "predict",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "images", "masks"])
def test_every_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["made.py", name, "clinic"])
    runpy.run_path(str(ROOT / "examples" / "made.py"), run_name="__main__")
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    assert "'private student'" in capsys.readouterr().out


@pytest.mark.slow
def test_the_site_is_built_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site"), "--strict"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {"start/table.html", "start/which-method.html", "reference/api.html", "guide/deploy.html"} <= pages
    assert 'id="transfer"' in (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")
    assert (tmp_path / "site" / "search" / "search_index.json").stat().st_size > 10_000
    for page in pages:
        text = (tmp_path / "site" / page).read_text(encoding="utf-8")
        assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]+\.(?:js|css|woff2?)"', text), page


@pytest.mark.slow
def test_the_wheel_runs_in_a_clean_environment(tmp_path: Path) -> None:
    """Build it, install it without this source tree, run the smallest demo, and verify that."""
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(tmp_path / "dist")]
    subprocess.run([*build, str(ROOT)], check=True, timeout=300)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tutelage/report/page.html.j2" in names
    assert "tutelage/recipes/digits.toml" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    venv.create(tmp_path / "clean", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "clean").glob("lib/python*/site-packages")
    shutil.unpack_archive(str(wheel), str(site), "zip")
    # What the wheel needs is taken from this environment, but for the package itself.
    (site / "needed.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    run = [str(tmp_path / "clean" / "bin" / "python"), "-m", "tutelage.cli"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    where = subprocess.run(
        [run[0], "-c", "import tutelage; print(tutelage.__file__)"], capture_output=True, text=True, env=clean, check=True
    )
    assert str(site) in where.stdout
    for words in (["demo", "--only", "digits", "--out", "demo"], ["verify", "demo"], ["--version"]):
        done = subprocess.run([*run, *words], cwd=tmp_path, capture_output=True, text=True, env=clean, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
