"""Shokri's and Nasr's attacks: the exact layers, and that they find what is there and nothing else."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tutelage.audits.shokri import shokri
from tutelage.audits.thesis import attacked
from tutelage.privacy.errors import DataError, RecipeError

torch = pytest.importorskip("torch")

from tutelage.audits.whitebox import Attack, Whitebox, features  # noqa: E402


def test_shadow_outputs_teach_what_a_member_looks_like() -> None:
    rng = np.random.default_rng(0)
    inside = np.argsort(rng.random((7, 300)), axis=0) < 4
    labels = rng.integers(0, 3, 300)
    logits = rng.normal(0, 1, (7, 300, 3)) + 3 * inside[:, :, None] * np.eye(3)[labels]
    shares = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    found = shokri(shares[0], labels, shares[1:], inside[1:])
    assert found[inside[0]].mean() > found[~inside[0]].mean() + 0.2
    with pytest.raises(DataError, match="members and others"):
        shokri(shares[0], labels, shares[1:], np.ones_like(inside[1:]))


def test_layers_are_the_authors() -> None:
    shapes = {"output 3": (10,), "loss": (1,), "label": (10,), "gradient 3.weight": (10, 64), "output 0": (16, 6, 6)}
    network = Attack(shapes)
    parts = zip(network.names, network.parts, strict=True)
    sizes = {name: [tuple(w.shape) for w in part.parameters() if w.ndim > 1] for name, part in parts}
    assert sizes["output 3"] == [(100, 10), (64, 100)]
    assert sizes["loss"] == [(100, 1), (64, 100)]
    assert sizes["label"] == [(128, 10), (64, 128)]
    assert sizes["gradient 3.weight"] == [(100, 1, 1, 64), (2024, 1000), (512, 2024), (256, 512)]
    assert sizes["output 0"] == [(16, 16, 6, 6), (1024, 16), (512, 1024), (128, 512), (64, 128)]
    encoder = [tuple(w.shape) for w in network.encoder.parameters() if w.ndim > 1]
    assert encoder == [(256, 64 * 4 + 256), (128, 256), (64, 128), (1, 64)]
    given = {name: torch.randn(5, *shape) for name, shape in shapes.items()}
    assert network(given).shape == (5,)


def trained(steps: int) -> tuple[object, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A network that learned 400 digits, some under a wrong label, for so many steps."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    inputs = (images[order] / 16).astype(np.float32)
    targets = np.where(rng.random(len(images)) < 0.4, rng.integers(0, 10, len(images)), labels[order]).astype(np.int64)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(torch.from_numpy(inputs[:400])), torch.from_numpy(targets[:400])).backward()
        optimizer.step()
    return module, (inputs[:400], targets[:400]), (inputs[400:800], targets[400:800])


def test_both_attacks_find_a_model_that_remembers() -> None:
    found = attacked(*trained(300), classes=10, epochs=15)
    assert set(found) == {"black-box (Shokri)", "white-box (Nasr)"}
    for roc in found.values():
        assert roc.auc > 0.62
        assert roc.members.size == roc.others.size == 200


def test_neither_finds_a_model_that_learned_nothing() -> None:
    for roc in attacked(*trained(0), classes=10, epochs=5).values():
        assert 0.38 < roc.auc < 0.62


def test_gradients_are_each_records_own() -> None:
    module, (inputs, targets), _ = trained(5)
    found = features(module, inputs[:70], targets[:70])
    assert set(found) == {"output 2", "loss", "label", "gradient 2.weight"}
    for place in (0, 69):
        module.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(inputs[[place]])), torch.from_numpy(targets[[place]]))
        loss.backward()
        torch.testing.assert_close(found["gradient 2.weight"][place], module[2].weight.grad, rtol=1e-4, atol=1e-6)
        assert float(found["loss"][place]) == pytest.approx(loss.item(), rel=1e-5)
    with pytest.raises(RecipeError, match="Got nowhere instead"):
        features(module, inputs[:2], targets[:2], layers=["nowhere"])
    with pytest.raises(DataError, match="same components"):
        Whitebox(epochs=1).scored(found, {"loss": found["loss"]}, found)
