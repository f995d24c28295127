"""The protocol of the thesis (paper 004): Shokri's and Nasr's attacks on one model, half of the records known to the attacker.

12,500 members and 12,500 non-members there. Its tables hold accuracies, an average: 50 % says nothing about the worst record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.audits.foreign import asked, checked_apart
from tutelage.audits.pipeline import probabilities
from tutelage.audits.roc import Roc
from tutelage.audits.shokri import described, learned

Array = npt.NDArray[Any]
SIZE = 12_500  # records on each side


def attacked(
    model: Any,
    members: tuple[Any, Any],
    others: tuple[Any, Any],
    *,
    classes: int,
    layers: Sequence[str] = (),
    gradients: Sequence[str] = (),
    epochs: int = 100,
    seed: int = 0,
) -> dict[str, Roc]:
    """Attack a model black-box, and white-box where it is a torch module. Scores are of the half that no attack learned from."""
    (inside, inner), (outside, outer) = checked_apart(members, others)
    chance = np.random.default_rng(seed)
    known, new = [], []
    for inputs, labels in ((inside, inner), (outside, outer)):
        order = chance.permutation(len(inputs))[:SIZE]
        halves = np.array_split(order, 2)
        known.append((inputs[halves[0]], labels[halves[0]]))
        new.append((inputs[halves[1]], labels[halves[1]]))
    rows = [described(probabilities(asked(model), inputs, classes), labels) for inputs, labels in (*known, *new)]
    truth = np.repeat([True, False], [len(rows[0]), len(rows[1])])
    outputs = learned(np.concatenate(rows[:2]), truth, np.concatenate(rows[2:]), seed=seed)
    found = {"black-box (Shokri)": Roc.of(outputs[: len(rows[2])], outputs[len(rows[2]) :])}
    if hasattr(model, "named_modules"):
        import torch

        from tutelage.audits.whitebox import Whitebox, features

        looked = [features(model, inputs, labels, layers=layers, gradients=gradients) for inputs, labels in (*known, *new)]
        both = {name: torch.cat([looked[2][name], looked[3][name]]) for name in looked[2]}
        white = Whitebox(epochs=epochs, seed=seed).scored(looked[0], looked[1], both)
        found["white-box (Nasr)"] = Roc.of(white[: len(rows[2])], white[len(rows[2]) :])
    return found
