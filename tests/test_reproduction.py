"""Published figures beside recomputed ones. The rows that take dp-accounting are run once, by tests/walk/test_cli.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tutelage.privacy.errors import DataError
from tutelage.reproduction import accounting

TEACHERS = 250


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    """Write vote counts of the published shape, made up."""
    generator = np.random.default_rng(0)
    for name, agreement in (("mnist", 0.9), ("svhn", 0.7)):
        shares = np.full((1200, 10), (1 - agreement) / 9)
        shares[np.arange(1200), generator.integers(0, 10, 1200)] = agreement
        counts = np.stack([generator.multinomial(TEACHERS, row) for row in shares])
        np.save(tmp_path / f"{name}_250_teachers.npy", counts)
    np.save(tmp_path / "mnist_250_teachers_100_indices_used_by_student.npy", generator.choice(1200, 100, replace=False))
    return tmp_path


def test_vector_pate_has_three_readings() -> None:
    figure, teachers = accounting._vector_pate()
    assert figure.published == "ε = 125.94"
    assert figure.as_published.startswith("125.94 (Rényi closed form, sensitivity 1/K); exact 115.72")
    assert figure.true == "404.55 exact, 424.10 Rényi"
    assert teachers.published == "K ≥ 37"
    assert teachers.as_published == "K ≥ 37 exact (1/K), K ≥ 45 Rényi (1/K)"
    assert teachers.true == "K ≥ 74"


def test_the_thesis_had_no_signal_at_its_own_formula() -> None:
    row = accounting._thesis()
    assert "σ = 187 on values in [-1, 1]" in row.as_published
    assert row.true == "ε ≈ 1,188"


def test_a_coarser_grid_never_gives_a_smaller_figure() -> None:
    fine, coarse = (accounting._sampled(1.02, 2000, grid) for grid in (1e-4, 1e-3))
    assert 0.19 < fine < coarse


def test_rows_from_votes(votes: Path) -> None:
    rows = accounting._from_votes(votes)
    assert [row.published for row in rows] == [
        "ε = 2.04",
        "ε = 8.03",
        "ε = 5.04",
        "ε = 8.19",
        "ε = 1.97, 286 answered",
    ]
    assert "data-independent 5.30" in rows[0].remark  # 100 queries at γ = 0.05: no vote enters this one
    assert "answered (100 realised runs)" in rows[4].as_published
    assert rows[4].true.startswith("sanitised ")
    assert rows == accounting._from_votes(votes)  # the same table every time


def test_unanimous_votes_cost_next_to_nothing(votes: Path) -> None:
    counts = np.zeros((1200, 10))
    counts[:, 3] = TEACHERS
    assert accounting._lnmax(counts[:100], 0.1, 1e-5) < accounting._plain_lnmax(100, 0.1, 1e-5) / 5
    assert accounting._lnmax(counts[:100], 0.1, 1e-5, 22) <= accounting._lnmax(counts[:100], 0.1, 1e-5)


def test_more_moments_only_help(votes: Path) -> None:
    counts = np.load(votes / "mnist_250_teachers.npy")[:100]
    assert accounting._lnmax(counts, 0.1, 1e-5, 22) <= accounting._lnmax(counts, 0.1, 1e-5, 8)


def test_votes_that_are_not_there_are_refused(votes: Path) -> None:
    with pytest.raises(DataError, match=r"`votes` must be a directory with mnist_250_teachers\.npy"):
        accounting.table(votes / "elsewhere")
    (votes / "svhn_250_teachers.npy").write_bytes(b"not numpy")
    with pytest.raises(DataError, match=r"`votes` must be a directory with svhn_250_teachers\.npy"):
        accounting.table(votes)
    np.save(votes / "svhn_250_teachers.npy", np.ones((5, 10)))
    with pytest.raises(DataError, match=r"`votes` must hold 1,000 rows or more in svhn_250_teachers\.npy\. Got 5"):
        accounting.table(votes)
