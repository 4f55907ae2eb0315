"""Evaluates a traced function in a wider floating dtype than it was written for: the same arithmetic, rounded less.

Converting the inputs alone would not do: a step that casts its parameters to bfloat16 goes on computing in that. Here
every floating value of the trace is wide, and casts to narrower floats do nothing. Operations that don't work in any
dtype (custom calls, kernels, bit casts) get their own dtypes back, and their results are widened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from tuner.worker.jaxprs import body, constants, eps_of

__all__ = ["evaluated", "widened"]

# They hold one jaxpr and do what it does.
_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"})
_CUSTOM = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"})
# Their reducer is a jaxpr of its own; the public functions make it anew.
_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}
_PRECISE = frozenset({"dot_general", "conv_general_dilated"})


def widened(dtype: Any, wide: Any) -> Any:
    """The dtype in which a value of `dtype` is kept: `wide` or its complex twin for coarser floats, else itself."""
    if not jnp.issubdtype(dtype, jnp.inexact) or eps_of(dtype) < eps_of(wide):
        return dtype
    return jnp.result_type(wide, jnp.complex64) if jnp.issubdtype(dtype, jnp.complexfloating) else jnp.dtype(wide)


def evaluated(jaxpr: Any, inputs: Sequence[Any], wide: Any) -> list[Any]:
    """The outputs of `jaxpr` for `inputs`, all floats in `wide`. To be traced; float64 needs x64 to be enabled."""
    values: dict[Any, Any] = {}
    opened = body(jaxpr)

    def read(atom: Any) -> Any:
        return _wide(atom.val, atom, wide) if isinstance(atom, core.Literal) else values[atom]

    given = zip([*opened.constvars, *opened.invars], [*constants(jaxpr), *inputs], strict=True)
    values.update((variable, _wide(value, variable, wide)) for variable, value in given)
    for equation in opened.eqns:
        results = _applied(equation, [read(atom) for atom in equation.invars], wide)
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in opened.outvars]


def _wide(value: Any, atom: Any, wide: Any) -> Any:
    """`value` of `atom` in its dtype, widened. (Under x64 a Python number would come as 64 bits whatever it was.)"""
    if not hasattr(atom.aval, "dtype"):
        return value
    target = widened(atom.aval.dtype, wide)
    return value if target == jax.typeof(value).dtype else lax.convert_element_type(value, target)


def _applied(equation: Any, values: list[Any], wide: Any) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        if params.get("prevent_cse") and params.get("differentiated"):
            # What is to be computed twice stays so.
            values = list(lax.optimization_barrier(tuple(values)))  # type: ignore[no-untyped-call]
        return evaluated(params.get("jaxpr", params.get("call_jaxpr")), values, wide)
    if name in _CUSTOM:
        return evaluated(params.get("call_jaxpr", params.get("fun_jaxpr")), values, wide)
    if name == "scan":
        return _scan(equation, values, wide)
    if name == "while":
        return _while(params, values, wide)
    if name == "cond":
        branches = [lambda *a, branch=branch: tuple(evaluated(branch, a, wide)) for branch in params["branches"]]
        return list(lax.switch(values[0], branches, *values[1:]))
    if name == "convert_element_type":
        return [lax.convert_element_type(values[0], widened(params["new_dtype"], wide))]
    if name == "reduce_precision":
        return values
    if name in _SCATTERS:
        kept = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        return [_SCATTERS[name](*values, **{key: params[key] for key in kept})]
    changed = _wide_params(name, params, wide)
    if _takes_any_dtype(equation, values, changed, wide):
        result = equation.primitive.bind(*values, **changed)
    else:
        result = _as_written(equation, values)
    results = result if equation.primitive.multiple_results else [result]
    return [_wide(value, atom, wide) for value, atom in zip(results, equation.outvars, strict=True)]


def _takes_any_dtype(equation: Any, values: list[Any], params: dict[str, Any], wide: Any) -> bool:
    """Whether the operation gives the same shapes in wide floats. One that holds functions of its own, or says what it
    returns, does not; nor does one that looks at the bits."""
    primitive = equation.primitive
    if any(True for _ in core.jaxprs_in_params(params)):
        return False
    try:
        result = jax.eval_shape(lambda *given: primitive.bind(*given, **params), *values)
    except Exception:
        return False
    found = result if primitive.multiple_results else [result]
    expected = [variable.aval for variable in equation.outvars]
    return len(found) == len(expected) and all(
        (one.shape, one.dtype) == (aval.shape, widened(aval.dtype, wide))
        for one, aval in zip(found, expected, strict=True)
    )


def _wide_params(name: str, params: dict[str, Any], wide: Any) -> dict[str, Any]:
    changed = dict(params)
    for key in ("preferred_element_type", "dtype"):
        if changed.get(key) is not None:
            changed[key] = widened(changed[key], wide)
    if name in _PRECISE:
        changed["precision"] = (lax.Precision.HIGHEST, lax.Precision.HIGHEST)
    return changed


def _as_written(equation: Any, values: list[Any]) -> Any:
    """The operation in the dtypes that it was traced with."""
    narrow = [
        lax.convert_element_type(value, atom.aval.dtype)
        if hasattr(atom.aval, "dtype") and atom.aval.dtype != jax.typeof(value).dtype
        else value
        for atom, value in zip(equation.invars, values, strict=True)
    ]
    return equation.primitive.bind(*narrow, **equation.primitive.get_bind_params(equation.params))


def _scan(equation: Any, values: list[Any], wide: Any) -> list[Any]:
    params, inside = equation.params, body(equation.params["jaxpr"])
    # What is split into rows or stacked of them has one axis more outside than inside. (The parameters that tell these
    # numbers differ between versions of jax.)
    carried = sum(o.aval.shape == i.aval.shape for o, i in zip(equation.outvars, inside.outvars, strict=True))
    split = sum(o.aval.shape != i.aval.shape for o, i in zip(equation.invars, inside.invars, strict=True))
    consts = len(values) - carried - split
    fixed, first, rows = values[:consts], values[consts : consts + carried], values[consts + carried :]

    def turn(state: tuple[Any, ...], row: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        out = evaluated(params["jaxpr"], [*fixed, *state, *row], wide)
        return tuple(out[:carried]), tuple(out[carried:])

    last, stacked = lax.scan(
        turn,
        tuple(first),
        tuple(rows),
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*last, *stacked]


def _while(params: dict[str, Any], values: list[Any], wide: Any) -> list[Any]:
    conditions, bodies = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body = values[:conditions], values[conditions : conditions + bodies]
    last = lax.while_loop(
        lambda state: evaluated(params["cond_jaxpr"], [*of_condition, *state], wide)[0],
        lambda state: tuple(evaluated(params["body_jaxpr"], [*of_body, *state], wide)),
        tuple(values[conditions + bodies :]),
    )
    return list(last)
