"""DICOM series: a folder of files is one scan, its slices in the order of their places. Spacing and orientation are kept.

    clinic/images/CASE/*.dcm      clinic/labels/CASE.nii.gz      clinic/patients.csv (name,patient)

Without patients.csv a scan belongs to the PatientID of its own header, or to its folder's name where there is none. Masks are
NIfTI in the scanner's coordinates, as segmentation tools write them. Needs pydicom and nibabel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage.data import owners, tree
from tutelage.data.reading import Reading
from tutelage.data.volumes import Scan, Volumes, nifti_named, sized, unpaired
from tutelage.privacy.errors import DataError

Array = npt.NDArray[Any]
PARTS = ("images", "labels")
_EVEN = 0.05  # of the distance between slices, by which one may differ from another


def find(
    directory: Path | str,
    *,
    size: Sequence[int],
    labels: Sequence[int] = (),
    unlabelled: bool = False,
    reading: Reading | None = None,
    guess: bool = False,
) -> Volumes:
    """Find the series of a folder and their masks. With `unlabelled` labels/ may be missing as a whole."""
    root = Path(directory)
    home = root / "images" if (root / "images").is_dir() else root
    series = {
        path.name: path for path in sorted(home.iterdir()) if path.is_dir() and path.name[0] != "." and path.name != "labels"
    }
    masks = nifti_named(root / "labels")
    bare = unlabelled and bool(series) and not (root / "labels").exists()
    names = sorted(series if bare else set(series) & set(masks))
    faults = owners.faults(root, names)
    if not bare and (set(series) ^ set(masks) or not names):
        faults = (unpaired(series, masks, PARTS), *faults)
    listed = owners.given(root)
    whose = {name: (_patient(series[name]) or name,) for name in names} if listed is None else listed
    scans = tuple(
        Scan((series[name],), None if bare else masks[name], patient, number)
        for number, name in enumerate(names, start=1)
        for patient in whose.get(name, ())
    )
    return Volumes(scans, sized(size, 3), tuple(labels), root.resolve().name, faults, reading=reading or Reading("dicom"))


def _pydicom() -> Any:
    try:
        import pydicom
    except ImportError:
        raise DataError("`pydicom` must be installed to read DICOM (pip install 'tutelage[dicom]'). Got none instead.") from None
    return pydicom


def _patient(folder: Path) -> str:
    """Read whose scan it is off its first header; nothing where that cannot be read."""
    pydicom = _pydicom()
    for path in tree.files(folder):
        try:
            return str(pydicom.dcmread(path, stop_before_pixels=True, specific_tags=["PatientID"]).get("PatientID", "")).strip()
        except Exception:  # pydicom raises its own kinds, and quotes what it reads
            continue
    return ""


def read(folder: Path) -> tuple[Array, Array]:
    """Read a series: (columns, rows, slices) float32, rescaled as its header says, and its map (4, 4) to right, front, up."""
    pydicom, slices = _pydicom(), []
    for path in tree.files(folder):
        try:
            found = pydicom.dcmread(path)
            if "PixelData" in found and "ImagePositionPatient" in found:
                slices.append(found)
        except Exception:  # a DICOMDIR or a note beside the series
            continue
    if not slices or len({str(one.SeriesInstanceUID) for one in slices}) > 1:
        raise DataError("Every folder must hold one DICOM series with places of its slices. Got none or several instead.")
    try:
        return _stacked(slices)
    except DataError:
        raise
    except Exception as error:  # compressed pixels without a decoder, headers of nonsense
        raise DataError(f"Every DICOM series must be readable. Got {type(error).__name__} instead.") from None


def _stacked(slices: list[Any]) -> tuple[Array, Array]:
    turned = np.array([float(value) for value in slices[0].ImageOrientationPatient])
    row, column = turned[:3], turned[3:]  # along a row of the picture, and down a column
    normal = np.cross(row, column)
    if any(not np.allclose([float(v) for v in one.ImageOrientationPatient], turned, atol=1e-4) for one in slices):
        raise DataError("Every slice of a series must have one orientation. Got several instead.")
    places = np.array([[float(value) for value in one.ImagePositionPatient] for one in slices])
    order = np.argsort(places @ normal, kind="stable")
    along = (places @ normal)[order]
    steps = np.diff(along)
    step = float(np.median(steps)) if len(steps) else float(slices[0].get("SliceThickness", 1) or 1)
    if not step > 0 or (len(steps) and np.abs(steps - step).max() > _EVEN * step):
        raise DataError("Every series must have slices at even distances, each once. Got others instead.")
    volume = np.stack([_values(slices[place]) for place in order], axis=-1)  # (rows, columns, slices)
    down, right = (float(value) for value in slices[0].PixelSpacing)  # between rows, and between columns
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1], affine[:3, 2] = row * right, column * down, normal * step
    affine[:3, 3] = places[order[0]]
    affine[:2] *= -1  # DICOM counts to the left and to the back
    return np.ascontiguousarray(volume.transpose(1, 0, 2)), affine


def _values(one: Any) -> Array:
    slope, start = float(one.get("RescaleSlope", 1) or 1), float(one.get("RescaleIntercept", 0) or 0)
    pixels = np.asarray(one.pixel_array, dtype=np.float32)
    if pixels.ndim != 2:
        raise DataError("Every slice must be one grey picture. Got another form instead.")
    return pixels * np.float32(slope) + np.float32(start)
