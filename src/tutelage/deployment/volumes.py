"""Volumes in, masks out: each mask is a NIfTI file with the input's own size, orientation and affine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tutelage.data import dicom
from tutelage.data.reading import Reading, resized
from tutelage.data.schema import VolumeSchema
from tutelage.data.voxels import clean_image
from tutelage.privacy.errors import DataError

if TYPE_CHECKING:
    from tutelage.deployment.serving import Predictor

Array = npt.NDArray[Any]
_ENDINGS = (".nii.gz", ".nii")


def predict(model: Predictor, schema: VolumeSchema, files: Sequence[Path], out: Path) -> tuple[Path, ...]:
    """Write a mask for every volume: a NIfTI file, or a folder with a DICOM series."""
    written = []
    for path in _listed(files):
        image = opened(path)
        target = out / f"{_stem(path)}.nii.gz"
        save(image, mask(model, schema, image), target)
        written.append(target)
    return tuple(written)


def _listed(files: Sequence[Path]) -> list[Path]:
    """List volumes: files, folders of NIfTI, and folders of one DICOM series each."""
    found: list[Path] = []
    for file in files:
        inside = sorted(path for path in file.iterdir() if path.name.endswith(_ENDINGS)) if file.is_dir() else []
        found += inside or [file]
    return found


def _stem(path: Path) -> str:
    return next((path.name.removesuffix(ending) for ending in _ENDINGS if path.name.endswith(ending)), path.name)


def opened(path: Path) -> Any:
    """Open a volume as it lies on disk."""
    import nibabel

    if path.is_dir():
        return nibabel.Nifti1Image(*dicom.read(path))
    if not path.is_file():
        raise DataError(f"`files` must be volumes that exist. Got {path.name!r}, which does not, instead.")
    try:
        image = nibabel.load(path)
        image.shape, image.affine  # noqa: B018  (read now)
        return image
    except Exception as error:  # nibabel, gzip and the file system each raise their own
        raise DataError(f"`files` must be readable NIfTI. Got {type(error).__name__} for {path.name!r} instead.") from None


def mask(model: Predictor, schema: VolumeSchema, image: Any) -> Array:
    """Give the object in the image's own voxels: what the model saw is put back where it was."""
    import nibabel

    turned = nibabel.as_closest_canonical(image)
    voxels = np.asarray(turned.dataobj, dtype=np.float32)
    channels = [voxels] if voxels.ndim == 3 else [voxels[..., number] for number in range(voxels.shape[3])]
    if len(channels) != schema.channels:
        raise DataError(f"`files` must have {schema.channels} channels. Got {len(channels)} instead.")
    affine, shape = np.asarray(turned.affine), turned.shape[:3]
    reading = Reading(spacing=schema.spacing)
    near = np.stack([reading.resampled(clean_image(one)[0], affine, order=1) for one in channels])
    full = resized((model.draw(near) > model.threshold).astype(np.uint8), shape, order=0)
    back = nibabel.orientations.ornt_transform(nibabel.io_orientation(turned.affine), nibabel.io_orientation(image.affine))
    return np.ascontiguousarray(nibabel.orientations.apply_orientation(full, back)).astype(np.uint8)


def save(image: Any, found: Array, path: Path) -> None:
    """Write a mask with the place of its image."""
    import nibabel

    header = nibabel.Nifti1Header()
    made = nibabel.Nifti1Image(found, image.affine, header)
    codes = [int(image.header[name]) if name in image.header else 0 for name in ("qform_code", "sform_code")]
    made.set_qform(image.affine, codes[0] or 1)
    made.set_sform(image.affine, codes[1] or 1)
    nibabel.save(made, path)
