"""What a student of masks is given: answers about some of the public pool, and how noisy they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data.mapped import each
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Hold decoded masks, the codes they were decoded from, and the noise on those codes. All of it was let out."""

    chosen: Array  # (questions,) places in the public pool
    values: Array  # (questions, *shape), decoded: about [0, 1], with noise around it
    codes: Array | None = None  # (questions, dimension), where answers are noisy means
    sigma: float = 0.0  # deviation of the noise on every coordinate of a code; 0 where answers are masks as they are
    codec: Any = None

    def __post_init__(self) -> None:
        if len(self.chosen) != len(self.values) or self.values.ndim < 3:
            raise DataError(f"`values` must be one mask per question. Got {self.values.shape} for {len(self.chosen)} instead.")

    @classmethod
    def exact(cls, masks: Array) -> Answers:
        """Wrap true masks, one per record of a pool: what a control learns from."""
        return cls(np.arange(len(masks)), np.asarray(masks))

    @property
    def noisy(self) -> bool:
        """Tell whether there are codes to learn from, and how far they are off."""
        return self.codes is not None and self.sigma > 0

    @cached_property
    def mean(self) -> Array:
        """Give the mean shape (*shape): N answers' noise falls by √N, and what is left is a strong label by itself."""
        total = np.zeros(self.values.shape[1:])
        for mask in each(self.values):
            total += mask
        return total / max(1, len(self.values))

    def linear(self) -> Answers:
        """Refuse answers that are not noisy codes of a linear codec, before anything is trained on them."""
        if not (self.noisy and hasattr(self.codec, "measured")):
            raise DataError(
                "`codec` must be linear (DCT, PCA, Blocks, Wavelet, Flips) to learn from its codes. Got none instead."
            )
        return self

    def measured(self) -> Any:
        """Give the answers as linear measurements of masks (codecs.linear.Measurement), where the codec is linear."""
        return self.linear().codec.measured(self.codes)

    def averaged(self) -> Answers:
        """Answer every question with the mean shape: the control that a codec must beat."""
        same = np.broadcast_to(self.mean.astype(np.float32), self.values.shape)
        return replace(self, values=same, codes=None, sigma=0.0)

    def __len__(self) -> int:
        return len(self.chosen)

    def __repr__(self) -> str:
        return f"Answers({len(self)} masks of {self.values.shape[1:]}, sigma={self.sigma:g})"
