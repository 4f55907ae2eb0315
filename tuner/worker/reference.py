"""Reference outputs on disk: every leaf of two horizons, byte for byte, narrow floats and PRNG keys included."""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused
from tuner.worker.saved import is_key, to_host

__all__ = ["SAMPLES", "WHOLE", "Leaf", "Reference", "Writing", "collected", "file_of", "read", "stamp_of", "write"]

SAMPLES = -1
"""In place of a number of steps: a few values of each input."""
WHOLE = (0, 1)
"""The part of a process that is alone."""

_MAGIC = b"tuner reference 1\n"
_LENGTH = 8  # bytes of the description's length
_ALIGNMENT = 64


@dataclass(frozen=True)
class Leaf:
    """One output leaf. `dtype` is jax's name of it ("key<fry>" for keys, whose `data` are their raw words)."""

    path: str
    dtype: str
    data: np.ndarray[Any, Any]
    key_impl: str | None

    def array(self) -> jax.Array:
        """The leaf as the array it was."""
        if self.key_impl is not None:
            keys: jax.Array = jax.random.wrap_key_data(jnp.asarray(self.data), impl=self.key_impl)
            return keys
        return jnp.asarray(self.data)


@dataclass(frozen=True)
class Reference:
    """Output leaves after so many steps from the initial state; after none: the inputs, where they have to be told,
    else `SAMPLES` of them.
    `precision`: the dtype that they were computed in, where that is not the step's own. `part`: the rank, of how
    many, whose part of every array this is; each rank of a gang has a file of its own."""

    horizons: Mapping[int, tuple[Leaf, ...]]
    precision: str = ""
    part: tuple[int, int] = WHOLE


def collected(outputs: Any) -> tuple[Leaf, ...]:
    """The leaves of `outputs`, copied to the host."""
    flat, _ = jax.tree_util.tree_flatten_with_path(outputs)
    return tuple(
        Leaf(
            "out" + jax.tree_util.keystr(path),
            str(leaf.dtype),
            values,
            str(jax.random.key_impl(leaf)) if is_key(leaf) else None,
        )
        for (path, leaf), values in zip(flat, to_host([leaf for _, leaf in flat]), strict=True)
    )


def stamp_of(path: Path) -> tuple[str, int, int]:
    """What tells one content of `path` from another without reading it. Zeros if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), status.st_mtime_ns, status.st_size


def file_of(path: Path, rank: int) -> Path:
    """Where that rank of a gang keeps its part of the reference `path`."""
    return path.with_name(f"{path.name}.rank{rank}") if rank else path


class Writing:
    """A reference on its way to the disk, beside the work that follows: gigabytes take a while.

    Nothing may be timed meanwhile, and nobody else can read it before it is there: `done` waits for that.
    """

    def __init__(self, reference: Reference, path: Path) -> None:
        self.path = path
        self.reference = reference
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tuner-reference", daemon=True)
        self._thread.start()

    def done(self) -> None:
        """Wait until the file is there. Raises what writing it raised, once."""
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            write(self.reference, self.path)
        except BaseException as error:
            self._error = error


def write(reference: Reference, path: Path) -> None:
    """Write `reference` to `path`, whole or not at all: what it is, a description's length, that, and every leaf's
    bytes as they lie in memory, from one alignment to the next. Raises OSError that names `path`; what was written till
    then is deleted, since a full disk has no room for it."""
    leaves = [(steps, leaf) for steps, those in reference.horizons.items() for leaf in those]
    places = _places([leaf.data.nbytes for _, leaf in leaves])
    entries = [
        {
            "steps": steps,
            "path": leaf.path,
            "dtype": leaf.dtype,
            "stored": leaf.data.dtype.name,
            "shape": leaf.data.shape,
            "key_impl": leaf.key_impl,
        }
        for steps, leaf in leaves
    ]
    description = json.dumps({"precision": reference.precision, "part": reference.part, "leaves": entries}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as stream:
            stream.write(_MAGIC + len(description).to_bytes(_LENGTH, "little") + description)
            base = _aligned(stream.tell())
            for place, (_, leaf) in zip(places, leaves, strict=True):
                stream.seek(base + place)
                stream.write(_bytes(leaf.data))
            stream.truncate(base + (places[-1] + leaves[-1][1].data.nbytes if leaves else 0))
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def read(path: Path, part: tuple[int, int] = WHOLE) -> Reference:
    """The reference in `path`, whose leaves are read from the disk as they are needed. Raises Refused(PROTOCOL) if
    there is none, or if it is neither whole nor this part."""
    try:
        raw = np.memmap(path, np.uint8, mode="r")
        begin = len(_MAGIC) + _LENGTH
        if raw[: len(_MAGIC)].tobytes() != _MAGIC:
            raise ValueError("it begins otherwise")
        end = begin + int.from_bytes(raw[len(_MAGIC) : begin].tobytes(), "little")
        told = json.loads(raw[begin:end].tobytes())
        if (made := tuple(told["part"])) not in (WHOLE, part):
            raise ValueError(f"this is rank {part[0]} of {part[1]}, it has the part of rank {made[0]} of {made[1]}")
        dtypes = [jnp.dtype(entry["stored"]) for entry in told["leaves"]]
        sizes = [
            math.prod(entry["shape"]) * dtype.itemsize for entry, dtype in zip(told["leaves"], dtypes, strict=True)
        ]
        horizons: dict[int, tuple[Leaf, ...]] = {}
        for entry, dtype, size, place in zip(told["leaves"], dtypes, sizes, _places(sizes), strict=True):
            here = _aligned(end) + place
            data = np.asarray(raw[here : here + size]).view(dtype).reshape(entry["shape"])
            leaf = Leaf(entry["path"], entry["dtype"], data, entry["key_impl"])
            horizons[entry["steps"]] = (*horizons.get(entry["steps"], ()), leaf)
    except (OSError, KeyError, ValueError) as error:
        raise Refused(FailureClass.PROTOCOL, f"{path} holds no reference outputs for this process: {error}") from error
    return Reference(horizons, told["precision"], made)


def _bytes(data: np.ndarray[Any, Any]) -> memoryview:
    """The bytes themselves: no buffer is of bfloat16."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data


def _places(sizes: Sequence[int]) -> list[int]:
    """Where each of so many bytes begins, one aligned after the other."""
    return list(itertools.accumulate((_aligned(size) for size in sizes), initial=0))[: len(sizes)]


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT
