"""Host copies of arrays: enough to put an array back as it was, on the same devices, whatever was donated since."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner.worker import internals, shards

__all__ = ["Saved", "as_array", "is_key", "put_back", "restored", "saved", "seen", "to_host", "words_of"]


@dataclass(frozen=True)
class Saved:
    """One array. `sharding` None: not committed to a device. `key_impl`: the array holds PRNG keys of this kind.
    `spread`: the whole shape of an array that other processes hold parts of; `data` is this process's part then (see
    `shards`)."""

    data: np.ndarray[Any, Any]
    sharding: Any
    weak: bool
    key_impl: str | None
    spread: tuple[int, ...] | None = None

    def placed_like(self, array: jax.Array) -> Saved:
        """The same values, placed and typed as `array` is."""
        if self.spread is None and not shards.is_spread(array):
            return Saved(self.data, _sharding(array), _weak(array), self.key_impl)
        words = words_of(array)
        if self.spread is None:
            data = shards.cut(self.data, words.sharding)
        else:
            data = shards.part(shards.moved(shards.assembled(self.data, self.spread, self.sharding), words.sharding))
        return Saved(data, words.sharding, _weak(array), self.key_impl, words.shape)


def is_key(leaf: Any) -> bool:
    """Whether `leaf` holds typed PRNG keys."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def to_host(leaves: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The values of each leaf, or this process's part of it, in memory of their own.

    Leaves and shards are read side by side: fresh memory takes one core longer to fill than a device to send."""
    words = [words_of(leaf) for leaf in leaves]  # of keys a computation, which a gang's ranks start in one order
    values: list[Any] = [None] * len(words)
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="tuner-read") as pool:
        done = [pool.submit(piece) for i, array in enumerate(words) for piece in _pieces(array, values, i)]
        for one in done:
            one.result()
    return values


def _pieces(words: Any, values: list[Any], i: int) -> list[Callable[[], None]]:
    """What has to be done, in any order, for `values[i]` to be those of `words`."""

    def whole() -> None:
        values[i] = shards.part(words) if shards.is_spread(words) else _own(words)

    parts = [] if shards.is_spread(words) or not isinstance(words, jax.Array) else shards.distinct(words)
    if len(parts) < 2:
        return [whole]
    values[i] = together = np.empty(words.shape, words.dtype)

    def part(shard: Any) -> None:
        together[shard.index] = np.asarray(shard.data)

    return [functools.partial(part, shard) for shard in parts]


def _own(words: Any) -> np.ndarray[Any, Any]:
    """On the CPU, and of arrays in the host's memory, `np.asarray` shows the device's buffer, which donation then
    writes over. What comes from an accelerator's memory is a copy already."""
    return np.asarray(words) if _far(words) else np.array(words, copy=True)


def _far(words: Any) -> bool:
    """Whether `words` lie in the memory of an accelerator."""
    if not isinstance(words, jax.Array):
        return False
    platforms = {device.platform for device in words.devices()}
    return "cpu" not in platforms and words.sharding.memory_kind == "device"


def seen(leaf: Any) -> np.ndarray[Any, Any]:
    """The values of `leaf`, or this process's part of it, to be looked at before anything else runs: perhaps the
    device's own buffer."""
    words = words_of(leaf)
    return shards.part(words) if shards.is_spread(words) else np.asarray(words)


def saved(arrays: Sequence[jax.Array]) -> list[Saved]:
    """Each of `arrays`, copied to the host."""
    return [_saved(array, values) for array, values in zip(arrays, to_host(arrays), strict=True)]


def _saved(array: jax.Array, values: np.ndarray[Any, Any]) -> Saved:
    impl = str(jax.random.key_impl(array)) if is_key(array) else None
    if shards.is_spread(array):
        words = words_of(array)
        return Saved(values, words.sharding, _weak(array), impl, words.shape)
    return Saved(values, _sharding(array), _weak(array), impl)


def restored(copies: Sequence[Saved]) -> list[jax.Array]:
    """New arrays on the device; the host copies stay their own (no aliasing, or donation would write into them)."""
    together: dict[Any, list[int]] = {}  # by sharding: one call for many takes half as long as one for each
    for i, copy in enumerate(copies):
        if copy.spread is None and copy.key_impl is None:
            together.setdefault(copy.sharding, []).append(i)
    arrays: dict[int, jax.Array] = {}
    for sharding, indices in together.items():
        sent = jax.device_put([copies[i].data for i in indices], sharding, may_alias=False)
        arrays.update(zip(indices, sent, strict=True))
    arrays |= {i: _restored(copy) for i, copy in enumerate(copies) if i not in arrays}
    return [internals.as_weak(arrays[i]) if copy.weak else arrays[i] for i, copy in enumerate(copies)]


def put_back(leaves: Sequence[Any]) -> list[Any]:
    """`leaves` with each `Saved` among them restored."""
    arrays = iter(restored([leaf for leaf in leaves if isinstance(leaf, Saved)]))
    return [next(arrays) if isinstance(leaf, Saved) else leaf for leaf in leaves]


def _restored(copy: Saved) -> jax.Array:
    """One that other processes hold parts of, or of keys."""
    if copy.spread is not None:
        whole = shards.assembled(copy.data, copy.spread, copy.sharding)
        return whole if copy.key_impl is None else jax.random.wrap_key_data(whole, impl=copy.key_impl)
    keys: jax.Array = jax.random.wrap_key_data(jax.device_put(copy.data, may_alias=False), impl=copy.key_impl)
    return keys if copy.sharding is None else jax.device_put(keys, copy.sharding)


def as_array(leaf: Any) -> jax.Array:
    """`leaf` (a Python scalar, a NumPy array) as the array that jit makes of it."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)


def words_of(leaf: Any) -> Any:
    """`leaf`, or the raw words of PRNG keys."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _sharding(array: jax.Array) -> Any:
    return array.sharding if array.committed else None


def _weak(array: jax.Array) -> bool:
    return bool(getattr(jax.typeof(array), "weak_type", False))
