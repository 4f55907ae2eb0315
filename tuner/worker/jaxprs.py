"""Looking into a traced step: the jaxprs inside it, and the floating dtypes that it computes in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax.numpy as jnp
from jax.extend import core

__all__ = ["body", "constants", "eps_of", "grain_of", "inner"]

# Narrower floats hold values that were scaled to fit; their rounding is far coarser than what reaches a result.
_LEAST_MANTISSA = 2.0**-7
_CONTRACTIONS = frozenset({"dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated", "pallas_call"})


def body(jaxpr: Any) -> Any:
    """The open jaxpr of a closed one, or itself (from jax 0.12 on there is but one kind)."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def constants(jaxpr: Any) -> tuple[Any, ...]:
    """What a closed jaxpr closes over."""
    return tuple(getattr(jaxpr, "consts", ()))


def inner(jaxpr: Any) -> Iterator[Any]:
    """`jaxpr` and all jaxprs inside its operations."""
    yield body(jaxpr)
    for one in core.subjaxprs(body(jaxpr)):
        yield from inner(one)


def eps_of(dtype: Any) -> float:
    """Distance from 1 to the next larger number of a floating or complex `dtype`."""
    return float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def grain_of(jaxpr: Any) -> float:
    """The eps of the dtype that the program computes in: the coarsest that its contractions take, or, without any, that
    its operations give. bfloat16 is the coarsest that counts; 0.0 without floats.

    Contractions, because a narrow float elsewhere may be no more than how a result is stored.
    """
    equations = [equation for one in inner(jaxpr) for equation in one.eqns]
    taken = [atom.aval for e in equations if e.primitive.name in _CONTRACTIONS for atom in e.invars]
    given = [variable.aval for e in equations for variable in e.outvars]
    return _coarsest(taken) or _coarsest(given)


def _coarsest(avals: Iterable[Any]) -> float:
    dtypes = {aval.dtype for aval in avals if hasattr(aval, "dtype")}
    floats = [eps_of(dtype) for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
    return max((eps for eps in floats if eps <= _LEAST_MANTISSA), default=0.0)
