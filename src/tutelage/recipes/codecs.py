"""The [codec] of a recipe: its words, and the bound of its ballots before any data is read. Never torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from tutelage.privacy.bounds import Ball, Binary, Bound, Cube, OneHot, Orthant
from tutelage.privacy.errors import RecipeError
from tutelage.recipes import sets
from tutelage.recipes.sections import Count, Positive, Section, Table, Widths, check_widths, unknown, validated

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
    regions: Annotated[int, Field(ge=2)]  # one is the whole image: a vote for it says next to nothing
    method: Literal["greys", "levels", "superpixels"] = "greys"
    share: Annotated[float, Field(gt=0, le=1)] = 0.5


class PixelsSection(_Clipped):
    """A vote or a share per pixel."""

    bound: Literal["binary", "orthant"] = "binary"


class DCTSection(_Clipped):
    """The lowest frequencies."""

    kept: Count


class PCASection(_Clipped):
    """Principal components of public masks; without a number, those with more variance than the noise they will meet."""

    components: Count | None = None
    centre: bool = True
    rank: Count = 512
    folds: Annotated[int, Field(ge=0)] = 0
    shrink: bool = True  # deviations, by how much of them is noise


class BlocksSection(_Clipped):
    """Principal components of blocks; without a number, those with more variance than the noise they will meet."""

    block: Widths
    components: Count | None = None
    centre: bool = True
    clip: Literal["volume", "block"] = "volume"
    rank: Count = 512
    folds: Annotated[int, Field(ge=0)] = 0
    shrink: bool = True


class WaveletSection(_Clipped):
    """Wavelet coefficients: chosen on public masks, or the coarsest, for which no mask is looked at."""

    kept: Count
    wavelet: str = "haar"
    levels: Count = 2
    chosen: Literal["public", "coarse"] = "public"


class RegionsSection(_Clipped):
    """Released pixels, averaged over regions of the public image."""

    regions: Count
    method: Literal["superpixels", "levels"] = "superpixels"


class RescaledSection(_Clipped):
    """Another codec's codes, stretched before the clip where they vary little."""

    inner: Table
    floor: Positive = 1e-3
    shrink: bool = True


class GuidedSection(Section):
    """Another codec's release, decoded by a network that sees the public image."""

    kind: str
    inner: Table
    steps: Count = 2000
    batch: Count = 16
    rate: Positive = 2e-3
    widths: Widths | None = None
    augmentation: str | Table | None = None


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
        "regions": RegionsSection,
        "rescaled": RescaledSection,
        "guided": GuidedSection,
    }
)
FILTERS = ("dct", "pca", "blocks", "wavelet")
STRETCHED = (*FILTERS, "flips", "pixels")  # what may be inside of "rescaled"
SHOWN = (*STRETCHED, "regions", "rescaled", "autoencoder")  # and inside of "guided"


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
    if read.kind == "rescaled":
        _check_stretched(section(read.inner, (*place, "inner"), STRETCHED), f"{where}.inner")
    if read.kind == "guided":
        section(read.inner, (*place, "inner"), SHOWN)
        check_widths(f"{where}.widths", read.widths)
    return read


def _check_stretched(inner: Any, where: str) -> None:
    """Hold what is inside of "rescaled" to codes of a known number, with both ends open, that nobody else shrinks."""
    parts = [(inner, where)]
    if inner.kind == "flips":
        parts.append((section(inner.filter, (*where.split("."), "filter"), FILTERS), f"{where}.filter"))
    for part, place in parts:
        if "shrink" in part.model_fields_set:
            raise RecipeError(f"`{place}.shrink` must stay open inside of 'rescaled', which shrinks itself. Got a value instead.")
        if part.kind in ("pca", "blocks") and part.components is None:
            raise RecipeError(f"`{place}.components` must be given inside of 'rescaled'. Got nothing instead.")
    if inner.kind == "pixels" and inner.bound == "binary":
        raise RecipeError(f"`{where}.bound` must be 'orthant' inside of 'rescaled'. Got 'binary' instead.")


def _check_clip(read: Any, where: str) -> None:
    norm, quantile = getattr(read, "norm", None), getattr(read, "quantile", None)
    if norm is not None and quantile is not None:
        raise RecipeError(f"`{where}.quantile` must stay open where `norm` is given. Got both instead.")
    if read.kind == "pixels" and read.bound == "binary" and (norm is not None or quantile is not None):
        raise RecipeError(f"`{where}.norm` and `quantile` must stay open for the bound 'binary'. Got one instead.")
    if read.kind == "wavelet" and read.chosen == "coarse" and norm is None and not where.endswith("filter"):
        raise RecipeError(f"`{where}.norm` must be given for the coarsest coefficients: no mask is looked at. Got none instead.")
    if read.kind == "autoencoder" and read.activation != "clip" and read.norm != 1:
        raise RecipeError(f"`{where}.norm` must stay open where the activation is not 'clip'. Got {read.norm!r} instead.")


def is_linear(table: Table) -> bool:
    """Tell whether codes are linear measurements of a mask with white noise: what a latent student learns from."""
    kind = table.get("kind")
    if kind == "rescaled":  # stretched flips are not white behind their filter
        inner = table.get("inner")
        return isinstance(inner, dict) and inner.get("kind") in FILTERS
    return kind in (*FILTERS, "flips")


def check(recipe: Recipe) -> None:
    """Check the words of a codec, and its sizes against the mask's."""
    assert recipe.codec is not None
    read = section(recipe.codec)
    _check_sizes(read, sets.shape(recipe.data), PLACE)
    if read.kind == "guided":
        read = section(read.inner, (*PLACE, "inner"), SHOWN)
    if read.kind == "blocks" and read.components is None and read.norm is None and recipe.aggregation.sigma is None:
        raise RecipeError(
            "`components` of blocks must be given where neither their `norm` nor `aggregation.sigma` says how much noise there "
            "will be. Got nothing instead."
        )


def _check_sizes(read: Any, shape: tuple[int, ...], place: tuple[str, ...]) -> None:
    where, pixels = ".".join(place), int(np.prod(shape))
    if read.kind == "blocks" and len(read.block) != len(shape):
        raise RecipeError(f"`{where}.block` must have {len(shape)} sizes, one per side of a mask. Got {read.block!r} instead.")
    if read.kind == "dct" and read.kept > pixels:
        raise RecipeError(f"`{where}.kept` must be at most the {pixels} pixels. Got {read.kept!r} instead.")
    if read.kind == "wavelet":
        unit = 1 << min(read.levels, 62)
        most = math.prod(-(-size // unit) * unit for size in shape)  # sides are filled up to whole units
        if read.kept > most:
            raise RecipeError(f"`{where}.kept` must be at most the {most} coefficients. Got {read.kept!r} instead.")
    for part, known in (("filter", FILTERS), ("inner", tuple(SECTIONS))):
        if hasattr(read, part):
            _check_sizes(section(getattr(read, part), (*place, part), known), shape, (*place, part))


def bound(recipe: Recipe) -> tuple[Bound, bool]:
    """Give the bound before any data is read, and whether its norm is known: one that is to be learned counts as 1."""
    assert recipe.codec is not None
    check(recipe)
    return _bound(section(recipe.codec), sets.shape(recipe.data))


def _bound(read: Any, shape: tuple[int, ...]) -> tuple[Bound, bool]:
    pixels, norm = int(np.prod(shape)), getattr(read, "norm", None)
    if read.kind == "region-votes":
        return OneHot(read.regions + 1), True
    if read.kind == "guided":  # a decoder changes nothing about what is let out
        return _bound(section(read.inner, (*PLACE, "inner"), SHOWN), shape)
    if read.kind == "rescaled":
        inner, _ = _bound(section(read.inner, (*PLACE, "inner"), STRETCHED), shape)
        assert isinstance(inner, (Ball, Orthant))
        return type(inner)(inner.dimension, norm or 1.0), norm is not None
    if read.kind == "autoencoder":
        return (Cube(read.dim) if read.activation == "tanh" else Ball(read.dim, read.norm)), True
    if read.kind == "pixels" and read.bound == "binary":
        return Binary(pixels), True
    if read.kind in ("pixels", "flips", "regions"):
        return Orthant(pixels, norm or 1.0), norm is not None
    return Ball(_dimension(read, shape), norm or 1.0), norm is not None


def _dimension(read: Any, shape: tuple[int, ...]) -> int:
    """Count coordinates; of components that are still to be chosen, as many as there may be, which costs no more."""
    if read.kind in ("dct", "wavelet"):
        return int(read.kept)
    if read.kind == "pca":
        return int(read.components or min(read.rank, math.prod(shape)))
    places = math.prod(-(-size // part) for size, part in zip(shape, read.block, strict=True))
    return int(read.components or min(read.rank, math.prod(read.block))) * places
