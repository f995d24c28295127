"""The public data sets: file names, folders, addresses and checksums."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tutelage.data.sources import Archive, File, Layout, Source


def _idx(name: str, home: str, folders: tuple[str, ...], mirrors: tuple[str, ...], sums: Mapping[str, tuple[str, str]]) -> Source:
    """Describe four idx files, gzipped as published or already unpacked."""
    zipped = tuple(
        File(
            f"{file}.gz",
            f"md5:{md5}",
            payload=f"sha256:{inside}",
            addresses=tuple(f"{mirror}{file}.gz" for mirror in mirrors),
        )
        for file, (md5, inside) in sums.items()
    )
    plain = tuple(File(file, f"sha256:{inside}") for file, (_, inside) in sums.items())
    return Source(name, home, (Layout("gz", folders, zipped), Layout("plain", folders, plain)))


# md5 of the .gz as in torchvision's list, sha256 of what is inside.
MNIST = _idx(
    "mnist",
    "http://yann.lecun.com/exdb/mnist/",
    ("mnist", "MNIST/raw", "."),
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    {
        "train-images-idx3-ubyte": (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        "train-labels-idx1-ubyte": (
            "d53e105ee54ea40749a09fcbcd1e9432",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        "t10k-images-idx3-ubyte": (
            "9fb629c4189551a2d022fa330f9573f3",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        "t10k-labels-idx1-ubyte": (
            "ec29112dd5afa0611ce80d1b7f02629c",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    },
)

FASHION_MNIST = _idx(
    "fashion-mnist",
    "https://github.com/zalandoresearch/fashion-mnist",
    ("fashion-mnist", "FashionMNIST/raw", "."),
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    {
        "train-images-idx3-ubyte": (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        "train-labels-idx1-ubyte": (
            "25c81989df183df01b3e8a0aad5dffbe",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        "t10k-images-idx3-ubyte": (
            "bef4ecab320f06d8554ea6380940ec79",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        "t10k-labels-idx1-ubyte": (
            "bb300cfdad3c16e7a12a480ee83cd310",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    },
)


def _svhn(name: str, parts: tuple[str, ...]) -> Source:
    sums = {
        "train": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test": "eb5a983be6a315427106f1b164d9cef3",
        "extra": "a93ce644f1a588dc4d68dda5feec44a7",
    }
    base = "http://ufldl.stanford.edu/housenumbers/"
    files = tuple(File(f"{p}_32x32.mat", f"md5:{sums[p]}", addresses=(f"{base}{p}_32x32.mat",)) for p in parts)
    return Source(name, base, (Layout("mat", ("svhn", "SVHN", "."), files),))


SVHN = _svhn("svhn", ("train", "test"))
SVHN_EXTRA = _svhn("svhn-extra", ("train", "extra", "test"))

_CIFAR = "https://www.cs.toronto.edu/~kriz/"
CIFAR_10 = Source(
    "cifar-10",
    f"{_CIFAR}cifar.html",
    (
        Layout(
            "bin",
            ("cifar-10-batches-bin", "cifar-10/cifar-10-batches-bin", "cifar-10", "."),
            (
                File("data_batch_1.bin", "md5:5dd7e06a14cb22eb9f671a540d1b7c25"),
                File("data_batch_2.bin", "md5:5ea93a67294ea407fff1d09f752e9692"),
                File("data_batch_3.bin", "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
                File("data_batch_4.bin", "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
                File("data_batch_5.bin", "md5:53f37980c15c3d472c316c40844f3f0d"),
                File("test_batch.bin", "md5:803d5f7f4d78ea53de84dbe85f74fb6d"),
            ),
            Archive(f"{_CIFAR}cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),
        ),
        Layout(
            "python",
            ("cifar-10-batches-py", "cifar-10/cifar-10-batches-py", "cifar-10", "."),
            (
                File("data_batch_1", "md5:c99cafc152244af753f735de768cd75f"),
                File("data_batch_2", "md5:d4bba439e000b95fd0a9bffe97cbabec"),
                File("data_batch_3", "md5:54ebc095f3ab1f0389bbae665268c751"),
                File("data_batch_4", "md5:634d18415352ddfa80567beed471001a"),
                File("data_batch_5", "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
                File("test_batch", "md5:40351d587109b95175f43aff81a1287e"),
            ),
            Archive(f"{_CIFAR}cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a"),
        ),
    ),
)

CIFAR_100 = Source(
    "cifar-100",
    f"{_CIFAR}cifar.html",
    (
        Layout(
            "bin",
            ("cifar-100-binary", "cifar-100/cifar-100-binary", "cifar-100", "."),
            (
                File("train.bin", "md5:6172c7755cfe09b2fe270c85cebc1b15"),
                File("test.bin", "md5:4499cfba6c016c1be1438163640a0898"),
            ),
            Archive(f"{_CIFAR}cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"),
        ),
        Layout(
            "python",
            ("cifar-100-python", "cifar-100/cifar-100-python", "cifar-100", "."),
            (
                File("train", "md5:16019d7e3df5f24257cddd939b257f8d"),
                File("test", "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"),
            ),
            Archive(f"{_CIFAR}cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85"),
        ),
    ),
)

_UCI = "https://archive.ics.uci.edu/"
ADULT = Source(
    "adult",
    f"{_UCI}dataset/2/adult",
    (
        Layout(
            "text",
            ("adult", "."),
            (
                File(
                    "adult.data",
                    "md5:5d7c39d7b8804f071cdd1f2a7c460872",
                    addresses=(f"{_UCI}ml/machine-learning-databases/adult/adult.data",),
                ),
                File(
                    "adult.test",
                    "md5:35238206dfdf7f1fe215bbb874adecdc",
                    addresses=(f"{_UCI}ml/machine-learning-databases/adult/adult.test",),
                ),
            ),
            Archive(
                f"{_UCI}static/public/2/adult.zip",
                "sha256:7537312dd56c2b98035880805ce99e68183a30ee468aa5329d6df0fbb3cc21bb",
            ),
        ),
    ),
)

_BY_HAND = "diabetes+130-us+hospitals+for+years+1999-2008.zip"  # what a browser calls it
_TABLE = "sha256:0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97"
DIABETES = Source(
    "diabetes",
    f"{_UCI}dataset/296/diabetes+130-us+hospitals+for+years+1999-2008",
    (
        Layout(
            "zip",
            ("diabetes130", "diabetes", "."),
            (
                File(
                    "dataset_diabetes.zip",
                    "md5:3ed3af734865787bc1449f671dc262ed",
                    payload=_TABLE,
                    member="diabetic_data.csv",
                    addresses=(
                        f"{_UCI}static/public/296/{_BY_HAND}",
                        f"{_UCI}ml/machine-learning-databases/00296/dataset_diabetes.zip",
                    ),
                ),
            ),
        ),
        Layout(
            "zip",
            ("diabetes130", "diabetes", "."),
            (File(_BY_HAND, "md5:3ed3af734865787bc1449f671dc262ed", payload=_TABLE, member="diabetic_data.csv"),),
        ),
        Layout(
            "csv",
            ("diabetes130", "diabetes130/dataset_diabetes", "diabetes", "dataset_diabetes", "."),
            (File("diabetic_data.csv", _TABLE),),
        ),
    ),
)

# The two-dimensional, single-label sets at 28 x 28: md5 (MedMNIST 3) and number of classes.
_MEDMNIST = {
    "pathmnist": ("a8b06965200029087d5bd730944a56c1", 9),
    "dermamnist": ("0744692d530f8e62ec473284d019b0c7", 7),
    "octmnist": ("c68d92d5b585d8d81f7112f81e2d0842", 4),
    "pneumoniamnist": ("28209eda62fecd6e6a2d98b1501bb15f", 2),
    "retinamnist": ("bd4c0672f1bba3e3a89f0e4e876791e4", 5),
    "breastmnist": ("750601b1f35ba3300ea97c75c52ff8f6", 2),
    "bloodmnist": ("7053d0359d879ad8a5505303e11de1dc", 8),
    "tissuemnist": ("ebe78ee8b05294063de985d821c1c34b", 8),
    "organamnist": ("68e3f8846a6bd62f0c9bf841c0d9eacc", 11),
    "organcmnist": ("b9ceb9546e10131b32923c5bbeaea2b1", 11),
    "organsmnist": ("9ab87b696fb54e2a387ebe992d6ed5f1", 11),
}

MEDMNIST: Mapping[str, tuple[Source, int]] = MappingProxyType(
    {
        name: (
            Source(
                name,
                "https://medmnist.com/",
                (
                    Layout(
                        "npz",
                        ("medmnist", ".medmnist", "."),
                        (
                            File(
                                f"{name}.npz",
                                f"md5:{md5}",
                                addresses=(f"https://zenodo.org/records/10519652/files/{name}.npz?download=1",),
                            ),
                        ),
                    ),
                ),
            ),
            classes,
        )
        for name, (md5, classes) in _MEDMNIST.items()
    }
)
