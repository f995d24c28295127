"""The three embedded recipes, carried out once for every test that reads them."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tutelage.recipes.run import embedded, run
from tutelage.report.page import pages
from tutelage.transfer import Outcome


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """Give a finished run by the name of its recipe; it must not be changed."""
    root, made = tmp_path_factory.mktemp("digits"), {}

    def outcome(name: str) -> Outcome:
        if name not in made:
            made[name] = run(embedded(name), root / name, pages=functools.partial(pages, name=name))
        return made[name]

    return outcome


@pytest.fixture
def copied(outcomes: Callable[[str], Outcome], tmp_path: Path) -> Callable[..., Path]:
    """Give a copy of a finished run, to spoil."""

    def copy(name: str = "digits", *, private: bool = True) -> Path:
        place = tmp_path / f"copy-{name}"
        shutil.copytree(outcomes(name).folder.root, place)
        if not private:
            shutil.rmtree(place / "private")
        return place

    return copy
