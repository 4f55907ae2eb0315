"""Standing in for jax.jit, with made-up functions in its place."""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner.worker.capture import ImportHook, Jitted, reporting, stand_in


class FakeJit:
    """What a jit gives back here: a function with the methods that jax's has."""

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function, self.options, self.cleared = function, options, False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def lower(self, *args: Any) -> str:
        return f"lowered {args}"

    def clear_cache(self) -> None:
        self.cleared = True


def fake_jit(fun: Any = None, /, **options: Any) -> Any:
    """Docstring of jit."""
    return FakeJit(fun, options)


class Watcher:
    def __init__(self) -> None:
        self.count, self.ahead, self.pmaps, self.calls = 0, 0, 0, []

    def made(self) -> None:
        self.count += 1

    def mapped(self) -> None:
        self.pmaps += 1

    def lowered(self) -> None:
        self.ahead += 1

    def called(self, jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.calls.append((jitted, args, kwargs))
        return jitted.function(*args, **kwargs)


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def jit(watcher: Watcher) -> Any:
    return stand_in(fake_jit, watcher)


def test_calls_are_seen_and_return_what_the_function_returns(watcher: Watcher, jit: Any) -> None:
    doubled = jit(lambda x: 2 * x, donate_argnums=0)
    assert doubled(4) == 8
    assert watcher.calls == [(doubled, (4,), {})]
    assert doubled.options == {"donate_argnums": 0}
    assert jit.__doc__ == "Docstring of jit."


def test_decorators_with_and_without_arguments_work_on_functions_and_methods(watcher: Watcher, jit: Any) -> None:
    class Model:
        @jit
        def plain(self, x: int) -> int:
            """The plain one."""
            return x + 1

        @jit(static_argnums=0)
        def early(self, x: int) -> int:
            return x + 2

        @functools.partial(jit, static_argnums=0)
        def late(self, x: int) -> int:
            return x + 3

    model = Model()
    assert (model.plain(1), model.early(1), model.late(1)) == (2, 3, 4)
    assert [args for _, args, _ in watcher.calls] == [(model, 1)] * 3
    assert Model.plain.__doc__ == "The plain one."
    assert watcher.count == 3


def test_copies_are_the_function_itself_and_jit_of_a_jitted_unwraps_it(watcher: Watcher, jit: Any) -> None:
    once = jit(len)
    assert copy.copy(once) is once
    assert copy.deepcopy([once]) == [once]
    assert isinstance(jit(once).function.function, FakeJit)


def test_lowering_ahead_of_time_is_noticed(watcher: Watcher, jit: Any) -> None:
    function = jit(len)
    assert function.lower(1) == "lowered (1,)"
    assert watcher.ahead == 1
    function.clear_cache()
    assert function.cleared
    with pytest.raises(AttributeError):
        _ = function.no_such_thing


@pytest.fixture
def module_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "hooked_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("hooked_module", None)


@pytest.mark.usefixtures("module_path")
def test_the_import_hook_acts_once_right_after_the_module_was_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def action(module: types.ModuleType, seconds: float) -> None:
        seen.append((module.value, seconds >= 0))
        vars(module)["value"] = 2

    monkeypatch.setattr(sys, "meta_path", [ImportHook({"hooked_module": action}), *sys.meta_path])
    import hooked_module  # type: ignore[import-not-found]

    assert hooked_module.value == 2
    del sys.modules["hooked_module"]
    import hooked_module as again  # type: ignore[import-not-found]

    assert again.value == 1
    assert seen == [(1, True)]


def test_what_is_reported_is_called_as_it_was(watcher: Watcher) -> None:
    pmap = reporting(fake_jit, watcher.mapped)
    assert pmap(abs, axis_name="i").__wrapped__ is abs
    assert watcher.pmaps == 1
