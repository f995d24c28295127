"""From the [codec] of a recipe to the codec. What is fitted sees public masks alone; torch only for a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tutelage.codecs.blocks import Blocks
from tutelage.codecs.dct import DCT
from tutelage.codecs.fitting import QUANTILE
from tutelage.codecs.flips import Flips
from tutelage.codecs.pca import PCA
from tutelage.codecs.pixels import Pixels
from tutelage.codecs.regionvotes import RegionVotes
from tutelage.codecs.wavelet import Wavelet
from tutelage.data.dataset import Public
from tutelage.privacy.bounds import Bound
from tutelage.privacy.errors import RecipeError
from tutelage.privacy.mechanisms import NoisyMean
from tutelage.recipes import sets
from tutelage.recipes.codecs import FILTERS, PLACE, section
from tutelage.recipes.codecs import bound as bound_of
from tutelage.recipes.sections import placed
from tutelage.runs import RunFolder

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe


def codec(recipe: Recipe, public: Public, *, device: str, kept: Path) -> Any:
    """Build the codec. What is fitted sees public masks alone; a network is kept in the release, for a run that is resumed."""
    assert recipe.codec is not None
    read, shape = section(recipe.codec), sets.shape(recipe.data)
    try:
        if read.kind == "region-votes":
            return RegionVotes(shape, read.regions, read.method, read.share)
        if read.kind == "pixels" and read.bound == "binary":
            return Pixels(shape)
        if read.kind == "autoencoder":
            return _network(recipe, read, public, device=device, kept=kept)
        return _fitted(recipe, read, sets.shapes(recipe.data, public, seed=recipe.seed))
    except RecipeError as error:
        raise RecipeError(placed(str(error), PLACE)) from None


def _fitted(recipe: Recipe, read: Any, masks: Public) -> Any:
    shape, quantile = sets.shape(recipe.data), read.quantile or QUANTILE
    if read.kind == "flips":
        return _flips(recipe, read, masks)
    if read.kind == "pixels":
        return Pixels.fit(masks, quantile=quantile) if read.norm is None else Pixels(shape, read.norm, "orthant")
    if read.kind == "dct":
        return DCT.fit(masks, kept=read.kept, quantile=quantile) if read.norm is None else DCT(shape, read.kept, read.norm)
    return _shrunk(recipe, read, _learned(read, masks))


def _learned(read: Any, masks: Public) -> Any:
    """Fit what has components or chosen coefficients."""
    given: dict[str, Any] = {"quantile": read.quantile or QUANTILE}
    if read.kind == "wavelet":
        return Wavelet.fit(masks, kept=read.kept, wavelet=read.wavelet, levels=read.levels, **given)
    given |= {"components": read.components, "norm": read.norm, "centre": read.centre, "rank": read.rank}
    if read.kind == "pca":
        return PCA.fit(masks, folds=read.folds, **given)
    return Blocks.fit(masks, block=read.block, clip=read.clip, **given)


def _shrunk(recipe: Recipe, read: Any, made: Any, bound: Bound | None = None) -> Any:
    """Tell components how much noise will be on them, where they shrink by it."""
    return replace(made, noise=noise(recipe, bound or made.bound)) if getattr(read, "shrink", False) else made


def _flips(recipe: Recipe, read: Any, masks: Public) -> Any:
    shape = sets.shape(recipe.data)
    inner = section(read.filter, (*PLACE, "filter"), FILTERS)
    filter_ = DCT(shape, inner.kept, 1.0) if inner.kind == "dct" else _learned(inner, masks)
    if read.reference == "nothing" and read.norm is not None:  # no mask is looked at
        made = Flips(filter_, np.zeros(int(np.prod(shape)), dtype=bool), read.norm)
    else:
        given = {"reference": read.reference, "norm": read.norm, "quantile": read.quantile or QUANTILE}
        made = Flips.fit(filter_, masks, **given)
    return replace(made, filter=_shrunk(recipe, inner, filter_, made.bound))


def _network(recipe: Recipe, read: Any, public: Public, *, device: str, kept: Path) -> Any:
    from tutelage.codecs.autoencoder import Autoencoder

    path = kept / "codec.safetensors"
    book = RunFolder(kept.parent).book
    if path.exists() and book.exists() and book.stat().st_size:  # a book is of one recipe, and refuses another's run
        return Autoencoder.load(path, device=device)
    # Without a book nothing was asked yet: a file that lies here may be of other settings, and is made anew.
    given = {key: getattr(read, key) for key in ("dim", "activation", "norm", "steps", "batch", "rate", "widths")}
    masks = sets.shapes(recipe.data, public, seed=recipe.seed)
    amount = noise(recipe, bound_of(recipe)[0])
    made = Autoencoder.fit(masks, **given, noise=amount, device=device, seed=recipe.seed)
    made.save(path)
    return made


def noise(recipe: Recipe, bound: Bound) -> float:
    """Give the deviation of the noise on one coordinate of a released mean: known before anything is asked."""
    teachers = recipe.teachers.shards
    mechanism, _ = recipe.how().built(recipe.budget(), recipe.aggregation.queries, teachers, bound)
    assert isinstance(mechanism, NoisyMean)
    return mechanism.sigma / teachers
