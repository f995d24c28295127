"""Public lists of the people in published sets, for runs in which every place has to be known beforehand."""

from __future__ import annotations

from tutelage.privacy.units import Roster

# Which patients have a file in the training part of the Decathlon's Task04, as published: hippocampus_(2k-1) and _(2k) are the
# two sides of patient k. Of 197 patients these are in the test part alone, which comes without masks.
_ELSEWHERE = (
    5, 11, 14, 15, 16, 31, 36, 40, 41, 43, 56, 58, 59, 60, 61, 70, 84, 96, 101, 107, 120, 128, 136, 142, 162, 174, 196,
)  # fmt: skip


def hippocampus() -> Roster:
    """List the 170 patients of the Decathlon's hippocampi, named as `Volumes.decathlon` names them."""
    return Roster.of([f"hippocampus patient {number}" for number in range(1, 198) if number not in _ELSEWHERE])
