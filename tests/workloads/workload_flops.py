"""Counts what a step computes on its jaxpr: operations of matrix products and convolutions, loops multiplied out.

XLA's own cost analysis counts a loop's body once and library calls not at all. Runs in the children, not in pytest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax


def flops(step: Any, *args: Any) -> int:
    """Multiplications and additions of all products and convolutions in one call of `step`."""
    return _count(jax.make_jaxpr(step)(*args).jaxpr)


def equations(step: Any, *args: Any) -> list[Any]:
    """All equations of the step's jaxpr, in the order of the program, each before what it contains."""
    return list(_equations(jax.make_jaxpr(step)(*args).jaxpr))


def _count(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(_count(inner) for inner in _inner(equation)) + _own(equation)
    return total


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in _inner(equation):
            yield from _equations(inner)


def _inner(equation: Any) -> list[Any]:
    """The jaxprs that an equation runs; of a custom derivative the function alone, not its rules."""
    return [
        getattr(leaf, "jaxpr", leaf)
        for key, value in equation.params.items()
        for leaf in (value if isinstance(value, tuple | list) else (value,))
        if key in ("jaxpr", "call_jaxpr", "branches", "body_jaxpr") and hasattr(leaf, "eqns")
    ]


def _own(equation: Any) -> int:
    out = equation.outvars[0].aval
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * math.prod(out.shape) * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if equation.primitive.name == "conv_general_dilated":
        kernel, numbers = equation.invars[1].aval.shape, equation.params["dimension_numbers"]
        return 2 * math.prod(out.shape) * math.prod(kernel) // kernel[numbers.rhs_spec[0]]
    return 0
