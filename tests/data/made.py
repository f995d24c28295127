"""Small files in exact public formats: pictures with masks, NIfTI, and DICOM series, made of blobs whose place is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def blob(shape: tuple[int, ...], seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Draw an ellipse near the middle, brighter than its noisy surroundings; give image and mask."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(-1, 1, side) for side in shape), indexing="ij")
    shift, reach = rng.uniform(-0.15, 0.15, len(shape)), rng.uniform(0.35, 0.6, len(shape))
    mask = sum(((axis - move) / wide) ** 2 for axis, move, wide in zip(axes, shift, reach, strict=True)) < 1
    image = 60 + 80 * mask + rng.normal(0, 12, shape)
    return image.clip(1, 250).astype(np.float32), mask.astype(np.uint8)


def pair(folder: Path, name: str, seed: int, *, shape: tuple[int, int] = (24, 24), level: int = 255) -> None:
    """Write images/NAME.png and masks/NAME.png."""
    from PIL import Image

    image, mask = blob(shape, seed)
    for part, array in (("images", image), ("masks", mask * level)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array.astype(np.uint8)).save(folder / part / f"{name}.png")


def affine(spacing: tuple[float, float, float], *, turned: bool = False) -> Array:
    """Place voxels of this spacing; turned ones run to the left and from top to bottom."""
    found = np.diag([*spacing, 1.0])
    if turned:
        found[0, 0] *= -1
        found[2, 2] *= -1
    found[:3, 3] = (-7.0, 11.0, 3.0)
    return found


def nifti(path: Path, voxels: npt.NDArray[np.generic], place: Array) -> None:
    """Write a NIfTI file."""
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels, place), path)


def series(folder: Path, voxels: npt.NDArray[np.float32], place: Array, *, patient: str = "", shuffle: int = 0) -> None:
    """Write a DICOM series of CT slices, whose file names do not tell their order; voxels are indexed as in NIfTI."""
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

    folder.mkdir(parents=True, exist_ok=True)
    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ place
    right, down, along = lps[:3, 0], lps[:3, 1], lps[:3, 2]
    names = np.random.default_rng(shuffle).permutation(voxels.shape[2])
    for number in range(voxels.shape[2]):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = CTImageStorage, ExplicitVRLittleEndian
        meta.MediaStorageSOPInstanceUID = f"1.2.3.{shuffle + 1}.{number + 1}"
        one = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
        one.SOPClassUID, one.SOPInstanceUID, one.Modality = CTImageStorage, meta.MediaStorageSOPInstanceUID, "CT"
        one.SeriesInstanceUID, one.PatientID = f"1.2.3.{shuffle + 1}", patient
        one.ImagePositionPatient = [float(value) for value in lps[:3, 3] + number * along]
        one.ImageOrientationPatient = [float(v) for v in (*right / np.linalg.norm(right), *down / np.linalg.norm(down))]
        one.PixelSpacing = [float(np.linalg.norm(down)), float(np.linalg.norm(right))]
        one.RescaleSlope, one.RescaleIntercept = 1, -1024
        pixels = (voxels[:, :, number].T + 1024).astype(np.uint16)
        one.Rows, one.Columns = pixels.shape
        one.SamplesPerPixel, one.PhotometricInterpretation, one.PixelRepresentation = 1, "MONOCHROME2", 0
        one.BitsAllocated, one.BitsStored, one.HighBit = 16, 16, 15
        one.PixelData = pixels.tobytes()
        pydicom.dcmwrite(folder / f"slice-{names[number]:03d}.dcm", one, enforce_file_format=True)
