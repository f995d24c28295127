from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from tests.federation.consortia import Consortium, built, copied


@pytest.fixture(scope="session")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return built(tmp_path_factory.mktemp("trusting") / "federation", 3, "coordinator")


@pytest.fixture(scope="session")
def wary(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return built(tmp_path_factory.mktemp("wary") / "federation", 4, "nobody")


@pytest.fixture
def three(trusting: Consortium, tmp_path: Path) -> Consortium:
    return copied(trusting, tmp_path / "federation")


@pytest.fixture
def four(wary: Consortium, tmp_path: Path) -> Consortium:
    return copied(wary, tmp_path / "federation")
