"""Sees what a running script jits and calls, by standing in for `jax.jit` from the moment the script imports jax."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

__all__ = ["ImportHook", "Jitted", "Watcher", "reporting", "stand_in"]

Action = Callable[[types.ModuleType, float], None]


class Watcher(Protocol):
    """Learns what happens to jitted functions."""

    def made(self) -> None:
        """A function was jitted."""

    def mapped(self) -> None:
        """A function was given to `jax.pmap`: its calls go past us."""

    def lowered(self) -> None:
        """A jitted function was lowered ahead of time: what comes of it is called past us."""

    def called(self, jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A jitted function is called; the result is the call's."""


class ImportHook(importlib.abc.MetaPathFinder):
    """Runs a function on each of some modules (with the seconds its import took), right after it is first imported.

    jax is imported when the *script* imports it, so that variables which the script sets before stay effective.
    """

    def __init__(self, actions: Mapping[str, Action]) -> None:
        self._actions = dict(actions)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        action = self._actions.pop(name, None)
        if action is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                _act_after(spec.loader, action)
                return spec
        return None


class Jitted:
    """Stands in for one jitted function: calls go through the watcher, everything else to the function itself."""

    def __init__(self, function: Any, watcher: Watcher) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._watcher = watcher

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._watcher.called(self, args, kwargs)

    @property
    def function(self) -> Any:
        """What `jax.jit` made."""
        return self._function

    # jax checks for these four by name (`jax.stages.Wrapped`), so they must be found on the class.
    def lower(self, *args: Any, **kwargs: Any) -> Any:
        self._watcher.lowered()
        return self._function.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        return self._function.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self._function.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        self._function.clear_cache()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, memo: Any) -> Jitted:
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # while an instance is being made or unpickled
            raise AttributeError(name)
        return getattr(self._function, name)


def stand_in(jit: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    """A replacement for `jit` (`jax.jit` or `pjit`) whose results are `Jitted` and report to `watcher`."""

    @functools.wraps(jit)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        function = args[0] if args else kwargs.get("fun")
        if not callable(function):  # jit(static_argnums=…) without a function makes a decorator
            return functools.partial(replacement, **kwargs)
        if isinstance(function, Jitted):
            args = (function.function, *args[1:])
        watcher.made()
        return Jitted(jit(*args, **kwargs), watcher)

    return replacement


def reporting(function: Callable[..., Any], report: Callable[[], None]) -> Callable[..., Any]:
    """`function`, whose calls are reported."""

    @functools.wraps(function)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        report()
        return function(*args, **kwargs)

    return replacement


def _act_after(loader: Any, action: Action) -> None:
    execute = loader.exec_module

    def exec_module(module: types.ModuleType) -> None:
        start = time.perf_counter()
        execute(module)
        action(module, time.perf_counter() - start)

    loader.exec_module = exec_module
