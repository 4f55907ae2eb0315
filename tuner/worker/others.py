"""The program's other jitted functions: what is in XLA_FLAGS acts on them too. Each is opened when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from tuner.worker.carry import Carry
from tuner.worker.events import CompileEvents
from tuner.worker.jaxprs import grain_of
from tuner.worker.saved import Saved, put_back
from tuner.worker.session import Part, WorkerSession
from tuner.worker.state import State
from tuner.worker.states import States
from tuner.worker.step import Step, make_step
from tuner.worker.workload import ONLY

__all__ = ["Other", "opened", "other_of", "stood_in", "without_sharing"]


@dataclass(frozen=True)
class Other:
    """One function with the input leaves of a call; a leaf that somebody else may donate is a host copy."""

    step: Step
    leaves: tuple[Any, ...]


def other_of(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Other:
    """`function` as it is called with these arguments. Raises Refused(WORKLOAD) if it can't be jitted again."""
    step = make_step(function, args, kwargs or {})
    return Other(step, tuple(step.inputs.leaves(args, kwargs or {})))


def without_sharing(other: Other, copies: Mapping[int, Saved]) -> Other:
    """`other` with the leaves that the step has too, by `id`, replaced by their host copies: the step may donate them,
    and a device has seldom room for two."""
    return Other(other.step, tuple(copies.get(id(leaf), leaf) for leaf in other.leaves))


def opened(name: str, other: Other, events: CompileEvents) -> WorkerSession:
    """A session of its own for one function. Nothing is threaded: it is called with the same inputs again and again.
    Raises Refused(WORKLOAD) if it can't be traced or returns no array."""
    step = other.step
    leaves = put_back(other.leaves)
    base = step.base()
    args, kwargs = step.inputs.call(leaves)
    traced = step.trace(base, args, kwargs, what=name)
    state = State(step.inputs, leaves, Carry(), grain=grain_of(traced.jaxpr))
    return WorkerSession((Part(ONLY, step, 1.0, {(): base}),), States({ONLY: state}), None, events, adopts=True)


def stood_in(leaves: list[Any], present: list[Any]) -> tuple[Any, ...] | None:
    """`leaves` with each deleted array replaced by the next one of its shape and dtype among `present`; None if there
    is none. A script's step donates the parameters that an evaluation was called with; their successors serve as
    well, in the order in which both have them."""
    waiting: dict[str, list[Any]] = {}
    for leaf in present:
        if isinstance(leaf, jax.Array) and not leaf.is_deleted():
            waiting.setdefault(_kind(leaf), []).append(leaf)
    found = []
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and leaf.is_deleted():
            if not waiting.get(_kind(leaf)):
                return None
            leaf = waiting[_kind(leaf)].pop(0)
        found.append(leaf)
    return tuple(found)


def _kind(leaf: jax.Array) -> str:
    return f"{leaf.dtype}{leaf.shape}"
