"""Private and public data, and loaders for the public formats they come in. Importable with numpy and scipy alone."""

from tutelage.data.adult import read_adult
from tutelage.data.cifar import read_cifar
from tutelage.data.dataset import Private, Public
from tutelage.data.diabetes import read_diabetes, split_by_patient
from tutelage.data.folders import private_from_folder, public_from_folder
from tutelage.data.idx import read_digits, read_idx
from tutelage.data.medmnist import read_medmnist
from tutelage.data.presets import Study, load, names, splits
from tutelage.data.records import Records
from tutelage.data.svhn import read_svhn

__all__ = [
    "Private",
    "Public",
    "Records",
    "Study",
    "load",
    "names",
    "private_from_folder",
    "public_from_folder",
    "read_adult",
    "read_cifar",
    "read_diabetes",
    "read_digits",
    "read_idx",
    "read_medmnist",
    "read_svhn",
    "split_by_patient",
    "splits",
]
