"""Measure the classifier without a public pool: features, whitening and rounds, timed from images to predictions.

Settings follow from the rule alone. Its constant, units per axis, was derived with part of the training images held out: 27 on MNIST,
which Fashion-MNIST is reported with, 16 on Fashion-MNIST, which MNIST is reported with, and 20 in between, for all other data.
Unit: a record; adjacency: replace one; δ = 1e-5. Through the library's own walk: curator, exact sums and noise, ledger, verify.

python benchmarks/nopool.py --data FOLDER --name mnist [--epsilon 0.5 1 3] [--units-per-axis 16] [--mirror] [--holdout]
"""

from __future__ import annotations
