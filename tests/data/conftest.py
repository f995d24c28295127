"""Writers of tiny files in the exact public formats."""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

DIABETES_HEADER = (
    "encounter_id,patient_nbr,race,gender,age,weight,admission_type_id,discharge_disposition_id,admission_source_id,"
    "time_in_hospital,payer_code,medical_specialty,num_lab_procedures,num_procedures,num_medications,number_outpatient,"
    "number_emergency,number_inpatient,diag_1,diag_2,diag_3,number_diagnoses,max_glu_serum,A1Cresult,metformin,"
    "repaglinide,nateglinide,chlorpropamide,glimepiride,acetohexamide,glipizide,glyburide,tolbutamide,pioglitazone,"
    "rosiglitazone,acarbose,miglitol,troglitazone,tolazamide,examide,citoglipton,insulin,glyburide-metformin,"
    "glipizide-metformin,glimepiride-pioglitazone,metformin-rosiglitazone,metformin-pioglitazone,change,diabetesMed,"
    "readmitted"
)
DIABETES_ROW = (
    "2278392,8222157,Caucasian,Female,[0-10),?,6,25,1,1,?,Pediatrics-Endocrinology,41,0,1,0,0,0,250.83,?,?,1,None,None,"
    "No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,No,NO"
)
ADULT_ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)


@pytest.fixture
def write_idx() -> Callable[..., Path]:
    """Write an idx file as MNIST's authors do: big-endian sizes after the magic, inside gzip."""

    def write(path: Path, array: np.ndarray, *, mtime: int | None = 0) -> Path:
        body = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(body, mtime=mtime) if path.suffix == ".gz" else body)
        return path

    return write


@pytest.fixture
def write_digits(write_idx: Callable[..., Path]) -> Callable[..., Path]:
    """Write the four files of an MNIST-like set into a folder."""

    def write(folder: Path, train: int, test: int, *, end: str = ".gz") -> Path:
        for part, count in (("train", train), ("t10k", test)):
            values = np.arange(count)
            write_idx(folder / f"{part}-images-idx3-ubyte{end}", (values % 251).reshape(-1, 1, 1))
            write_idx(folder / f"{part}-labels-idx1-ubyte{end}", values % 10)
        return folder

    return write


@pytest.fixture
def diabetes_table() -> Callable[..., str]:
    """Write UCI's table, its first row repeated with changes."""

    def table(*changes: dict[str, str]) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        first = dict(zip(DIABETES_HEADER.split(","), DIABETES_ROW.split(","), strict=True))
        writer.writerow(first)
        for change in changes:
            writer.writerow((first | change).values())
        return text.getvalue()

    return table


@pytest.fixture
def adult_row() -> Callable[..., str]:
    """Write a row of adult.data with some of its fields replaced by position."""

    def row(**fields: str) -> str:
        cells = ADULT_ROW.split(", ")
        for place, value in fields.items():
            cells[int(place.removeprefix("at"))] = value
        return ", ".join(cells)

    return row


@pytest.fixture
def python_batch() -> Callable[..., bytes]:
    """Pickle a CIFAR batch byte for byte as Python 2's cPickle did: protocol 2, byte strings, numpy 1's names."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes((len(value),)) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value

    def batch(pixels: np.ndarray, labels: list[int], *, key: bytes = b"labels", code: bytes = b"u1") -> bytes:
        rows, width = pixels.shape
        numbers = b"".join(b"K" + bytes((label,)) for label in labels)
        return b"".join(
            (
                b"\x80\x02}q\x01(",
                text(b"batch_label") + text(b"training batch 1 of 5"),
                text(key) + b"](" + numbers + b"e",
                text(b"data") + b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85",
                text(b"b") + b"\x87Rq\x04(K\x01J" + struct.pack("<i", rows) + b"M" + struct.pack("<H", width) + b"\x86",
                b"cnumpy\ndtype\nq\x05" + text(code) + b"K\x00K\x01\x87Rq\x06(K\x03" + text(b"|"),
                b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89" + text(pixels.tobytes()) + b"tb",
                text(b"filenames") + b"](" + text(b"leptodactylus_pentadactylus_s_000004.png") + b"e",
                b"u.",
            )
        )

    sample = np.arange(2 * 3072, dtype=np.uint64).astype(np.uint8).reshape(2, 3072)
    check = pickle.loads(batch(sample, [6, 9]), encoding="bytes")  # the real unpickler must agree, or tests prove nothing
    assert np.array_equal(check[b"data"], sample)
    assert check[b"labels"] == [6, 9]
    return batch
