"""A high-precision reference: the steps of the workload, run in a wider floating dtype from the same initial state."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused, first_line
from tuner.worker.reference import Leaf, Reference, collected
from tuner.worker.session import Part, WorkerSession
from tuner.worker.state import State
from tuner.worker.upcast import evaluated
from tuner.worker.wait import wait
from tuner.worker.workload import ONLY

__all__ = ["precise_reference"]

# What is tried, in this order. An accelerator has float64 at a fraction of its speed, or in software.
_WIDTHS = {"cpu": ("float64", "float32"), "other": ("float32",)}
# It runs a few times: looking for its quickest kernels takes a minute, and the library's are as precise as any.
_PLAIN = {"gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}}


@dataclass(frozen=True)
class _Traced:
    """One step's operations from input leaves to output leaves, and the tree of its outputs."""

    state: State
    jaxpr: Any
    tree: Any


def precise_reference(session: WorkerSession, steps: int) -> Reference:
    """The outputs after one and after `steps` steps, computed as precisely as can be had here.

    The live state is lost. Raises Refused(RUNTIME), saying why, if no wider dtype works.
    """
    if session.gang is not None:
        raise Refused(FailureClass.RUNTIME, "the step can't be run more precisely over several processes")
    refusals = []
    for width in _WIDTHS.get(session.platform, _WIDTHS["other"]):
        try:
            # Traced as it was written: under x64 it would be another program.
            traced = {part.name: _traced(part, session.state.parts[part.name]) for part in session.parts}
            with jax.enable_x64(True) if width == "float64" else contextlib.nullcontext():
                options = _PLAIN.get(session.platform, {})
                return Reference(_horizons(traced, steps, jnp.dtype(width), options), width)
        except Exception as error:
            refusals.append(f"{width}: {first_line(error)}")
        finally:
            session.state.lose()
    raise Refused(FailureClass.RUNTIME, f"the step can't be run more precisely ({'; '.join(refusals)})")


def _traced(part: Part, state: State) -> _Traced:
    step = part.step
    args, kwargs = state.call()
    plain = step.bind(step.jit(part.bases[()], {}))
    tree: Any = None

    def flat(leaves: list[Any]) -> list[Any]:
        nonlocal tree
        given, named = step.inputs.call(leaves)
        out, tree = jax.tree.flatten(plain(*given, **named))
        return list(out)

    jaxpr = jax.make_jaxpr(flat)(step.inputs.leaves(args, kwargs))
    return _Traced(state, jaxpr, tree)


def _horizons(
    traced: Mapping[str, _Traced], steps: int, wide: Any, options: Mapping[str, Any]
) -> dict[int, tuple[Leaf, ...]]:
    outputs: dict[int, dict[str, Any]] = {n: {} for n in (1, steps)}
    for name, one in traced.items():
        for n, out in _outputs(one, steps, wide, options).items():
            outputs[n][name] = out
    return {n: collected(by_name.get(ONLY, by_name)) for n, by_name in outputs.items()}


def _outputs(traced: _Traced, steps: int, wide: Any, options: Mapping[str, Any]) -> dict[int, Any]:
    """One step's outputs after one and after `steps` steps."""
    function: Any = jax.jit(lambda leaves: evaluated(traced.jaxpr, leaves, wide), compiler_options=dict(options))
    try:
        every = enumerate(traced.state.elsewhere(lambda leaves: wait(function(leaves)), steps), start=1)
        return {n: jax.tree.unflatten(traced.tree, leaves) for n, leaves in every if n in (1, steps)}
    finally:
        function.clear_cache()
