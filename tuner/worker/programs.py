"""The worker's own programs on an accelerator, compiled once a run: later sessions load what the first one made.

The settings under test act on whatever a process compiles: with a program of its own, each session would be compared by
another measure. And a dozen small programs take seconds to compile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

__all__ = ["Programs"]


class Programs:
    """Jitted functions by the arguments they are called with, each made once, whichever thread comes first."""

    def __init__(self) -> None:
        self._made: dict[Any, Future[Callable[..., Any]]] = {}
        self._lock = threading.Lock()

    def run(self, function: Any, folder: Path, *args: Any) -> Any:
        """``function(*args)`` of a jitted function, by the program kept in `folder`, or kept there from now on. The
        arguments may be trees of arrays. Raises what compiling or running raises."""
        leaves, tree = jax.tree.flatten(args)
        key = (function, tree, tuple(map(_kind, leaves)))
        with self._lock:
            first = key not in self._made
            made = self._made.setdefault(key, Future())
        if first:
            try:
                made.set_result(_program(function, folder, args))
            except BaseException as error:
                with self._lock:
                    del self._made[key]  # there may be room for it another time
                made.set_exception(error)
        return made.result()(*args)


def _kind(argument: Any) -> Any:
    """What distinguishes programs: shape, dtype, placement of an array; of others their type."""
    if isinstance(argument, jax.Array):
        return argument.shape, argument.dtype, argument.sharding
    return type(argument)


def _program(function: Any, folder: Path, args: tuple[Any, ...]) -> Callable[..., Any]:
    lowered = function.lower(*args)
    devices = _devices(next(leaf for leaf in jax.tree.leaves(args) if isinstance(leaf, jax.Array)))
    told = (lowered.as_text(), [d.id for d in devices], jax.__version__, devices[0].client.platform_version)
    path = folder / hashlib.sha256(repr(told).encode()).hexdigest()
    # A back end that can't load it, or a file that is not whole, costs a compile and nothing else.
    with contextlib.suppress(Exception):
        program, given, made = pickle.loads(path.read_bytes())
        load = serialize_executable.deserialize_and_load
        loaded: Callable[..., Any] = load(program, given, made, execution_devices=devices)
        return loaded
    compiled: jax.stages.Compiled = lowered.compile()
    with contextlib.suppress(Exception):
        _write(path, pickle.dumps(serialize_executable.serialize(compiled)))
    return compiled


def _devices(array: jax.Array) -> list[jax.Device]:
    """Those that hold `array`, in the order that its computations count them."""
    sharding = array.sharding
    if isinstance(sharding, jax.sharding.NamedSharding):
        return list(sharding.mesh.devices.flat)
    return sorted(sharding.device_set, key=lambda device: device.id)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: other sessions may look for it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
