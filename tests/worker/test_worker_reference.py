"""Reference outputs on disk."""

from __future__ import annotations

import errno
import resource
import signal
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tuner.worker.failures import Refused
from tuner.worker.reference import WHOLE, Leaf, Reference, file_of, read, write

LEAVES = (
    Leaf("out['w']", "bfloat16", np.linspace(-2, 2, 6).astype(ml_dtypes.bfloat16).reshape(2, 3), None),
    Leaf("out['seen']", "bool", np.array([True, False, True]), None),
    Leaf("out['loss']", "float32", np.float32(1.5).reshape(()), None),
    Leaf("out['none']", "int32", np.zeros((0, 4), np.int32), None),
    Leaf("out['key']", "key<fry>", np.array([7, 2**32 - 1], np.uint32), "threefry2x32"),
    Leaf("out['turned']", "float64", np.arange(6.0).reshape(2, 3).T, None),
)


def test_every_leaf_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "made" / "reference.bin"
    write(Reference({1: LEAVES, 4: LEAVES[:2]}, "float64"), path)
    found = read(path)
    assert found.precision == "float64"
    assert list(found.horizons) == [1, 4]
    assert len(found.horizons[4]) == 2
    for leaf, again in zip(LEAVES, found.horizons[1], strict=True):
        assert (again.path, again.dtype, again.key_impl) == (leaf.path, leaf.dtype, leaf.key_impl)
        assert (again.data.dtype, again.data.shape) == (leaf.data.dtype, leaf.data.shape)
        assert again.data.tobytes() == leaf.data.tobytes()
    assert [p.name for p in path.parent.iterdir()] == ["reference.bin"]


def test_a_reference_without_leaves_comes_back(tmp_path: Path) -> None:
    write(Reference({}), tmp_path / "reference.bin")
    assert read(tmp_path / "reference.bin") == Reference({})


@pytest.mark.parametrize("kept", [0, 5, 20, 200, -1])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "reference.bin"
    write(Reference({1: LEAVES}), path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(Refused, match="holds no reference outputs"):
        read(path)


def test_another_file_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "reference.bin").write_bytes(b"PK\x03\x04" * 100)
    for name in ("reference.bin", "missing.bin"):
        with pytest.raises(Refused, match=f"{name} holds no reference outputs"):
            read(tmp_path / name)


def test_a_rank_takes_its_own_part_or_a_whole_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "reference.bin"
    write(Reference({1: LEAVES}), path)
    assert read(path, (1, 2)).part == WHOLE
    write(Reference({1: LEAVES}, part=(0, 2)), path)
    assert read(path, (0, 2)).part == (0, 2)
    for part in (WHOLE, (1, 2), (0, 4)):
        with pytest.raises(Refused, match=f"this is rank {part[0]} of {part[1]}, it has the part of rank 0 of 2"):
            read(path, part)
    assert {file_of(path, rank).name for rank in (0, 1)} == {"reference.bin", "reference.bin.rank1"}


def test_a_full_disk_is_told_with_the_place_and_keeps_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk that is full in the middle of a leaf."""
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = tmp_path / "reference.bin"
    large = Leaf("out", "float32", np.ones(1 << 16, np.float32), None)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        with pytest.raises(OSError, match=r"reference\.bin") as refused:
            write(Reference({1: [large]}), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert refused.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []
