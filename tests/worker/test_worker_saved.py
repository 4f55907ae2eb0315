"""Host copies of arrays: their values whatever they are placed like, in memory of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.worker import state as state_of
from tuner.worker.carry import Carry
from tuner.worker.saved import restored, saved, seen, to_host
from tuner.worker.state import State
from tuner.worker.step import make_step

pytestmark = pytest.mark.jax

ROOT = Path(__file__).parents[2]

# On four devices: the same everywhere, half and half, split along either axis or both; what is donated is written over.
SPREAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from tuner.worker.saved import restored, saved, to_host

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
specs = [P(), P("a"), P(None, "b"), P("a", "b"), P("b", "a"), P(("a", "b"), None)]
given = [np.arange(64.0).reshape(8, 8) + i for i in range(len(specs))]
arrays = [jax.device_put(values, NamedSharding(mesh, spec)) for values, spec in zip(given, specs)]
arrays.append(jax.random.key(3))
copies, values = saved(arrays), to_host(arrays)
overwrite = jax.jit(lambda x: x * 0, donate_argnums=0)
for one in arrays[:-1]:
    jax.block_until_ready(overwrite(one))
assert all(np.array_equal(value, one) for value, one in zip(values, given))
assert all(np.array_equal(copy.data, one) for copy, one in zip(copies, given))
again = restored(copies)
assert [one.sharding.spec for one in again[:-1]] == specs
assert all(np.array_equal(one, values) for one, values in zip(again, given))
assert np.array_equal(jax.random.key_data(again[-1]), jax.random.key_data(jax.random.key(3)))
"""


def test_arrays_over_several_devices_are_read_whole_and_put_back() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SPREAD], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_copy_outlives_what_it_was_made_of_and_a_look_is_the_same() -> None:
    arrays = [jnp.arange(6.0).reshape(2, 3), jnp.float32(2), jnp.ones(3, jnp.bfloat16)]
    copies = saved(arrays)
    assert all(np.array_equal(seen(array), values) for array, values in zip(arrays, to_host(arrays), strict=True))
    jax.block_until_ready(jax.jit(lambda x: x + 1, donate_argnums=0)(arrays[0]))  # type: ignore[no-untyped-call]
    assert copies[0].data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [array.dtype for array in restored(copies)] == ["float32", "float32", "bfloat16"]


def test_a_nudge_is_drawn_once_for_the_inputs_and_for_what_it_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[object] = []
    real = state_of.nudged
    monkeypatch.setattr(state_of, "nudged", lambda values, seed, **kw: drawn.append(seed) or real(values, seed, **kw))
    leaf = jnp.ones(4)
    step = make_step(jax.jit(lambda x: (x + 1, x.sum())), (leaf,), {})
    state = State(step.inputs, [leaf], Carry(((0, 0),), ((0, 0),)))
    state.reset(nudge=2)
    displaced = state.starts(2, nudge=2)
    assert np.array_equal(displaced[0], state.call()[0][0])
    assert displaced[1] is None
    assert drawn == [(2, 0)]
    assert np.array_equal(state.starts(2)[0], np.ones(4))
    state.reset(nudge=2, size=16.0)
    assert drawn == [(2, 0)] * 2
    assert not np.array_equal(state.starts(2, nudge=2, size=16.0)[0], displaced[0])
    state.reset()
    assert np.array_equal(state.call()[0][0], np.ones(4))
    assert drawn == [(2, 0)] * 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int32"])
def test_inputs_of_another_process_that_are_the_same_lose_no_state(dtype: str) -> None:
    """Also where a value is none: NaN is unequal to itself."""
    values = np.array([1, 2, 3], jnp.dtype(dtype))
    if dtype != "int32":
        values[0] = np.nan
    step = make_step(jax.jit(lambda x, y: (x + 1, y[1])), (jnp.ones(4), values), {})
    state = State(step.inputs, [jnp.ones(4), values], Carry(((0, 0),), ((0, 0),)))
    _, theirs = state.inputs(["x", "y"])
    before = state.call()
    other = values.copy()
    state.adopt([state.inputs(["x", "y"])[0], replace(theirs, data=other)])
    assert state.call() is before
    other[1] = 5
    state.adopt([state.inputs(["x", "y"])[0], replace(theirs, data=other)])
    assert state.call()[0][1][1] == 5
