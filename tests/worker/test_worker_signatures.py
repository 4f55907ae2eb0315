"""What a function was called with, in words; and which line of the stack is the user's."""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np
import pytest

from tuner.worker import places
from tuner.worker.signatures import Signatures, home_of, shape_of
from tuner.worker.step import make_step


def called(calls: list[tuple[Any, ...]], **jit: Any) -> Signatures:
    """One function, called with these arguments in turn."""
    function = jax.jit(lambda *args: args[0], **jit)
    found = Signatures("f")
    for number, args in enumerate(calls):
        step = make_step(function, args, {})
        shape = shape_of(step, [str(jax.typeof(leaf)) for leaf in step.inputs.leaves(args, {})])
        found.called(shape, number=2 * number, first=shape not in found.shapes, seconds=0.5, where=f"t.py:{number}")
    return found


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("calls", "jit", "differs"),
    [
        ([(ones(2),), (ones(2),)], {}, ""),
        ([(ones(2), ones(1)), (ones(3), ones(1))], {}, "args[0]: float32[2], float32[3]"),
        ([(ones(n),) for n in range(1, 8)], {}, "args[0]: float32[1], float32[2], float32[3] … float32[7]"),
        ([(ones(2), n) for n in range(3)], {"static_argnums": 1}, "static 1: 0, 1, 2"),
        ([(ones(2),), ({"a": ones(2)},)], {}, "the structure of the arguments"),
        (
            [(ones(n), ones(n), ones(n)) for n in (1, 2)],
            {},
            "args[0]: float32[1], float32[2]; args[1]: float32[1], float32[2] and 1 more",
        ),
    ],
)
def test_what_differs(calls: list[tuple[Any, ...]], jit: dict[str, Any], differs: str) -> None:
    assert called(calls, **jit).told(step=True, tuned="", since=0).differs == differs


def test_new_shapes_are_counted_over_all_in_the_later_half_and_since_the_step_began() -> None:
    found = called([(ones(n),) for n in (1, 2, 1, 1, 3, 1)]).told(step=False, tuned="", since=3)
    assert (found.compiles, found.calls, found.late, found.inside, found.shapes) == (3, 6, 1, 1, 3)
    assert (found.where, found.seconds) == ("t.py:4", 3.0)


def test_the_arrays_that_vary_are_known_by_their_paths() -> None:
    assert called([(ones(2), ones(1)), (ones(3), ones(1))]).varied == {"args[0]"}
    assert called([(ones(2),), ({"a": ones(2)},)]).varied == frozenset()


def test_a_function_that_is_jitted_again_is_the_same_function() -> None:
    def made() -> Any:
        return jax.jit(lambda x: x + 1)

    one, other, third = made(), made(), jax.jit(lambda x: x + 1)
    homes = [home_of(make_step(f, (ones(1),), {}), f) for f in (one, other, third)]
    assert homes[0] == homes[1] != homes[2]


def test_the_users_line_is_the_innermost_that_is_neither_ours_nor_a_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    here = sys._getframe()
    assert places.user_line(here) == f"{__file__}:{here.f_lineno}"
    monkeypatch.setattr(places, "_FOLDER", __file__.rpartition("/")[0] + "/")
    assert places.user_line(sys._getframe()) == ""  # it is the worker itself that compiles
    monkeypatch.setattr(places, "_PASSED", frozenset({__file__}))
    assert not places.user_line(sys._getframe()).startswith(__file__)
