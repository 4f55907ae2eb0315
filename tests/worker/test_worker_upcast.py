"""Steps evaluated in a wider dtype than they were written for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tuner.worker.jaxprs import grain_of

# Every kind of operation that is treated in a way of its own, and a few that must run as written.
CODE = """
import json, jax, jax.numpy as jnp, numpy as np
from tuner.worker.upcast import evaluated

@jax.custom_vjp
def own_gradient(x): return jnp.sin(x)
own_gradient.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))

@jax.custom_jvp
def own_tangent(x): return 3 * x
own_tangent.defjvp(lambda p, t: (3 * p[0], 3 * t[0]))

def loss(x):
    low = x.astype(jnp.bfloat16)
    total, _ = jax.lax.scan(jax.checkpoint(lambda c, r: (c + jnp.sin(r).sum(), c)), 0.0, x)
    return jnp.tanh(low @ low.T).astype(jnp.float32).sum() + own_gradient(x).sum() + own_tangent(x).sum() + total

def step(x, count):
    n, grown = jax.lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, 1.1 * c[1]), (0, x))
    chosen = jax.lax.cond(grown.sum() > 1e9, jnp.sin, jnp.cos, grown)
    key, other = jax.random.split(jax.random.key(0))
    return {
        "grad": jax.grad(loss)(x), "chosen": chosen, "n": n, "noise": jax.random.normal(other, (4,)),
        "scattered": jnp.zeros(5).at[jnp.array([1, 1, 2])].add(x[0, :3]), "stored": x.astype(jnp.bfloat16),
        "solved": jnp.linalg.solve(9 * jnp.eye(6) + x @ x.T, x), "sorted": jnp.sort(x), "best": jnp.argmax(x, -1),
        "fft": jnp.fft.rfft(x), "pool": jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "VALID"),
        "conv": jax.lax.conv(x[None, None], jnp.ones((1, 1, 2, 2)), (1, 1), "SAME"),
    }

x = jnp.asarray(np.random.default_rng(0).standard_normal((6, 8)), jnp.float32)
flat = lambda leaves: jax.tree.leaves(step(*leaves))
names = sorted(jax.eval_shape(step, x, 3))
traced, plain = jax.make_jaxpr(flat)([x, 3]), flat([x, 3])
told = {}
for wide in ("float64", "float32"):
    with jax.enable_x64(wide == "float64"):
        found = jax.jit(lambda *given: evaluated(traced, given, jnp.dtype(wide)))(x, 3)
        told[wide] = {
            name: [str(wider.dtype), float(np.max(np.abs(np.asarray(wider) - np.asarray(own, wider.dtype))))]
            for name, own, wider in zip(names, plain, found, strict=True)
        }
assert not jax.config.jax_enable_x64
print(json.dumps(told))
"""


@pytest.mark.jax
def test_every_float_is_wide_and_integers_and_random_bits_are_what_they_were() -> None:
    env = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))} | {"JAX_PLATFORMS": "cpu"}
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for wide, found in told.items():
        kept = {"n": "int32", "best": "int32", "fft": {"float64": "complex128", "float32": "complex64"}[wide]}
        assert {name: dtype for name, (dtype, _) in found.items()} == {**dict.fromkeys(found, wide), **kept}
        assert found["n"][1] == found["best"][1] == 0
        assert all(error < 1e-5 for name, (_, error) in found.items() if name not in ("grad", "stored"))
        assert 1e-4 < found["stored"][1] < 0.02, "nothing was rounded to bfloat16"
        assert 1e-4 < found["grad"][1] < 0.2, "not even inside"
    assert abs(told["float64"]["grad"][1] - told["float32"]["grad"][1]) < 1e-5


def test_the_grain_is_that_of_what_is_multiplied() -> None:
    x = jnp.ones((4, 4))

    def grain(function: object) -> float:
        return grain_of(jax.make_jaxpr(function)(x))  # type: ignore[arg-type]

    def bf16(a: jax.Array) -> jax.Array:
        return a.astype(jnp.bfloat16)

    assert grain(lambda x: x @ x) == 2.0**-23
    assert grain(lambda x: bf16(x) @ bf16(x)) == 2.0**-7
    assert grain(jax.jit(lambda x: jax.lax.scan(lambda c, r: (c, bf16(r) @ bf16(c)), x, x)[1])) == 2.0**-7
    assert grain(lambda x: bf16(x @ x)) == 2.0**-23, "no more than how it is stored"
    assert grain(lambda x: bf16(x) * 2) == 2.0**-7
    assert grain(lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32) @ x) == 2.0**-23
    assert grain(lambda x: jnp.arange(3)) == 0.0
