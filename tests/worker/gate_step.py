"""A training step with planted faults and harmless variants, gated through the worker's own code; prints what passed.

``python gate_step.py FIRST_SEED END_SEED [VARIANT…]`` needs jax and the tuner. One compile serves all faults:
a host scalar, changed in place between two comparisons, selects one. Prints one JSON object a seed and dtype: `passed`
(fault → whether the gate let it pass), `reasons` (variant → what it was refused for, "" if it passed), `chances`
(variant → the second chance, where the first is refused to all).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner.measure import COARSE_NUDGE, Tolerance, judge, second_chance, tolerances
from tuner.protocol.messages import Compile, Compiled, Numerics, NumericsReply, Variant
from tuner.worker import open as opening
from tuner.worker.compile import compile_variants
from tuner.worker.events import CompileEvents
from tuner.worker.numerics import check_numerics
from tuner.worker.session import WorkerSession

STEPS = 8
WIDTH, WORDS = 32, 64
RATE, DECAY = 1e-3, 0.9
F32, BF16 = jnp.float32, jnp.bfloat16

State = dict[str, Any]
Matmul = Callable[[jax.Array, jax.Array], jax.Array]


def blocked(a: jax.Array, b: jax.Array) -> jax.Array:
    """The same product by another algorithm: four blocks of the contraction, added up from the last."""
    size = a.shape[-1] // 4
    parts = [
        jnp.matmul(a[..., i : i + size], b[i : i + size], preferred_element_type=F32)
        for i in range(0, a.shape[-1], size)
    ]
    return sum(reversed(parts[:-1]), parts[-1]).astype(a.dtype)


def turned(a: jax.Array, b: jax.Array) -> jax.Array:
    """The same sums in reverse order."""
    return a[..., ::-1] @ b[::-1]


def rough(a: jax.Array, b: jax.Array) -> jax.Array:
    """bfloat16 operands and sums, whatever is asked for."""
    return jnp.matmul(a.astype(BF16), b.astype(BF16), preferred_element_type=BF16).astype(a.dtype)


def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(F32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def loss_of(params: State, tokens: jax.Array, dtype: Any, matmul: Matmul) -> tuple[jax.Array, jax.Array]:
    """One transformer block in `dtype`; the loss and the logits in float32."""
    p = jax.tree.map(lambda a: a.astype(dtype), params)
    x = p["words"][tokens[:, :-1]]
    length, width = x.shape[1:]
    q, k, v = jnp.split(matmul(normed(x, p["norm_1"]), p["qkv"]), 3, -1)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), jnp.einsum("bqd,bkd->bqk", q, k) / width**0.5, -1e9)
    x = x + matmul(jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores.astype(F32), -1).astype(dtype), v), p["out"])
    x = x + matmul(jax.nn.gelu(matmul(normed(x, p["norm_2"]), p["up"])), p["down"])
    logits = matmul(x, p["words"].T).astype(F32)
    wanted = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - wanted), logits


def changed(leaf: str, change: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., Any]:
    """A fault in one parameter: `change` gets it as it was and as it should be."""

    def fault(old: State, new: State, out: State) -> tuple[State, State]:
        params = {**new["params"], leaf: change(old["params"][leaf], new["params"][leaf])}
        return {**new, "params": params}, out

    return fault


def swapped(old: State, new: State, out: State) -> tuple[State, State]:
    params = new["params"]
    return {**new, "params": {**params, "norm_1": params["norm_2"], "norm_2": params["norm_1"]}}, out


OUTPUTS: dict[str, Callable[..., Any]] = {
    "slice x1.01": changed("out", lambda old, new: new.at[3].multiply(1.01)),
    "column x1.01": changed("up", lambda old, new: new.at[:, 5].multiply(1.01)),
    "a NaN": changed("out", lambda old, new: new.at[3, 4].set(jnp.nan)),
    "an infinity turned finite": lambda old, new, out: (new, {**out, "mask": jnp.nan_to_num(out["mask"])}),
    "two leaves swapped": swapped,
    "an axis reversed": changed("out", lambda old, new: new[::-1]),
    "a vector rolled": changed("norm_1", lambda old, new: jnp.roll(new, 1)),
    "a stale matrix": changed("out", lambda old, new: old),
    "a stale vector": changed("norm_1", lambda old, new: old),
    "a stale moment": lambda old, new, out: ({**new, "m": {**new["m"], "out": old["m"]["out"]}}, out),
    "a stale count": lambda old, new, out: ({**new, "count": old["count"]}, out),
}
"""What goes wrong with the results of a right step."""

GRADIENTS: dict[str, Callable[..., Any]] = {
    "a gradient x1.5 from the third step on": lambda g, n: {**g, "out": jnp.where(n >= 3, 1.5, 1.0) * g["out"]},
    "a gradient with the wrong sign from the third step on": lambda g, n: {
        **g,
        "norm_1": jnp.where(n >= 3, -1.0, 1.0) * g["norm_1"],
    },
    "a gradient missing": lambda g, n: {**g, "norm_2": 0 * g["norm_2"]},
    "one unit's gradient missing": lambda g, n: {**g, "down": g["down"].at[3].set(0)},
}
"""What goes wrong inside."""

FAULTS = ("none", *OUTPUTS, *GRADIENTS)


def chosen(fault: jax.Array, name: str, wrong: Any, right: Any) -> Any:
    """`right`, or `wrong` if `fault` is the one of this name; leaves that both share cost nothing."""
    wanted = fault == FAULTS.index(name)
    return jax.tree.map(lambda w, r: r if w is r else jnp.where(wanted, w, r), wrong, right)


def initial(seed: int, stored: Any) -> tuple[State, jax.Array]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(shape[0] ** -0.5 * rng.standard_normal(shape), stored)

    params = {
        "words": normal(WORDS, WIDTH),
        "norm_1": jnp.ones(WIDTH, stored),
        "qkv": normal(WIDTH, 3 * WIDTH),
        "out": normal(WIDTH, WIDTH),
        "norm_2": jnp.ones(WIDTH, stored),
        "up": normal(WIDTH, 4 * WIDTH),
        "down": normal(4 * WIDTH, WIDTH),
    }
    zeros = {name: jnp.zeros(leaf.shape, F32) for name, leaf in params.items()}
    state = {"params": params, "m": zeros, "v": jax.tree.map(jnp.array, zeros), "count": jnp.int32(0)}
    return state, jnp.asarray(rng.integers(0, WORDS, (4, 17)), jnp.int32)


def workload(
    seed: int, *, dtype: Any, matmul: Matmul = jnp.matmul, fault: np.ndarray[Any, Any] | None = None
) -> dict[str, Any]:
    """Adam on one transformer block, float32 parameters, arithmetic in `dtype`. `fault`: which of `FAULTS` it has."""

    def step(state: State, tokens: jax.Array, *fault: jax.Array) -> tuple[State, State]:
        grad = jax.value_and_grad(partial(loss_of, dtype=dtype, matmul=matmul), has_aux=True)
        (loss, logits), grads = grad(state["params"], tokens)
        count = state["count"] + 1
        for name, inside in GRADIENTS.items() if fault else ():
            grads = chosen(*fault, name, inside(grads, count), grads)
        m = jax.tree.map(lambda m, g: DECAY * m + (1 - DECAY) * g, state["m"], grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, state["v"], grads)
        rate = RATE * jnp.sqrt(1 - 0.99**count) / (1 - DECAY**count)
        params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), state["params"], m, v)
        new = {"params": params, "m": m, "v": v, "count": count}
        mask = jnp.where(jnp.arange(8) < 2, -jnp.inf, jnp.exp(loss))
        out = {"loss": loss, "mask": mask, "words": jnp.argmax(logits, -1)}
        results = new, out
        for name, outside in OUTPUTS.items() if fault else ():
            results = chosen(*fault, name, outside(state, *results), results)
        return results

    return {
        "step": jax.jit(step, donate_argnums=0),
        "args": (*initial(seed, F32), *([] if fault is None else [fault])),
        "carry": 1,
    }


def session_of(*args: Any, **kwargs: Any) -> WorkerSession:
    session = opening.open_build(workload(*args, **kwargs), CompileEvents()).session
    compiled(session, "control")
    return session


def compiled(session: WorkerSession, handle: str, **options: Any) -> str:
    (made,) = compile_variants(session, Compile(variants=(Variant(id=handle, compiler_options=options),))).results
    assert isinstance(made, Compiled), made
    return handle


def asked(session: WorkerSession, handle: str, reference: Path, **fields: Any) -> NumericsReply:
    return check_numerics(session, Numerics(id=handle, steps=STEPS, reference=str(reference), **fields))


Made = tuple[dict[str, Any], Matmul | None, Any]

VARIANTS: dict[str, Made] = {
    "another vector width": ({"xla_cpu_prefer_vector_width": 512}, None, None),
    "excess precision off": ({"xla_allow_excess_precision": False}, None, None),
    "blocked": ({}, blocked, None),
    "turned": ({}, turned, None),
    "rough": ({}, rough, None),
    "exact": ({}, jnp.matmul, F32),
}
"""Options; or another matmul, perhaps in another dtype."""

USUAL = {F32: ("blocked", "rough"), BF16: ("excess precision off", "exact")}


def gated(dtype: Any, seed: int, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    fault = np.zeros((), np.int32)
    reference, precise = folder / "reference.bin", folder / "precise.bin"
    session = session_of(seed, fault=fault, dtype=dtype)
    asked(session, "control", reference, save=True)
    nulls = [asked(session, "control", reference, nudge=draw) for draw in (0, 1, 2)]
    nulls.append(asked(session, compiled(session, "benign", xla_cpu_prefer_vector_width=128), reference))
    limits = tolerances(nulls, asked(session, "control", reference, nudge=1, nudge_size=COARSE_NUDGE))

    passed: dict[str, bool] = {}
    for index, name in enumerate(FAULTS):
        fault[...] = index
        passed[name] = judge(asked(session, "control", reference), limits)[0]
    fault[...] = 0

    variants = {}
    for name in names:
        options, matmul, other = VARIANTS[name]
        if matmul is None:
            variants[name] = session, compiled(session, name, **options)
        else:
            variants[name] = session_of(seed, dtype=other or dtype, matmul=matmul), "control"
    told = asked(session_of(seed, dtype=dtype), "control", precise, save=True, precise=True).precision
    control = asked(session, "control", precise, precise=True)
    nothing = [Tolerance(path=t.path, steps=t.steps, l2=-1.0, slope=-1.0) for t in limits]  # all is refused
    reasons, chances = {}, {}
    for name, (other, handle) in variants.items():
        reply, near = asked(other, handle, reference), asked(other, handle, precise, precise=True)
        reasons[name] = judge(reply, limits)[1]
        chances[name] = second_chance(reply, nothing, precise=near, control=control)
    return {"passed": passed, "reasons": reasons, "precision": told, "chances": chances}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        for number in range(int(sys.argv[1]), int(sys.argv[2])):
            for kind in (F32, BF16):
                found = gated(kind, number, Path(work), sys.argv[3:] or USUAL[kind])
                print(json.dumps({"dtype": kind.__name__, "seed": number, **found}), flush=True)
