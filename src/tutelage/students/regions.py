"""A student that looks at one region at a time: learns which region of each public image the answers named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch

from tutelage.answers import Answers
from tutelage.data.accepted import taken
from tutelage.data.dataset import Public
from tutelage.nets.answering import answer
from tutelage.nets.crops import CHANNELS, SIDE, SILHOUETTES, Crops, Cut, crops_of
from tutelage.nets.inputs import pick_device
from tutelage.nets.networks import ConvNet, Factory
from tutelage.nets.regions import RegionModel
from tutelage.nets.training import State, Training, train_one, train_stack
from tutelage.privacy.errors import RecipeError

Progress = Callable[[int, int], None]
TRAINING = Training(steps=2000, batch=32, augmentation=SILHOUETTES)
WIDTHS = (32, 64, 128)  # wider than a teacher's: there are few students, with more to learn from
_TOGETHER = 96  # networks in one stack on a GPU


@final
class RegionStudent:
    """Learn from masks that each are one region of their image, or nothing. The region nearest to a mask counts as its answer.

    `members` networks learn the same from other weights and in another order, and think together: that costs no privacy.
    """

    def __init__(
        self,
        cut: Cut,
        network: Factory | None = None,
        *,
        training: Training = TRAINING,
        members: int = 3,
        side: int = SIDE,
        threshold: float | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        if isinstance(members, bool) or not isinstance(members, int) or members < 1:
            raise RecipeError(f"`members` must be a whole number ≥ 1. Got {members!r} instead.")
        self.cut, self.side, self.training, self.members = cut, side, training, members
        self.network = network or ConvNet(shape=(CHANNELS, side, side), classes=2, widths=WIDTHS)
        self.threshold, self.device, self.seed = threshold, device, seed

    def check(self, public: Public) -> None:
        """Refuse a pool that cannot be cut, and a network that has no answer for its regions."""
        self.cut.seeing(np.asarray(public.inputs[:1]))
        shape = (CHANNELS, self.side, self.side)
        if answer(self.network, shape) != (2,):
            raise RecipeError(f"`network` must answer two numbers about regions of shape {shape}. Got one that does not instead.")

    def fit(self, public: Public, answers: Answers, *, progress: Progress | None = None) -> RegionModel:
        """Learn from one set of answers."""
        return self.fit_all(public, [answers], progress=progress)[0]

    def fit_all(self, public: Public, sets: Sequence[Answers], *, progress: Progress | None = None) -> list[RegionModel]:
        """Learn from several sets of answers, a student each; every image that any of them is about is cut once."""
        asked = np.unique(np.concatenate([answers.chosen for answers in sets]))
        said = [(np.searchsorted(asked, answers.chosen), np.asarray(answers.values)) for answers in sets]
        crops, named = crops_of(self.cut, np.asarray(public.inputs)[asked], said, side=self.side, device=self.device)
        models = self.learn(crops, [(rows, names) for (rows, _), names in zip(said, named, strict=True)], progress=progress)
        for model in models:
            model.accepted = taken(public)
        return models

    def learn(self, crops: Crops, lessons: Sequence[tuple[Any, Any]], *, progress: Progress | None = None) -> list[RegionModel]:
        """Learn from images that were cut before: (images, the region in each answer) for every student."""
        states = self._train(*crops.lessons([lesson for lesson in lessons for _ in range(self.members)]), progress)
        given: dict[str, Any] = {"side": self.side, "threshold": self.threshold, "device": self.device}
        several = (states[first : first + self.members] for first in range(0, len(states), self.members))
        return [RegionModel(self.cut, self.network, _stacked(some), **given) for some in several]

    def _train(self, pictures: Any, wanted: Any, shards: list[Any], progress: Progress | None) -> list[State]:
        """Train one network per shard: on a GPU side by side, on a CPU one after the other."""
        place = pick_device(self.device)
        done, total = 0, len(shards) * self.training.steps

        def tick(steps: int) -> None:
            nonlocal done
            done += steps
            if progress:
                progress(done, total)

        inputs, targets = torch.from_numpy(pictures).to(place), torch.from_numpy(wanted).to(place)
        rows = [torch.from_numpy(shard).to(place) for shard in shards]
        given: dict[str, Any] = {"training": self.training, "seed": self.seed, "tick": tick}
        if place.type != "cuda":
            return [train_one(self.network, inputs[row], targets[row], teacher=k, **given) for k, row in enumerate(rows)]
        states: list[State] = []
        size = -(-len(rows) // -(-len(rows) // _TOGETHER))  # nearly equal stacks: a compiled step fits one size only
        for first in range(0, len(rows), size):
            torch.compiler.reset()  # every fit has sizes of its own, and the compiler gives up after eight
            some = range(first, min(first + size, len(rows)))
            mine = [rows[k] for k in some]
            state = train_stack(self.network, inputs, targets, mine, teachers=some, compiled=True, products=True, **given)
            states += [{name: tensor[k] for name, tensor in state.items()} for k in range(len(some))]
        return states


def _stacked(states: Sequence[State]) -> State:
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
