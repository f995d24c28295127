"""Train a generator against private critics: all rounds are charged before the first, and only gradients are noised.

Selective sanitisation (Chen et al., 2020) by autograd: critics give d(score)/d(image), the curator clips it row by row and adds
noise for the joint sensitivity of all B rows, 2C√B; the generator pushes it through its own weights, which no record touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
import torch

from tutelage.codecs.directions import Directions
from tutelage.data.dataset import Private
from tutelage.nets.generators import Drawing, Generator
from tutelage.privacy.budget import Budget
from tutelage.privacy.curator import Curator
from tutelage.privacy.errors import Error, RecipeError
from tutelage.privacy.events import Gaussian
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.privacy.queries import Query
from tutelage.privacy.rounds import reserved
from tutelage.privacy.sealed import quietly
from tutelage.tasks.statistics.walk import opened
from tutelage.teachers.critics import Critics, schedule

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]


@final
@dataclass(frozen=True)
class Adversarial:
    """Describe the conversation. `mode`: "all" critics answer with their mean, or "one", drawn anew and secret in every round."""

    critics: int = 20
    rounds: int = 200
    images: int = 16  # a round
    clip: float = 1.0  # of one image's gradient
    mode: Literal["all", "one"] = "all"
    learning_rate: float = 1e-3
    latent: int = 16
    width: int = 8
    random_state: int = 0

    def sigma(self, budget: Budget, codec: Directions) -> float:
        """Give the noise on every coordinate of the sum of answers so that all rounds together fit the budget."""
        event = NoisyMean(codec.bound, 1.0, 1, unit=budget.unit, adjacency=budget.adjacency).event()
        assert isinstance(event, Gaussian)
        sensitivity = event.sensitivity
        whole = budget.sigma(sensitivity, rounds=self.rounds)
        if self.mode == "all":
            return whole
        low, high = whole / 100, whole  # where one of K is drawn, less noise does
        for _ in range(7):  # to 4 %: each price is a second of work
            middle = (low * high) ** 0.5
            fits = _price(Gaussian(sensitivity, middle), self.rounds, self.critics, budget.delta) <= budget.epsilon * (1 - 1e-9)
            low, high = (low, middle) if fits else (middle, high)
        return high


def _price(event: Gaussian, rounds: int, population: int, delta: float) -> float:
    try:
        return reserved(event, rounds, population, delta).epsilon
    except RecipeError:  # beyond every grid
        return float("inf")


def train(
    private: Private,
    *,
    how: Adversarial,
    teachers: Critics,
    drawing: Drawing,
    budget: Budget,
    out: str | Path,
    resume: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> tuple[Generator, dict[str, Any]]:
    """Train, and publish the generator. A run that was killed goes on with the rounds that are left; those ahead are lost.

    `stop_after` ends the process's part after so many rounds, as a kill would, for tests of what follows.
    Formal guarantee: everything under `out`/release is (ε, δ)-DP for the budget and unit.
    """
    say = progress or (lambda what, done, total: None)
    codec = Directions(drawing.shape, how.clip, how.images)
    population = how.critics if how.mode == "one" else None
    mechanism = NoisyMean(
        codec.bound, how.sigma(budget, codec), 1 if population else how.critics, unit=budget.unit, adjacency=budget.adjacency
    )
    plan = {"task": "adversarial", "how": asdict(how), "critics": asdict(teachers.how), "classes": list(drawing.classes)}
    given = {"task": "images", "out": out, "budget": budget, "plan": plan, "resume": resume, "seed": seed}
    with opened(private.labelled(len(drawing.classes)), shards=how.critics, **given) as walk:
        curator = Curator(
            teachers, codec, mechanism, walk.ledger, salt=f"{walk.run} {walk.parts.key}", private=walk.folder.private
        )
        torch.manual_seed(how.random_state)
        network = drawing.built()
        template = Query.state(
            content={"asks": "where images should move"}, images=np.zeros((how.images, *drawing.shape), np.float32)
        )
        talk = curator.reserve(how.rounds, template, population=population)
        state, done = talk.state(), 0
        if state is not None:
            done = int(state.pop("done"))
            network.load_state_dict({name: torch.as_tensor(array) for name, array in state.items()})
        if not teachers.load(walk.folder.private, walk.private, walk.parts):
            quietly("fit", lambda: teachers.fit(walk.private, walk.parts), ours=Error)
        optimiser = torch.optim.Adam(network.parameters(), how.learning_rate, betas=(0.5, 0.9))
        labels, begun = schedule(how.images, len(drawing.classes)), done
        while talk.left and (stop_after is None or done - begun < stop_after):
            torch.manual_seed(how.random_state * 1_000_003 + done)
            network.train()
            images = network(labels, torch.randn(how.images, drawing.latent))
            shown = images.detach().numpy()
            answer = talk.ask(Query.state(content={"asks": "where images should move"}, images=shown))
            wanted = torch.as_tensor(codec.decode(answer[None], shown[None])[0], dtype=torch.float32)
            optimiser.zero_grad()
            images.backward(gradient=-wanted)  # uphill in the critics' mean score
            optimiser.step()
            quietly("advance", functools.partial(teachers.advance, shown), ours=Error)
            done += 1
            kept = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
            talk.save({**kept, "done": np.asarray(done)})
            teachers.save(walk.folder.private)
            say("rounds with critics", done, how.rounds)
        if stop_after is not None and talk.left:
            raise KeyboardInterrupt
        walk.asked = done
        network.settle()
        generator = Generator(drawing, network.state_dict())
        generator.save(walk.folder.release / "generator")
        np.savez_compressed(walk.folder.release / "statistics.npz", rounds=np.asarray(done))
        document = walk.publish({})
    return generator, document
