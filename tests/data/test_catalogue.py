from __future__ import annotations

import re

import pytest

from tutelage.data import catalogue

SOURCES = [
    catalogue.MNIST,
    catalogue.FASHION_MNIST,
    catalogue.SVHN,
    catalogue.SVHN_EXTRA,
    catalogue.CIFAR_10,
    catalogue.CIFAR_100,
    catalogue.ADULT,
    catalogue.DIABETES,
    *(source for source, _ in catalogue.MEDMNIST.values()),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_file_can_be_recognised_and_had(source):
    checksum = re.compile(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}")
    assert source.home.startswith("http")
    for layout in source.layouts:
        assert len({file.name for file in layout.files}) == len(layout.files)
        assert all(checksum.fullmatch(file.checksum) for file in layout.files)
        assert all(checksum.fullmatch(file.payload) for file in layout.files if file.payload)
        assert layout.archive is None or checksum.fullmatch(layout.archive.checksum)
    first = source.layouts[0]
    assert first.archive is not None or all(file.addresses for file in first.files)


def test_no_checksum_is_given_twice():
    sums = [file.checksum for source in SOURCES if source is not catalogue.SVHN for file in source.layouts[0].files]
    assert len(sums) == len(set(sums))
