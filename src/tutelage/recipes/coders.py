"""From the [codec] of a recipe to the codec. What is fitted sees public masks alone; torch only for a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.fitting import QUANTILE
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regions import Regions
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.rescaled import Rescaled
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Ball, Bound, Cube
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.recipes import sets
from tutelage.recipes.codecs import FILTERS, PLACE, SHOWN, STRETCHED, section
from tutelage.recipes.sections import placed

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe


def codec(recipe: Recipe, public: Public, *, device: str, kept: Path, begun: bool = False) -> Any:
    """Build the codec. What is fitted sees public masks alone; a network is kept in the release, for a run that is resumed.

    Before the run has begun nothing was asked yet: a file that is there may be of other settings, and is made anew.
    """
    assert recipe.codec is not None
    return _Builder(recipe, public, device, kept, begun).made(section(recipe.codec), PLACE)


@final
@dataclass(frozen=True)
class _Builder:
    """Hold what every codec of a recipe is built from."""

    recipe: Recipe
    public: Public
    device: str
    kept: Path
    begun: bool

    @cached_property
    def masks(self) -> Public:
        """Give the public masks that codecs are fitted on; read or drawn where one is fitted."""
        return sets.shapes(self.recipe.data, self.public, seed=self.recipe.seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """Give the shape of a mask."""
        return sets.shape(self.recipe.data)

    def made(self, read: Any, place: tuple[str, ...], *, bare: bool = False) -> Any:
        """Build a codec; `bare` leaves the shrinking to the one around it."""
        try:
            return self._made(read, place, bare)
        except RecipeError as error:
            raise RecipeError(str(error) if str(error).startswith("`codec.") else placed(str(error), place)) from None

    def _made(self, read: Any, place: tuple[str, ...], bare: bool) -> Any:
        if read.kind == "region-votes":
            return RegionVotes(self.shape, read.regions, read.method, read.share)
        if read.kind == "pixels" and read.bound == "binary":
            return Pixels(self.shape)
        if read.kind == "autoencoder":
            return self._network(read)
        if read.kind == "guided":
            return self._guided(read, place)
        if read.kind == "rescaled":
            return self._rescaled(read, place)
        if read.kind == "flips":
            return self._flips(read, place, bare)
        return self._fitted(read, bare)

    def _fitted(self, read: Any, bare: bool) -> Any:
        shape, quantile = self.shape, read.quantile or QUANTILE
        if read.kind == "pixels":
            return Pixels.fit(self.masks, quantile=quantile) if read.norm is None else Pixels(shape, read.norm, "orthant")
        if read.kind == "dct":
            free = read.norm is None
            return DCT.fit(self.masks, kept=read.kept, quantile=quantile) if free else DCT(shape, read.kept, read.norm)
        if read.kind == "regions":
            if read.norm is not None:
                return Regions(shape, read.regions, read.norm, read.method)
            return Regions.fit(self.masks, regions=read.regions, method=read.method, quantile=quantile)
        made = self._learned(read)
        return made if bare else self._shrunk(read, made)

    def _learned(self, read: Any, bound: Bound | None = None) -> Any:
        """Fit what has components or chosen coefficients; `bound` is that of the release where it is not the codec's own."""
        given: dict[str, Any] = {"quantile": read.quantile or QUANTILE}
        if read.kind == "wavelet" and read.chosen == "coarse":
            norm = read.norm or 1.0  # a filter is not clipped
            return Wavelet(self.shape, np.arange(read.kept), norm, read.wavelet, read.levels)
        if read.kind == "wavelet":
            return Wavelet.fit(self.masks, kept=read.kept, wavelet=read.wavelet, levels=read.levels, norm=read.norm, **given)
        given |= {"centre": read.centre, "rank": read.rank, "folds": read.folds}
        kind: Any = Blocks if read.kind == "blocks" else PCA
        given |= {"block": read.block, "clip": read.clip} if kind is Blocks else {}
        if read.components is None:
            return self._priced(kind, read, bound, given)
        return kind.fit(self.masks, components=read.components, norm=read.norm, **given)

    def _priced(self, kind: Any, read: Any, bound: Bound | None, given: dict[str, Any]) -> Any:
        """Keep the components that have more variance than the noise of this very plan."""
        if bound is None and read.norm is not None:
            bound = Ball(1, read.norm)
        if bound is None and self.recipe.aggregation.sigma is None:  # the clip, and the noise with it, hang on how many
            return PCA.priced(self.masks, noise_per_norm=noise(self.recipe, Ball(1, 1.0)), **given)  # of blocks it is given
        amount = noise(self.recipe, bound or Ball(1, 1.0))
        return replace(kind.fit(self.masks, noise=amount, norm=read.norm, **given), noise=0.0)

    def _shrunk(self, read: Any, made: Any, bound: Bound | None = None) -> Any:
        """Tell components how much noise will be on them, where they shrink by it."""
        return replace(made, noise=noise(self.recipe, bound or made.bound)) if getattr(read, "shrink", False) else made

    def _flips(self, read: Any, place: tuple[str, ...], bare: bool) -> Any:
        inner, pixels = section(read.filter, (*place, "filter"), FILTERS), int(np.prod(self.shape))
        draft = DCT(self.shape, inner.kept if inner.kind == "dct" else 1, 1.0)  # in the filter's place, until it is fitted
        if read.reference == "nothing" and read.norm is not None:  # no mask is looked at
            made = Flips(draft, np.zeros(pixels, dtype=bool), read.norm)
        else:
            given = {"reference": read.reference, "norm": read.norm, "quantile": read.quantile or QUANTILE}
            made = Flips.fit(draft, self.masks, **given)
        if inner.kind == "dct":
            return made
        fitted = self._learned(inner, made.bound)
        return replace(made, filter=fitted if bare else self._shrunk(inner, fitted, made.bound))

    def _rescaled(self, read: Any, place: tuple[str, ...]) -> Rescaled:
        inner = self.made(section(read.inner, (*place, "inner"), STRETCHED), (*place, "inner"), bare=True)
        quantile = read.quantile or QUANTILE
        return self._shrunk(read, Rescaled.fit(inner, self.masks, norm=read.norm, floor=read.floor, quantile=quantile))

    def _network(self, read: Any) -> Any:
        from tutelage.codecs.autoencoder import Autoencoder

        path = self.kept / "codec.safetensors"
        if self.begun and path.exists():
            return Autoencoder.load(path, device=self.device)
        given = {key: getattr(read, key) for key in ("dim", "activation", "norm", "steps", "batch", "rate", "widths")}
        bound = Cube(read.dim) if read.activation == "tanh" else Ball(read.dim, read.norm)
        amount = noise(self.recipe, bound)
        made = Autoencoder.fit(self.masks, **given, noise=amount, device=self.device, seed=self.recipe.seed)
        made.save(path)
        return made

    def _guided(self, read: Any, place: tuple[str, ...]) -> Any:
        from tutelage.codecs.guided import Guided

        inner = self.made(section(read.inner, (*place, "inner"), SHOWN), (*place, "inner"))
        path = self.kept / "decoder.safetensors"
        if self.begun and path.exists():
            return Guided.load(path, codec=inner, device=self.device)
        amount = noise(self.recipe, inner.bound)
        given = {**looking(read), "noise": amount, "device": self.device, "seed": self.recipe.seed}
        made = Guided.fit(inner, self.masks, **given)
        made.save(path)
        return made


def looking(read: Any) -> dict[str, Any]:
    """Read how a decoder learns to look at images: what `Guided.fit` is given by a recipe."""
    from tutelage.codecs.guided import WIDTHS
    from tutelage.codecs.guiding import GENTLE
    from tutelage.recipes.segmenters import distortion

    given = {key: getattr(read, key) for key in ("steps", "batch", "rate")}
    bent = GENTLE if read.augmentation is None else distortion(read.augmentation, (*PLACE, "augmentation"))
    return {**given, "widths": read.widths or WIDTHS, "augmentation": bent}


def noise(recipe: Recipe, bound: Bound) -> float:
    """Give the deviation of the noise on one coordinate of a released mean: known before anything is asked."""
    teachers = recipe.teachers.shards
    mechanism, _ = recipe.how().built(recipe.budget(), recipe.aggregation.queries, teachers, bound)
    assert isinstance(mechanism, NoisyMean)
    return mechanism.sigma / teachers
