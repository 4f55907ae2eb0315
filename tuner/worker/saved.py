"""Host copies of arrays: enough to put an array back as it was, on the same devices, whatever was donated since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner.worker import internals, shards

__all__ = ["Saved", "as_array", "is_key", "restored", "saved", "to_host", "words_of"]


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


def to_host(leaf: Any) -> np.ndarray[Any, Any]:
    """The values of `leaf`, or this process's part of it, in memory of their own. On the CPU `np.asarray` shows the
    device's buffer, which donation then writes over."""
    words = words_of(leaf)
    return shards.part(words) if shards.is_spread(words) else np.array(words, copy=True)


def saved(array: jax.Array) -> Saved:
    """`array`, copied to the host."""
    impl = str(jax.random.key_impl(array)) if is_key(array) else None
    if shards.is_spread(array):
        words = words_of(array)
        return Saved(shards.part(words), words.sharding, _weak(array), impl, words.shape)
    return Saved(to_host(array), _sharding(array), _weak(array), impl)


def restored(copy: Saved) -> jax.Array:
    """A new array on the device; the host copy stays its own (no aliasing, or donation would write into it)."""
    if copy.spread is not None:
        whole = shards.assembled(copy.data, copy.spread, copy.sharding)
        if copy.key_impl is not None:
            whole = jax.random.wrap_key_data(whole, impl=copy.key_impl)
        return internals.as_weak(whole) if copy.weak else whole
    if copy.key_impl is not None:
        keys: jax.Array = jax.random.wrap_key_data(jax.device_put(copy.data, may_alias=False), impl=copy.key_impl)
        return keys if copy.sharding is None else jax.device_put(keys, copy.sharding)
    array: jax.Array = jax.device_put(copy.data, copy.sharding, may_alias=False)
    return internals.as_weak(array) if copy.weak else array


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
