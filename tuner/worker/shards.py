"""Arrays that are spread over several processes: this process's part of one, as one host array, and back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

__all__ = ["assembled", "cut", "distinct", "is_spread", "moved", "only_shard", "part", "part_shape"]

_Place = tuple[tuple[int, int], ...]
_Array = np.ndarray[Any, Any]


def is_spread(leaf: Any) -> bool:
    """Whether other processes hold devices of `leaf`, so that its values can't simply be read here."""
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable


def distinct(array: jax.Array) -> list[Any]:
    """This process's shards in the order of their places, one of each place."""
    shards = {_place(shard.index, array.shape): shard for shard in array.addressable_shards}
    return [shards[place] for place in sorted(shards)]


def part(array: jax.Array) -> _Array:
    """This process's part: its distinct shards in the order of their places, joined along axis 0. A copy."""
    return _joined([np.asarray(shard.data) for shard in distinct(array)])


def part_shape(array: jax.Array) -> tuple[int, ...]:
    """The shape of what `part` gives."""
    shards = distinct(array)
    shape: tuple[int, ...] = shards[0].data.shape
    return shape if len(shards) == 1 else (len(shards) * shape[0], *shape[1:])


def cut(whole: _Array, sharding: Any) -> _Array:
    """What `part` of an array with these values and this sharding is."""
    places = {_place(index, whole.shape) for index in _indices(sharding, whole.shape).values()}
    return _joined([whole[tuple(slice(*edge) for edge in place)] for place in sorted(places)])


def assembled(values: _Array, shape: tuple[int, ...], sharding: Any) -> jax.Array:
    """A new array of this (whole) shape, of which `values` is this process's part."""
    indices = {device: _place(index, shape) for device, index in _indices(sharding, shape).items()}
    places = sorted(set(indices.values()))
    shards = dict(zip(places, np.split(values, len(places)) if values.ndim else [values], strict=True))
    # Memory of its own: a device buffer that shares the host's would be written over where it is donated.
    buffers = [jax.device_put(shards[place], device, may_alias=False) for device, place in indices.items()]
    return jax.make_array_from_single_device_arrays(shape, sharding, buffers)


def moved(array: jax.Array, sharding: Any) -> jax.Array:
    """`array` with another sharding. Every process has to call it."""
    result: jax.Array = jax.jit(lambda x: x, out_shardings=sharding)(array)
    return result


def only_shard(array: jax.Array) -> jax.Array | None:
    """This process's part as it lies on a device; None if it lies on several."""
    shards = distinct(array)
    return shards[0].data if len(shards) == 1 else None


def _indices(sharding: Any, shape: tuple[int, ...]) -> dict[Any, tuple[slice, ...]]:
    indices: dict[Any, tuple[slice, ...]] = sharding.addressable_devices_indices_map(shape)
    return indices


def _place(index: tuple[slice, ...], shape: tuple[int, ...]) -> _Place:
    """Where a shard begins and ends along each axis."""
    return tuple(edge.indices(size)[:2] for edge, size in zip(index, shape, strict=True))


def _joined(shards: list[_Array]) -> _Array:
    return np.array(shards[0], copy=True) if len(shards) == 1 else np.concatenate(shards)
