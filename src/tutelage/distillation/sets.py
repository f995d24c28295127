"""A distilled set: images with soft labels that anything can be trained on; as files, and as a picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from tutelage.distillation.formations import check_formation, expand, expand_labels
from tutelage.nets.storage import read_tensors, write_tensors
from tutelage.privacy.errors import DataError

KIND = "tutelage.distilled/1"


@final
@dataclass(frozen=True, eq=False, repr=False)
class DistilledSet:
    """Hold stored images (classes·ipc, c, h, w) in [0, 1], class by class, and the soft labels of what they show when expanded.

    With a formation f every stored image shows f×f images: labels are (classes·ipc·f², classes).
    """

    images: np.ndarray
    labels: np.ndarray
    formation: int = 1

    def __post_init__(self) -> None:
        images, labels = np.asarray(self.images, np.float32), np.asarray(self.labels, np.float32)
        if images.ndim != 4 or labels.ndim != 2:
            raise DataError(f"`images` and `labels` must have 4 and 2 dimensions. Got {images.ndim} and {labels.ndim} instead.")
        check_formation(self.formation, images.shape)
        if len(labels) != len(images) * self.formation**2:
            raise DataError(
                f"`labels` must have one row per shown image, {len(images) * self.formation**2}. Got {len(labels)} instead."
            )
        if not (np.isfinite(images).all() and np.isfinite(labels).all()):
            raise DataError("`images` and `labels` must be finite. Got others instead.")
        object.__setattr__(self, "images", images.clip(0, 1))
        object.__setattr__(self, "labels", labels)

    @property
    def classes(self) -> int:
        """Count the classes."""
        return self.labels.shape[1]

    @property
    def ipc(self) -> int:
        """Count the stored images of a class."""
        return len(self.images) // self.classes

    def shown(self, *, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Give what a network learns from: images (n, c, h, w) and soft labels (n, classes)."""
        images, labels = torch.as_tensor(self.images, device=device), torch.as_tensor(self.labels, device=device)
        return expand(images, self.formation), expand_labels(labels, 1)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"DistilledSet({self.ipc} images of each of {self.classes} classes, formation {self.formation})"

    def save(self, folder: str | Path) -> Path:
        """Write distilled.safetensors, the same as distilled.npz for NumPy alone, and a picture of the set."""
        folder = Path(folder)
        tensors = {"images": torch.as_tensor(self.images), "labels": torch.as_tensor(self.labels)}
        write_tensors(
            folder / "distilled.safetensors", tensors, {"kind": KIND, "formation": json.dumps(self.formation)}, private=False
        )
        with (folder / "distilled.npz").open("wb") as file:
            np.savez(file, images=self.images, labels=self.labels, formation=np.int64(self.formation))
        self.picture(folder / "distilled.png")
        return folder

    @classmethod
    def load(cls, path: str | Path) -> DistilledSet:
        """Read a folder that `save` wrote, or its safetensors file."""
        path = Path(path)
        file = path / "distilled.safetensors" if path.is_dir() else path
        tensors, told = read_tensors(file, kind=KIND)
        return cls(tensors["images"].numpy(), tensors["labels"].numpy(), int(told["formation"]))

    def picture(self, path: str | Path, *, most: int = 10) -> Path:
        """Draw a grid, one row a class, up to `most` stored images in it."""
        draw_grid(self.images.reshape(self.classes, self.ipc, *self.images.shape[1:])[:, :most], path)
        return Path(path)


def draw_grid(images: Any, path: str | Path, *, margin: int = 2, scale: int = 2) -> None:
    """Write images (rows, columns, c, h, w) in [0, 1] as one PNG."""
    from matplotlib.image import imsave

    images = np.asarray(images, np.float32).clip(0, 1)
    rows, columns, channels, height, width = images.shape
    sheet = np.ones((rows * (height + margin) + margin, columns * (width + margin) + margin, 3), np.float32)
    for row in range(rows):
        for column in range(columns):
            image = np.moveaxis(images[row, column], 0, -1)
            top, left = margin + row * (height + margin), margin + column * (width + margin)
            sheet[top : top + height, left : left + width] = np.broadcast_to(
                image if channels == 3 else image[..., :1], (height, width, 3)
            )
    imsave(str(path), sheet.repeat(scale, axis=0).repeat(scale, axis=1), metadata={"Software": "tutelage"})
