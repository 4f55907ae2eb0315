"""State threading: which outputs become which inputs, and the loops that do it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from tuner.worker.carry import Carry, counted, detected, paired, run
from tuner.worker.failures import Refused
from tuner.worker.step import Inputs


def leaf(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


STATE = {"w": leaf(3, 4), "m": leaf(3, 4)}
BATCH = leaf(8, 3)
LOSS = leaf()


def test_an_output_like_the_first_argument_is_the_whole_state() -> None:
    found = detected((STATE, BATCH), STATE)
    assert found == Carry("whole", 1, ((0, 0), (1, 1)))


def test_leading_outputs_like_leading_arguments_are_a_prefix_as_long_as_possible() -> None:
    assert detected((STATE, BATCH), (STATE, LOSS)).count == 1
    found = detected((STATE, leaf(2), BATCH), (STATE, leaf(2), LOSS))
    assert (found.kind, found.count) == ("prefix", 2)
    assert found.pairs == ((0, 0), (1, 1), (2, 2))


@pytest.mark.parametrize(
    "out",
    [LOSS, (LOSS, STATE), {"w": leaf(3, 4)}, (leaf(3, 5),), ({"w": leaf(3, 4), "m": leaf(3, 4, dtype="bfloat16")},)],
)
def test_other_trees_shapes_dtypes_and_places_carry_nothing(out: Any) -> None:
    assert detected((STATE, BATCH), out).kind == "none"


def test_numpy_inputs_match_in_the_dtype_in_which_jit_sees_them() -> None:
    assert detected((np.zeros(3), 1.0), (leaf(3), leaf())).count == 2


def test_a_static_argument_ends_the_prefix() -> None:
    assert detected((None, STATE), (STATE, STATE)).kind == "none"
    assert detected((STATE, None, BATCH), (STATE, BATCH)).count == 1


def test_the_workload_may_say_how_many_arguments_are_carried() -> None:
    assert counted((STATE, BATCH), (STATE, BATCH), 1).pairs == ((0, 0), (1, 1))
    assert counted((STATE,), STATE, 1).kind == "whole"
    assert counted((STATE,), STATE, 0).kind == "none"
    with pytest.raises(Refused, match="carry=2"):
        counted((STATE, BATCH), (STATE, LOSS), 2)


def test_pairs_seen_in_a_script_become_a_prefix_where_they_are_one() -> None:
    args, out = (STATE, BATCH), (STATE, LOSS)
    assert paired(args, out, [(1, 1), (0, 0)]) == detected(args, out)
    assert paired((STATE,), STATE, [(0, 0), (1, 1)]).kind == "whole"
    assert paired(args, out, [(0, 0)]) == Carry("leaves", 0, ((0, 0),))
    assert paired((BATCH, STATE), (LOSS, STATE), [(1, 1), (2, 2)]).kind == "leaves"
    assert paired(args, out, []).kind == "none"


def _inputs(args: tuple[Any, ...], static: dict[int, Any] | None = None) -> Inputs:
    bare = Inputs(None, (), static or {}, {})
    return Inputs(jax.tree.structure((bare.arguments(args), {})), (), static or {}, {})


def _stepped(carry: Carry, function: Any, args: tuple[Any, ...], **fields: Any) -> tuple[Any, tuple[Any, ...]]:
    static = fields.pop("static", None)
    out, (after, kwargs) = run(carry, function, call=(args, {}), steps=3, inputs=_inputs(args, static), **fields)
    assert kwargs == {}
    return out, after


def test_the_loops_thread_the_state_and_keep_the_rest() -> None:
    def double(state: tuple[int, int], by: int) -> tuple[int, int]:
        return state[0] * by, state[1] + 1

    whole = Carry("whole", 1, ((0, 0), (1, 1)))
    assert _stepped(whole, double, ((1, 0), 2)) == ((8, 3), ((8, 3), 2))

    def both(a: int, b: int, by: int) -> list[int]:
        return [a * by, b + 1, a]

    assert _stepped(Carry("prefix", 2, ((0, 0), (1, 1))), both, (1, 0, 2)) == ([8, 3, 4], (8, 3, 2))
    assert _stepped(Carry("none"), both, (1, 0, 2)) == ([2, 1, 1], (1, 0, 2))
    assert _stepped(Carry("leaves", 0, ((1, 1),)), both, (1, 0, 2)) == ([2, 3, 1], (1, 3, 2))


def test_static_arguments_pass_through_the_leaf_loop() -> None:
    def step(name: str, state: int) -> int:
        assert name == "add"
        return state + 1

    assert _stepped(Carry("leaves", 0, ((0, 0),)), step, ("add", 0), static={0: "add"}) == (3, ("add", 3))


def test_donated_inputs_are_replaced_before_every_step() -> None:
    given = []

    def step(state: int, batch: str) -> int:
        given.append(batch)
        return state + 1

    batches = iter("abc")
    _stepped(Carry("whole", 1, ((0, 0),)), step, (0, "old"), fresh=lambda: [(1, next(batches))])
    assert given == ["a", "b", "c"]
