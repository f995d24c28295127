"""The [codec] of a recipe: its words, and the bound of its ballots before any data is read. Never torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import sets
from tutelage.recipes.sections import Count, Positive, Section, Table, Widths, unknown, validated

if TYPE_CHECKING:
    from tutelage.recipes.recipe import Recipe

Quantile = Annotated[float, Field(gt=0, le=1)]
PLACE = ("codec",)


class _Clipped(Section):
    """A clip: given, or a quantile of the norms of public masks."""

    kind: str
    norm: Positive | None = None
    quantile: Quantile | None = None


class RegionVotesSection(Section):
    """One vote, for a region of the public image or for none."""

    kind: str
    regions: Count
    method: Literal["greys", "levels", "superpixels"] = "greys"
    share: Annotated[float, Field(gt=0, le=1)] = 0.5


class PixelsSection(_Clipped):
    """A vote or a share per pixel."""

    bound: Literal["binary", "orthant"] = "binary"


class DCTSection(_Clipped):
    """The lowest frequencies."""

    kept: Count


class PCASection(_Clipped):
    """Principal components of public masks."""

    components: Count
    centre: bool = True
    rank: Count = 512
    folds: Annotated[int, Field(ge=0)] = 0
    shrink: bool = True  # deviations, by how much of them is noise


class BlocksSection(_Clipped):
    """Principal components of blocks."""

    block: Widths
    components: Count
    centre: bool = True
    clip: Literal["volume", "block"] = "volume"
    rank: Count = 512
    shrink: bool = True


class WaveletSection(Section):
    """Wavelet coefficients, chosen on public masks."""

    kind: str
    kept: Count
    wavelet: str = "haar"
    levels: Count = 2
    quantile: Quantile | None = None


class AutoencoderSection(Section):
    """A network that packs masks, trained on public ones under the noise it will meet."""

    kind: str
    dim: Count
    activation: Literal["tanh", "clip", "ball"] = "ball"
    norm: Positive = 1.0
    steps: Count = 2000
    batch: Count = 64
    rate: Positive = 2e-3
    widths: Widths | None = None


class FlipsSection(_Clipped):
    """Pixels that differ from a public mask, cleaned by a linear codec."""

    filter: Table
    reference: Literal["majority", "nothing"] = "majority"


SECTIONS: Mapping[str, type[Section]] = MappingProxyType(
    {
        "region-votes": RegionVotesSection,
        "flips": FlipsSection,
        "dct": DCTSection,
        "pca": PCASection,
        "pixels": PixelsSection,
        "wavelet": WaveletSection,
        "blocks": BlocksSection,
        "autoencoder": AutoencoderSection,
    }
)
FILTERS = ("dct", "pca", "blocks", "wavelet")


def section(table: Table, place: tuple[str, ...] = PLACE, known: tuple[str, ...] = tuple(SECTIONS)) -> Any:
    """Check a table by its kind."""
    where = ".".join(place)
    if "kind" not in table:
        raise RecipeError(f"`{where}.kind` must be given. Got nothing instead.")
    if table["kind"] not in known:
        raise unknown(f"{where}.kind", table["kind"], known)
    read = validated(SECTIONS[table["kind"]], table, place=place)
    _check_clip(read, where)
    if read.kind == "flips":
        inner = section(read.filter, (*place, "filter"), FILTERS)
        idle = [key for key in ("norm", "quantile") if getattr(inner, key, None) is not None]
        if idle:  # a filter releases nothing, so that nothing of it is clipped
            raise RecipeError(f"`{where}.filter.{idle[0]}` must stay open: a filter is not clipped. Got a value instead.")
    return read


def _check_clip(read: Any, where: str) -> None:
    norm, quantile = getattr(read, "norm", None), getattr(read, "quantile", None)
    if norm is not None and quantile is not None:
        raise RecipeError(f"`{where}.quantile` must stay open where `norm` is given. Got both instead.")
    if read.kind == "pixels" and read.bound == "binary" and (norm is not None or quantile is not None):
        raise RecipeError(f"`{where}.norm` and `quantile` must stay open for the bound 'binary'. Got one instead.")
    if read.kind == "autoencoder" and read.activation != "clip" and read.norm != 1:
        raise RecipeError(f"`{where}.norm` must stay open where the activation is not 'clip'. Got {read.norm!r} instead.")


def bound(recipe: Recipe) -> tuple[Bound, bool]:
    """Give the bound before any data is read, and whether its norm is known: one that is to be learned counts as 1."""
    assert recipe.codec is not None
    read = section(recipe.codec)
    shape = sets.shape(recipe.data)
    pixels, norm = int(np.prod(shape)), getattr(read, "norm", None)
    if read.kind == "region-votes":
        return OneHot(read.regions + 1), True
    if read.kind == "autoencoder":
        return (Cube(read.dim) if read.activation == "tanh" else Ball(read.dim, read.norm)), True
    if read.kind == "pixels" and read.bound == "binary":
        return Binary(pixels), True
    if read.kind in ("pixels", "flips"):
        return Orthant(pixels, norm or 1.0), norm is not None
    blocks = 1
    if read.kind == "blocks":
        blocks = int(np.prod([-(-size // part) for size, part in zip(shape, read.block, strict=False)]))
    dimension = blocks * (read.components if read.kind in ("pca", "blocks") else read.kept)
    return Ball(dimension, norm or 1.0), norm is not None
