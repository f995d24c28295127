"""Where networks begin: with weights that learned to see on the public pool, before any label."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tutelage.data.dataset import Public
from tutelage.recipes.sections import unknown

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

Progress = Callable[[str, int, int], None]
KIND = "tutelage.features/1"


@final
class Beginnings:
    """Let every network of a run begin where the recipe's [features] say; equal networks learn to see once.

    What was learned is public and kept in the run's release, so that a run that is resumed begins in the same place.
    """

    def __init__(self, recipe: Recipe, public: Public, folder: Path, *, device: str, progress: Progress | None) -> None:
        self.recipe, self.public, self.folder, self.device = recipe, public, folder, device
        self.say = progress or (lambda what, done, total: None)
        self.settings = None if recipe.features is None else settings(recipe.features)

    def __call__(self, factory: Any) -> Any:
        """Give the factory itself, or one whose networks have learned to see."""
        if self.settings is None:
            return factory
        from tutelage.nets.contrastive import learn_features
        from tutelage.nets.networks import Started, describe
        from tutelage.nets.storage import read_tensors, write_tensors

        manner = f"{describe(factory)}|{self.settings!r}|{self.recipe.seed}|{self.public.sha256}"
        path = self.folder / f"features-{hashlib.sha256(manner.encode()).hexdigest()[:12]}.safetensors"
        if not path.exists():
            learned = learn_features(
                factory,
                self.public.inputs,
                settings=self.settings,
                device=self.device,
                seed=self.recipe.seed,
                progress=lambda done, total: self.say("learning features", done, total),
            )
            write_tensors(path, learned.state, {"kind": KIND, "network": describe(factory)}, private=False)
        return Started(factory, read_tensors(path, kind=KIND)[0])


def settings(section: Any) -> Any:
    """Build how features are learned."""
    from tutelage.nets.contrastive import Contrast
    from tutelage.recipes.learners import augmentations

    table = augmentations()
    given = {key: value for key, value in section.model_dump().items() if value is not None}
    if "augmentation" in given:
        name = given.pop("augmentation")
        if name not in table:
            raise unknown("features.augmentation", name, tuple(table))
        given["distortion"] = table[name]
    return Contrast(**given)
