"""Parts of noise: what the worst coalition sees has the noise that the ledgers say, and a twin with larger parts has not."""

from __future__ import annotations

import numpy as np
import pytest

from tutelage.federation.secure_sum import Quorum
from tutelage.privacy.mechanisms import GNMax, _step
from tutelage.privacy.sealed import Sealed

SIGMA, DRAWS = 4.0, 6000


def unknown_noise(quorum: Quorum, parts: int) -> float:
    """Give the deviation of the noise that a coalition of colluders does not know, when as few as may have answered."""
    mechanism, step = GNMax(3, SIGMA), _step(SIGMA)
    votes = np.zeros((1, DRAWS, 3))
    votes[..., 0] = 1.0
    known = max(quorum.colluders, 1)
    given = [mechanism.contribute(Sealed(votes), share=1 / parts) for _ in range(quorum.threshold)]
    noise = np.sum(given[known:], axis=0)[:, 1:] * step  # classes without a vote hold noise alone
    return float(np.std(noise))


@pytest.mark.parametrize("quorum", [Quorum(8, 6, 1), Quorum(4, 3, 0), Quorum(5, 4, 1)], ids=str)
def test_the_worst_coalition_faces_the_noise_that_is_charged(quorum: Quorum) -> None:
    quorum.check_secure()
    error = 4 * SIGMA / np.sqrt(2 * 2 * DRAWS)
    assert unknown_noise(quorum, quorum.noise_parts) > SIGMA - error
    assert unknown_noise(quorum, quorum.threshold) < SIGMA - error  # the broken twin: colluders' parts count as noise


def test_with_everybody_there_the_noise_is_what_the_issue_says() -> None:
    assert 8 / Quorum(8, 6, 1).noise_parts == 1.6
