"""Volumes as private and public data in one call: NIfTI folders and DICOM series, at a declared size, spacing and window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tutelage.data import dicom
from tutelage.data.dataset import Private, Public
from tutelage.data.reading import Format, Reading
from tutelage.data.volumes import Volumes
from tutelage.privacy.units import Roster


def private_from_nifti(directory: Path | str, *, size: tuple[int, int, int], roster: Roster | None = None, **how: Any) -> Private:
    """Read imagesTr/ and labelsTr/; a patient is a unit. `how`: labels, spacing, intensity, channels."""
    return _private("nifti", directory, size, roster, **how)


def private_from_dicom(directory: Path | str, *, size: tuple[int, int, int], roster: Roster | None = None, **how: Any) -> Private:
    """Read images/CASE/*.dcm and labels/CASE.nii.gz; a patient is a unit. `how`: labels, spacing, intensity."""
    return _private("dicom", directory, size, roster, **how)


def public_from_nifti(directory: Path | str, *, size: tuple[int, int, int], **how: Any) -> Public:
    """Read public volumes, with masks or without. Anything odd is refused."""
    return _found("nifti", directory, size, unlabelled=True, **how).public()


def public_from_dicom(directory: Path | str, *, size: tuple[int, int, int], **how: Any) -> Public:
    """Read public series, with masks or without. Anything odd is refused."""
    return _found("dicom", directory, size, unlabelled=True, **how).public()


def _private(kind: Format, directory: Path | str, size: Any, roster: Roster | None, *, channels: int = 1, **how: Any) -> Private:
    return _found(kind, directory, size, **how).private(channels=channels, roster=roster)


def _found(
    kind: Format,
    directory: Path | str,
    size: Any,
    *,
    labels: Sequence[int] = (),
    spacing: Sequence[float] | None = None,
    intensity: Sequence[float] | None = None,
    unlabelled: bool = False,
) -> Volumes:
    window = None if intensity is None else (intensity[0], intensity[1])
    reading = Reading(kind, 1, None if spacing is None else tuple(spacing), window)
    find: Callable[..., Volumes] = {"nifti": Volumes.decathlon, "dicom": dicom.find}[kind]
    return find(directory, size=size, labels=labels, unlabelled=unlabelled, guess=False, reading=reading)
