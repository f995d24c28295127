"""Medical volumes with masks, in the two public layouts: NIfTI folders of the Decathlon, and BraTS 2017 to 2021.

    task/imagesTr/hippocampus_001.nii.gz     task/labelsTr/hippocampus_001.nii.gz
    brats/.../BraTS19_CBICA_AAB_1/BraTS19_CBICA_AAB_1_flair.nii.gz (and _t1, _t1ce, _t2, _seg)
    brats/.../BraTS2021_00000/BraTS2021_00000_flair.nii.gz (and _t1, _t1ce, _t2, _seg)

Patients are the units: two scans of one patient are one unit. Who is who is read from task/patients.csv where it is (a line
per scan: name,patient), else from the names: the last number of a BraTS 2017 to 2019 name is a visit, and hippocampus_001 and
_002, _003 and _004 ... are the two sides of one head (benchmarks/pairs.py); with `guess=False` no name is read so. Other names
count as a patient each: whether they are, only the owner of the data knows. Read one year of BraTS at a time: patients come
back in later years under other names.

Volumes are turned to one orientation (RAS); their spacing is not looked at. Every volume is normalised by itself, so nothing
about other patients goes into it. Needs nibabel.

Messages number scans instead of naming them: a file's name may be a patient's. Scan 3 is that of the third mask of the whole
folder (of the third image, where there are no masks), in the order of `LC_ALL=C sort`, also after scans were drawn from it:

    python -c "from tutelage.data.volumes import Volumes as V; print(V.decathlon('task', size=(8, 8, 8)).scans[2].files)"
"""

from __future__ import annotations

import gzip
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage.data import owners, tree
from tutelage.data.dataset import Private, Public
from tutelage.data.reading import NIFTI, Reading
from tutelage.data.schema import ImageSchema, Schema, VolumeSchema
from tutelage.data.voxels import IMAGE, MASK, clean_image, clean_mask
from tutelage.privacy.errors import DataError, RecipeError, Unsealed
from tutelage.privacy.units import Roster, spelled

Array = npt.NDArray[Any]
MODALITIES = ("flair", "t1", "t1ce", "t2")
_NIFTI = (".nii.gz", ".nii")


@final
@dataclass(frozen=True)
class Scan:
    """Name the files of one volume, and whose it is."""

    images: tuple[Path, ...] = field(repr=False)  # one per channel, or one file with all
    mask: Path | None = field(repr=False)
    patient: str = field(repr=False)
    number: int = 0  # in the sorted folder, from 1: what messages say in place of a name; 0 without a folder

    @property
    def files(self) -> tuple[Path, ...]:
        """Name all files."""
        return self.images if self.mask is None else (*self.images, self.mask)


@final
@dataclass(frozen=True, repr=False)
class Volumes:
    """Read scans one at a time, normalised, and cut or padded about their middle to one size.

    `labels` are the numbers that count as the object; without any, everything but 0 does (BraTS: the whole tumour).
    """

    scans: tuple[Scan, ...]
    size: tuple[int, ...]
    labels: tuple[int, ...] = ()
    source: str = "memory"  # a folder's own name: a codec tells it in a release, where the way to it has no place
    faults: tuple[str, ...] = ()  # of the folder as a whole, as messages: what is missing there
    notes: tuple[str, ...] = ()  # the same, of the folder that these were drawn from
    reading: Reading = NIFTI  # how the files of a scan become arrays

    @classmethod
    def decathlon(
        cls,
        directory: Path | str,
        *,
        size: tuple[int, int, int],
        labels: Sequence[int] = (),
        unlabelled: bool = False,
        guess: bool = True,
        reading: Reading = NIFTI,
    ) -> Volumes:
        """Find the scans of a Decathlon task: imagesTr and labelsTr with the same names. A private one may have none.

        With `unlabelled` labelsTr may be missing as a whole: a public pool needs no masks.
        """
        root = _folder(directory)
        images, masks = (nifti_named(root / part) for part in ("imagesTr", "labelsTr"))
        if unlabelled and images and not (root / "labelsTr").exists():
            patients = owners.patients(root, images, guess=guess)
            bare = tuple(
                Scan((images[name],), None, patient, number)
                for number, name in enumerate(sorted(images), start=1)
                for patient in patients.get(name, ())
            )
            faults = owners.faults(root, list(images))
            return cls(bare, sized(size, 3), tuple(labels), root.resolve().name, faults, reading=reading)
        paired = [name for name in masks if name in images]
        if not all((root / part).is_dir() for part in ("imagesTr", "labelsTr")):
            raise DataError(_unpaired(images, masks) + _elsewhere(root))
        patients = owners.patients(root, paired, guess=guess)
        numbers = {name: number for number, name in enumerate(masks, start=1)}
        scans = tuple(
            Scan((images[name],), masks[name], patient, numbers[name]) for name in sorted(patients) for patient in patients[name]
        )
        faults = _alone(images, masks) + owners.faults(root, list(masks))
        return cls(scans, sized(size, 3), tuple(labels), root.resolve().name, faults, reading=reading)

    @classmethod
    def brats(
        cls,
        directory: Path | str,
        *,
        size: tuple[int, int, int] = (240, 240, 155),
        labels: Sequence[int] = (),
        modalities: Sequence[str] = MODALITIES,
        unlabelled: bool = False,
    ) -> Volumes:
        """Find the scans of a BraTS training folder, at any depth (HGG/ and LGG/ in 2018 and 2019), also behind links.

        A private folder may have none. With `unlabelled` masks may be missing altogether, as BraTS' own validation scans come
        without.
        """
        root = _folder(directory)
        if not modalities or not set(modalities) <= set(MODALITIES):
            raise RecipeError(f"`modalities` must be some of {', '.join(MODALITIES)}. Got {tuple(modalities)!r} instead.")
        source, masks = root.resolve().name, _ending(root, "seg")
        found = _ending(root, modalities[0]) if unlabelled and not masks else masks
        numbers = {path: number for number, path in enumerate(sorted(found, key=str), start=1)}
        names = [found[path] for path in numbers]
        patients, scans, faults = owners.patients(root, names), [], list(owners.faults(root, names))
        for path, name in found.items():
            if name not in patients:
                continue
            which = numbered(numbers[path], source)
            try:
                files = [_present(path.parent, name, modality, which) for modality in modalities]
            except DataError as error:
                faults.append(str(error))
                continue
            mask = path if path in masks else None
            scans += [Scan(tuple(files), mask, patient, numbers[path]) for patient in patients[name]]
        if not found:
            faults.insert(0, f"`directory` must hold BraTS folders with *_seg.nii.gz. Got {source!r} without any instead.")
        return cls(tuple(scans), sized(size, 3), tuple(labels), source, tuple(faults))

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: Any) -> Volumes:
        """Choose scans by a slice or by numbers; nothing is read."""
        chosen = np.arange(len(self))[index]
        scans = tuple(self.scans[i] for i in np.atleast_1d(chosen))
        return Volumes(scans, self.size, self.labels, self.source, (), (*self.notes, *self.faults), self.reading)

    def __repr__(self) -> str:
        patients = len({scan.patient for scan in self.scans})
        return f"Volumes({len(self)} scans of {patients} patients, size={self.size})"

    @property
    def patients(self) -> Array:
        """Give each scan's patient (scans,)."""
        return spelled([scan.patient for scan in self.scans])  # an array is as wide as its longest id

    @property
    def labelled(self) -> bool:
        """Tell whether every scan has a mask."""
        return all(scan.mask is not None for scan in self.scans)

    def intact(self) -> Volumes:
        """Refuse a folder in which something is missing: what a public folder must not be."""
        if self.faults:
            raise DataError(self.faults[0])
        return self

    def read(self) -> Iterator[tuple[Array, Array | None]]:
        """Read scans one by one: (channels, *size) float32 and (*size) uint8. What `size` cuts off a mask is gone from it.

        What is damaged is refused here, and so are numbers that an image or a mask must not hold.
        """
        for scan in self.scans:
            image, mask, odd = self._scan(scan)
            if odd:
                what, which = odd[0].partition(" (")[0], numbered(scan.number, self.source)
                raise DataError(f"Every public scan must be clean. Got {what} in {which} instead.")
            yield image, mask

    def _scan(self, scan: Scan) -> tuple[Array, Array | None, list[str]]:
        """Read one scan, cleaned by the rules of `voxels`, and say which of them were needed."""
        if self.reading.format == "images":
            return importlib.import_module("tutelage.data.pairs").load(scan, self)  # type: ignore[no-any-return]
        which, channels, loaded = numbered(scan.number, self.source), [], []
        for path in scan.images:
            loaded.append(_series(path) if self.reading.format == "dicom" else load_nifti(path, f"an image of {which}"))
            channels += _channels(loaded[-1][0], which)
        mask, place = (channels[0], loaded[0][1]) if scan.mask is None else load_nifti(scan.mask, f"the mask of {which}")
        if not all(np.allclose(where, place, atol=1e-3) for _, where in loaded):  # headers keep single precision
            raise DataError(f"Every image must lie where its mask does. Got another place for {which} instead.")
        if any(channel.shape != mask.shape for channel in channels):
            raise DataError(f"Every image must have its mask's shape. Got another for {which} instead.")
        cleaned = [clean_image(channel) for channel in channels]
        image = np.stack([fitted(prepared(channel, place, self.reading), self.size) for channel, _ in cleaned])
        odd = [IMAGE] if any(some for _, some in cleaned) else []
        if scan.mask is None:
            return image, None, odd
        held, some = clean_mask(mask, self.labels)
        return image, fitted(self.reading.resampled(held, place, order=0), self.size), [*odd, *[MASK] * some]

    def private(self, *, into: Path | str | None = None, channels: int | None = None, roster: Roster | None = None) -> Private:
        """Read the scans as private data; patients are the units, and a `roster` lists those who may take part.

        Files go to a folder under `private/`, for its owner alone.

        No scan decides whether there is any data: one that cannot be read, or that has other than `channels` channels (as many as
        it has files, by default), is left out, and what it must not hold is cleaned (voxels.py). `notes` of what comes back say
        how often, by the scans' numbers; they belong under `private/`.
        """
        if into is not None and "private" not in Path(into).resolve().parts:
            raise Unsealed("`into` must lie in a folder named 'private'. Got one outside instead.")
        if not self.labelled:
            raise DataError("`scans` must have masks: teachers learn from them. Got some without instead.")
        if not (channels or self.scans):
            raise DataError("`channels` must be given where there may be no scan. Got nothing instead.")
        _nibabel()
        wide, make, room = channels or len(self.scans[0].images), _files(into, 0o600), max(1, len(self))
        inputs = make("inputs", (room, wide, *self.size), np.float32)
        targets = make("targets", (room, *self.size), np.uint8)
        kept: list[int] = []
        found: dict[str, list[int]] = {}
        for place, scan in enumerate(self.scans):
            try:
                image, mask, odd = self._scan(scan)
                if len(image) != wide:
                    raise DataError(f"Every volume must have {wide} channels. Got others instead.")
            except Exception as error:  # what others raise may quote the scan
                rule = _rule(str(error)) if isinstance(error, DataError) else "Every scan must be readable"
                found.setdefault(f"left out: {rule}", []).append(scan.number)
                continue
            for rule in odd:
                found.setdefault(rule, []).append(scan.number)
            inputs[len(kept)], targets[len(kept)] = image, mask
            kept.append(place)
        notes = {f"{rule}: scans {', '.join(map(str, numbers))}": len(numbers) for rule, numbers in found.items()}
        notes |= {f"of the folder: {fault}": 1 for fault in (*self.notes, *self.faults)}
        held = inputs[: len(kept)], targets[: len(kept)], self.patients[kept]
        return Private(*held, "patient", self.source, roster, notes=notes, schema=self.schema(wide))

    def public(self, *, into: Path | str | None = None) -> Public:
        """Read the scans as public data; without masks where there are none. Anything odd is refused."""
        inputs, targets = self.intact()._arrays(into, mode=0o666)
        return Public(inputs, targets, self.source, schema=self.schema(inputs.shape[1]))

    def schema(self, channels: int) -> Schema:
        """Say what a raw scan looks like, for a model that leaves."""
        if self.reading.format == "images":
            return ImageSchema(channels, (self.size[0], self.size[1]), (), self.labels)
        size, spacing = (self.size[0], self.size[1], self.size[2]), self.reading.spacing
        near = None if spacing is None else (spacing[0], spacing[1], spacing[2])
        return VolumeSchema(channels, size, self.labels, near, self.reading.intensity)

    def _arrays(self, into: Path | str | None, *, mode: int) -> tuple[Array, Array | None]:
        """Read everything, to memory or to two files in a folder that are then mapped; masks where every scan has one."""
        inputs = targets = None
        for number, (image, mask) in enumerate(self.read()):
            if inputs is None:
                make = _files(into, mode)
                inputs = make("inputs", (len(self), *image.shape), np.float32)
                targets = make("targets", (len(self), *image.shape[1:]), np.uint8) if self.labelled else None
            if image.shape != inputs.shape[1:]:
                which = numbered(self.scans[number].number, self.source)
                raise DataError(f"Every volume must have as many channels. Got others for {which} instead.")
            inputs[number] = image
            if targets is not None:
                targets[number] = mask
        if inputs is None:
            raise DataError("`scans` must hold at least one volume. Got none instead.")
        return inputs, targets


def normalised(volume: Array) -> Array:
    """Give a volume's voxels that are not 0 mean 0 and deviation 1, without its brightest and darkest 0.5 %; 0 stays 0."""
    values, _ = clean_image(np.asarray(volume, dtype=np.float32))
    inside = values != 0
    if not inside.any():
        return values
    low, high = np.percentile(values[inside], (0.5, 99.5))
    kept = np.clip(values[inside].astype(np.float64), low, high)
    spread = kept.std()
    result = np.zeros_like(values)
    result[inside] = (kept - kept.mean()) / (spread if spread > 0 else 1.0)
    return result


def prepared(volume: Array, affine: Array, reading: Reading) -> Array:
    """Bring a whole volume to the declared spacing and window; without a window it has its own mean and spread."""
    near = reading.resampled(volume, affine, order=1)
    windowed = reading.windowed(near)
    return normalised(near) if windowed is None else windowed


def fitted(volume: Array, size: tuple[int, ...]) -> Array:
    """Cut or pad a volume with zeros, about its middle, to a size."""
    result = np.zeros(size, dtype=volume.dtype)
    source = tuple(slice(max(0, (have - want) // 2), max(0, (have - want) // 2) + min(have, want))
                   for have, want in zip(volume.shape, size, strict=True))  # fmt: skip
    goal = tuple(slice(max(0, (want - have) // 2), max(0, (want - have) // 2) + min(have, want))
                 for have, want in zip(volume.shape, size, strict=True))  # fmt: skip
    result[goal] = volume[source]
    return result


def _channels(volume: Array, which: str) -> list[Array]:
    """Take a 4D image apart: Decathlon tasks with several channels keep them last."""
    if volume.ndim not in (3, 4):
        raise DataError(f"Every image must have 3 or 4 axes. Got {volume.ndim} for {which} instead.")
    return [volume] if volume.ndim == 3 else [volume[..., channel] for channel in range(volume.shape[3])]


def _nibabel() -> Any:
    try:
        return importlib.import_module("nibabel")
    except ImportError:
        raise DataError(
            "`nibabel` must be installed to read NIfTI files (pip install 'tutelage[images]'). Got no such package instead."
        ) from None


def load_nifti(path: Path, what: str) -> tuple[Array, Array]:
    """Read a volume, its axes turned to right, front and up, and its affine map (4, 4)."""
    nibabel = _nibabel()
    if not os.path.isfile(path):  # to open a pipe would wait for whoever writes into it
        raise DataError(f"Every file must be NIfTI. Got no file for {what} instead.")
    try:
        image = nibabel.as_closest_canonical(_opened(nibabel, path))
        with np.errstate(over="ignore", invalid="ignore"):  # what single precision cannot hold is no finite number then
            return np.asarray(image.dataobj, dtype=np.float32), np.asarray(image.affine)
    except Exception as error:  # nibabel, gzip and the file system each raise their own, most of which name the file
        raise DataError(f"Every file must be readable NIfTI. Got {type(error).__name__} for {what} instead.") from None


def _series(folder: Path) -> tuple[Array, Array]:
    """Read a DICOM series, its axes turned like those of NIfTI."""
    volume, affine = importlib.import_module("tutelage.data.dicom").read(folder)
    nibabel = _nibabel()
    image = nibabel.as_closest_canonical(nibabel.Nifti1Image(volume, affine))
    return np.asarray(image.dataobj, dtype=np.float32), np.asarray(image.affine)


def _opened(nibabel: Any, path: Path) -> Any:
    if path.name.endswith(_NIFTI):
        return nibabel.load(path)
    with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rb") as file:  # nibabel goes by the case of an ending
        return nibabel.Nifti1Image.from_bytes(file.read())


def _rule(message: str) -> str:
    """Leave the number of a scan out of a message: notes count the scans that it is about."""
    return message.partition(". Got ")[0]


def _stem(name: str, mark: str = "") -> str | None:
    """Give the name of a NIfTI file without its ending, in whichever case that is written; None for other files."""
    ending = next((mark + ending for ending in _NIFTI if name.lower().endswith(mark + ending)), None)
    return None if ending is None or name.startswith(".") else name[: -len(ending)]


def _ending(root: Path, part: str) -> dict[Path, str]:
    """Find the files at any depth that end in _part, and the name that each has before it."""
    return {path: stem for path in tree.files(root) if (stem := _stem(path.name, f"_{part}")) is not None}


def _folder(directory: Path | str) -> Path:
    root = Path(directory)
    if not root.is_dir():
        raise DataError(f"`directory` must be an existing folder. Got {str(root)!r} instead.")
    return root


def numbered(number: int, source: str) -> str:
    """Give a scan's number in place of its name: the owner of the folder finds it by that."""
    told = f"scan {number} of {source!r}"
    return f"{told} (in alphabetical order, counted from 1)" if number else f"a scan of {source!r} without a number"


def _alone(images: Mapping[str, Path], masks: Mapping[str, Path]) -> tuple[str, ...]:
    """Number the files that have no partner."""
    sides = (("imagesTr", images, masks), ("labelsTr", masks, images))
    lonely = [(side, owners.numbers(name not in others for name in own)) for side, own, others in sides]
    listed = " and ".join(f"{numbers} of {side}" for side, numbers in lonely if numbers)
    if listed:
        return (f"{_unpaired(images, masks)} Without a partner: {listed} (in alphabetical order, counted from 1).",)
    return () if images else (_unpaired(images, masks),)


def unpaired(images: Mapping[str, Path], masks: Mapping[str, Path], parts: tuple[str, str]) -> str:
    """Say that files have no partner, by numbers."""
    return (
        f"`directory` must hold {parts[0]}/ and {parts[1]}/ with the same names. "
        f"Got {len(images)} images and {len(masks)} masks, {len(set(images) & set(masks))} of them in pairs, instead."
    )


def _unpaired(images: Mapping[str, Path], masks: Mapping[str, Path]) -> str:
    return (
        "`directory` must hold imagesTr and labelsTr with NIfTI files of the same names. "
        f"Got {len(images)} images and {len(masks)} masks, {len(set(images) & set(masks))} of them in pairs, instead."
    )


def _elsewhere(root: Path) -> str:
    """Say where a Decathlon task is, if it is not here: one folder further in, or where it is published."""
    if (root / "imagesTr").is_dir():
        return ""
    try:
        inside = sorted(place.name for place in root.iterdir() if (place / "imagesTr").is_dir())
    except OSError:  # a neighbour that may not be looked into
        inside = []
    return (
        f" Is it {inside[0]!r}, inside it?" if inside else " The Decathlon's tasks are published at http://medicaldecathlon.com."
    )


def nifti_named(folder: Path) -> dict[str, Path]:
    """Find NIfTI files by their names without endings; files that macOS leaves behind are none."""
    found = {}
    for path in sorted(folder.glob("*")) if folder.is_dir() else []:
        if (stem := _stem(path.name)) is not None:
            found.setdefault(stem, path)
    return found


def _present(folder: Path, name: str, modality: str, which: str) -> Path:
    """Find a scan's image; its name counts as it is written, because ann and Ann may be two."""
    path = next((path for path in sorted(folder.glob("*")) if _stem(path.name, f"_{modality}") == name), None)
    if path is not None and os.path.isfile(path):
        return path
    raise DataError(f"Every BraTS folder must hold a {modality} volume. Got none for {which} instead.")


def sized(size: Any, sides: int) -> tuple[int, ...]:
    """Check a declared size."""
    if not (isinstance(size, (tuple, list)) and len(size) == sides and all(isinstance(part, int) and part > 0 for part in size)):
        raise RecipeError(f"`size` must be {('two', 'three')[sides - 2]} whole numbers ≥ 1. Got {size!r} instead.")
    return tuple(size)


def _files(into: Path | str | None, mode: int) -> Callable[[str, tuple[int, ...], Any], Array]:
    """Make arrays in memory, or on disk where they are larger than that."""
    if into is None:
        return lambda name, shape, dtype: np.zeros(shape, dtype)
    folder = Path(into)
    folder.mkdir(parents=True, exist_ok=True)

    def mapped(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        path = folder / f"{name}.npy"
        path.unlink(missing_ok=True)  # an old file would keep its old mode
        path.touch(mode=mode)
        return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)

    return mapped
