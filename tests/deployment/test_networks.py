"""Students that are networks, in every format that holds them: raw records in, the student's answers out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tutelage.data.accepted import Accepted
from tutelage.data.schema import ImageSchema, VolumeSchema
from tutelage.deployment import exporting, networks, samples, students
from tutelage.deployment.students import Student
from tutelage.nets.masks import MaskModel
from tutelage.nets.model import Model
from tutelage.nets.networks import ConvNet
from tutelage.nets.unet import UNet

NAMES = ("benign", "malignant", "odd")


def student(folder: Path, form: str) -> Student:
    """Store a network as a run does, and read it back."""
    torch.manual_seed(0)
    if form == "labels":
        factory = ConvNet(shape=(1, 16, 16), classes=3, widths=(8,))
        Model(factory, factory().state_dict(), accepted=Accepted((1, 16, 16), "float", 0.0, 1.0)).save(folder / "student")
        return students._read(folder / "student.safetensors", ImageSchema(1, (16, 16), NAMES), "cpu")
    shape = (1, 12, 12) if form == "pictures" else (1, 8, 8, 8)
    factory = UNet(shape=(1, 8, 8) if form == "pictures" else shape, widths=(8, 16))
    accepted = Accepted(shape, "float", 0.0, 1.0) if form == "pictures" else Accepted(shape, "float", -3.0, 4.0)
    window = (8, 8) if form == "pictures" else None
    MaskModel(factory, factory().state_dict(), threshold=0.47, window=window, accepted=accepted).save(folder / "student")
    schema = ImageSchema(1, (12, 12)) if form == "pictures" else VolumeSchema(1, (8, 8, 8))
    return students._read(folder / "student.safetensors", schema, "cpu")


@pytest.mark.parametrize("form", ["labels", pytest.param("pictures", marks=pytest.mark.slow), "volumes"])
def test_networks(form: str, tmp_path: Path) -> None:
    read = student(tmp_path, form)
    given = samples.raw(read)
    assert given.dtype == (np.float32 if form == "volumes" else np.uint8)
    for format, name in (("onnx", "model.onnx"), ("torchscript", "model.pt")):
        path = tmp_path / name
        if format == "onnx":
            path.write_bytes(exporting.onnx_model(read).SerializeToString())
        else:
            networks.torchscript(read, path)
        records, apart = exporting._check(read, path, format, given)
        assert records == (3 if (form, format) == ("volumes", "onnx") else 8)
        assert apart < 1e-5
    if form == "volumes":  # whole ones of any size: what is done before and after was checked with them
        return
    answers = exporting.run_onnx(tmp_path / "model.onnx", samples.fed(read, given[:3]))  # as many records as one likes
    if form == "labels":
        assert set(answers["label"].tolist()) <= set(NAMES)
    else:
        assert np.array_equal(answers["mask"], answers["shares"] > 0.47)


def test_a_network_that_differs_is_refused(tmp_path: Path) -> None:
    read = student(tmp_path, "labels")
    read.model.state = {name: tensor * 1.5 for name, tensor in read.model.state.items()}
    path = tmp_path / "model.onnx"
    path.write_bytes(exporting.onnx_model(read).SerializeToString())
    right = student(tmp_path, "labels")
    with pytest.raises(ValueError, match="must give the student's answers"):
        exporting._check(right, path, "onnx", samples.raw(right))
