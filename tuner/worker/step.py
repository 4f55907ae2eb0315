"""A step to be tuned: what the workload handed over, unwrapped so that it can be jitted again with other options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tuner.protocol.failure import FailureClass
from tuner.worker import internals
from tuner.worker.failures import Refused, a_type, first_line

__all__ = ["Inputs", "Step", "make_step"]

_HIDING = ("equinox", "flax", "jax")  # libraries that put objects of their own around what they jit
_AHEAD_OF_TIME = (jax.stages.Compiled, jax.stages.Lowered, jax.stages.Traced)


@dataclass(frozen=True)
class Inputs:
    """How the step's arguments fall apart into array leaves, static arguments left out, and go together again."""

    tree: Any
    paths: tuple[str, ...]
    static_args: Mapping[int, Any]
    static_kwargs: Mapping[str, Any]

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's dynamic arguments."""
        return jax.tree.leaves(self._dynamic(args, kwargs))

    def call(self, leaves: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with these leaves."""
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        if self.static_args:
            args = tuple(self.static_args.get(i, arg) for i, arg in enumerate(args))
        return args, {**kwargs, **self.static_kwargs}

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """`args` with None in place of static ones (a tree without leaves)."""
        return tuple(None if i in self.static_args else arg for i, arg in enumerate(args))

    def _dynamic(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        return self.arguments(args), {k: v for k, v in kwargs.items() if k not in self.static_kwargs}


@dataclass(frozen=True)
class Step:
    """`function` is what was jitted, or is to be. A step holds no arrays but bound ones.

    `info`: the arguments of its `jax.jit`. `bound_args`/`bound_kwargs`: what a partial or a method put in front.
    `donated`: positions of the input leaves that `jax.jit` was told to donate.
    """

    name: str
    function: Callable[..., Any]
    info: Any
    bound_args: tuple[Any, ...]
    bound_kwargs: Mapping[str, Any]
    inputs: Inputs
    donated: frozenset[int]

    def base(self) -> Callable[..., Any]:
        """A new function object that does the step. Everything jitted from one base is traced once, whatever its
        compiler options. Its name is the user's: the module's name is part of the cache key."""
        function = self.function

        def base(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        functools.update_wrapper(base, function)
        base.__name__ = self.name
        return base

    def jit(self, base: Callable[..., Any], compiler_options: Mapping[str, Any]) -> Any:
        """`base` jitted as the workload jits its step, with these compiler options on top."""
        return internals.rejit(base, self.info, compiler_options)

    def bind(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` (jitted, or its `lower`) with the bound arguments in front."""
        if self.bound_args or self.bound_kwargs:
            return functools.partial(function, *self.bound_args, **self.bound_kwargs)
        return function

    def trace(self, base: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, what: str) -> Any:
        """The trace of `base`, called so: what comes out of it (shapes and dtypes), and its operations. `what` the step
        is called in messages. Raises Refused(WORKLOAD) if it can't be traced, or if nothing comes out."""
        try:
            traced = self.bind(self.jit(base, {}).trace)(*args, **kwargs)
        except Exception as error:
            raise _refused(f"{what} can't be traced: {first_line(error)}") from error
        if not jax.tree.leaves(traced.out_info):
            raise _refused(
                f"{what} returns no array: XLA leaves out what nobody gets, and there is nothing to wait for or to "
                "compare: return what it computes"
            )
        return traced


def make_step(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step:
    """`function`, called as ``function(*args, **kwargs)``, made ready for being jitted again and again.

    `function` may be plain or jitted; a jitted one keeps its static and donated arguments, shardings and own options.
    Raises Refused(WORKLOAD) if it can't be stepped.
    """
    if isinstance(function, _AHEAD_OF_TIME):
        raise _refused(
            f"the step is a {type(function).__name__} object, compiled with fixed options: "
            "hand over the jitted function itself"
        )
    if not callable(function):
        raise _refused(f"the step is not callable: it is {a_type(function)}")
    inner = _innermost(function)
    if not internals.is_jitted(inner) and hasattr(inner, "lower") and (library := _library(inner)) in _HIDING:
        raise _refused(
            f"the step is {a_type(inner)} of {library}, which hides what it jits: "
            "hand over a function of arrays under jax.jit (equinox.partition and flax.nnx.split make arrays of a "
            "model), or tune the script that calls it, without build()"
        )
    function, bound_args, bound_kwargs = _unbound(function)
    info = internals.jit_info(function if internals.is_jitted(function) else jax.jit(function))
    plain = internals.unjitted(function) if internals.is_jitted(function) else function
    inputs = _inputs(info, len(bound_args), args, kwargs)
    _check_leaves(inputs, inputs.leaves(args, kwargs))
    donated = _donated(info, len(bound_args), inputs, args, kwargs)
    return Step(_name(plain), plain, info, bound_args, bound_kwargs, inputs, donated)


def _unbound(function: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A partial or bound method *of a jitted function*, taken apart: jitting around it would lose its donation."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    inner = function
    while True:
        if isinstance(inner, functools.partial):
            args, kwargs = inner.args + args, {**inner.keywords, **kwargs}
            inner = inner.func
        elif hasattr(inner, "__func__") and hasattr(inner, "__self__"):
            inner, args = inner.__func__, (inner.__self__, *args)
        else:
            return (inner, args, kwargs) if internals.is_jitted(inner) else (function, (), {})


def _innermost(function: Any) -> Any:
    """What partials of partials are of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _library(function: Any) -> str:
    """The top-level package whose code `function` is, whatever function it says that it wraps."""
    module = getattr(function, "__globals__", {}).get("__name__", type(function).__module__)
    return str(module).partition(".")[0]


def _name(function: Any) -> str:
    """The name jax lowers `function` under (jit_<name> is the HLO module), also where it has none of its own."""
    return str(getattr(_innermost(function), "__name__", "<unnamed function>"))


def _inputs(info: Any, bound: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Inputs:
    static_args = {i: args[i] for i in _positions(info.static_argnums, bound, len(args))}
    static_kwargs = {name: value for name, value in kwargs.items() if name in info.static_argnames}
    bare = Inputs(None, (), static_args, static_kwargs)
    flat, tree = jax.tree_util.tree_flatten_with_path(bare._dynamic(args, kwargs))
    return Inputs(tree, tuple(_path(path) for path, _ in flat), static_args, static_kwargs)


def _donated(info: Any, bound: int, inputs: Inputs, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> frozenset[int]:
    positions = _positions(info.donate_argnums, bound, len(args))
    marked = tuple(jax.tree.map(lambda _, i=i: i in positions, arg) for i, arg in enumerate(inputs.arguments(args)))
    named = {name: jax.tree.map(lambda _, n=name: n in info.donate_argnames, kwargs[name]) for name in kwargs}
    return frozenset(i for i, leaf in enumerate(inputs.leaves(marked, named)) if leaf)


def _positions(argnums: tuple[int, ...], bound: int, given: int) -> set[int]:
    """Which of the `given` arguments `argnums` means; it counts `bound` ones before them, or from the end."""
    count = bound + given
    return {i % count - bound for i in argnums if -count <= i < count and i % count >= bound}


def _path(path: tuple[Any, ...]) -> str:
    root, *rest = path
    return ("args" if root.idx == 0 else "kwargs") + jax.tree_util.keystr(tuple(rest))


def _check_leaves(inputs: Inputs, leaves: list[Any]) -> None:
    for path, leaf in zip(inputs.paths, leaves, strict=True):
        if isinstance(leaf, jax.Array):
            if leaf.is_deleted():
                raise _refused(f"{path} was donated to an earlier call and is gone: hand over fresh arrays")
        elif not isinstance(leaf, (np.ndarray, np.generic, bool, int, float, complex)):
            raise _refused(f"{path} is {a_type(leaf)}, not an array: mark it static in jax.jit, or close over it")
    if not any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves):
        raise _refused(
            "the step has no inputs: none of its arguments holds an array, so XLA would fold it to a constant"
        )


def _refused(message: str) -> Refused:
    return Refused(FailureClass.WORKLOAD, message)
