"""State threading: which outputs become which inputs, and the loops that do it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from tuner.worker.carry import WHOLE, Carry, counted, detected, paired, run
from tuner.worker.failures import Refused
from tuner.worker.step import Inputs


def leaf(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


STATE = {"w": leaf(3, 4), "m": leaf(3, 4)}
BATCH = leaf(8, 3)
LOSS = leaf()


def test_an_output_like_the_first_argument_is_the_whole_state() -> None:
    assert detected((STATE, BATCH), STATE) == Carry(((0, WHOLE),), ((0, 0), (1, 1)))


def test_leading_outputs_like_leading_arguments_are_carried_as_far_as_they_go() -> None:
    assert detected((STATE, BATCH), (STATE, LOSS)).moves == ((0, 0),)
    found = detected((STATE, leaf(2), BATCH), (STATE, leaf(2), LOSS))
    assert found == Carry(((0, 0), (1, 1)), ((0, 0), (1, 1), (2, 2)))


@pytest.mark.parametrize(
    "out",
    [
        LOSS,
        (LOSS, STATE),
        {"w": leaf(3, 4)},
        (leaf(3, 5),),
        ({"w": leaf(3, 4), "m": leaf(3, 4, dtype="bfloat16")},),
    ],
)
def test_other_trees_shapes_dtypes_and_places_carry_nothing(out: Any) -> None:
    assert detected((STATE, BATCH), out) == Carry()


def test_a_donated_argument_is_carried_from_wherever_its_like_comes_back() -> None:
    assert detected((STATE, BATCH), (LOSS, STATE), donated=(0, 1)) == Carry(((0, 1),), ((0, 1), (1, 2)))
    assert detected((STATE, BATCH), (LOSS, STATE), donated=(0,)) == Carry()
    assert detected((BATCH, STATE, STATE), (LOSS, STATE, STATE), donated=(1, 2, 3, 4)).moves == ((1, 1), (2, 2))


def test_numpy_inputs_match_in_the_dtype_in_which_jit_sees_them() -> None:
    assert detected((np.zeros(3), 1.0), (leaf(3), leaf())).moves == ((0, 0), (1, 1))


def test_static_arguments_and_empty_states_are_passed_over() -> None:
    assert detected((None, STATE), (STATE, LOSS)) == Carry(((1, 0),), ((0, 0), (1, 1)))
    assert detected((STATE, (), BATCH), (STATE, (), BATCH)).moves == ((0, 0), (2, 2))
    assert detected((None, BATCH), (None, LOSS)) == Carry()


def test_the_workload_may_say_how_many_arguments_are_carried() -> None:
    assert counted((STATE, BATCH), (STATE, BATCH), 1).pairs == ((0, 0), (1, 1))
    assert counted((STATE,), STATE, 1).moves == ((0, WHOLE),)
    assert counted((STATE,), STATE, 0) == Carry()
    with pytest.raises(Refused, match="carry=2"):
        counted((STATE, BATCH), (STATE, LOSS), 2)


def test_pairs_seen_in_a_script_become_whole_arguments_where_they_are_that() -> None:
    args, out = (STATE, BATCH), (STATE, LOSS)
    assert paired(args, out, [(1, 1), (0, 0)]) == detected(args, out)
    assert paired((STATE,), STATE, [(0, 0), (1, 1)]).moves == ((0, WHOLE),)
    assert paired((BATCH, STATE), (LOSS, STATE), [(1, 1), (2, 2)]).moves == ((1, 1),)
    assert paired((STATE, STATE), (LOSS, STATE, STATE), [(0, 1), (1, 2), (2, 3), (3, 4)]).moves == ((0, 1), (1, 2))


@pytest.mark.parametrize("pairs", [[(0, 0)], [(0, 1), (1, 0)], [(2, 2)]])
def test_other_pairs_stay_single_leaves(pairs: list[tuple[int, int]]) -> None:
    assert paired((STATE, BATCH), (STATE, BATCH, LOSS), pairs).pairs == tuple(pairs)
    assert paired((STATE, LOSS), (STATE, BATCH, LOSS), pairs).moves == ()


def test_nothing_seen_is_nothing_carried() -> None:
    assert paired((STATE, BATCH), (STATE, LOSS), []) == Carry()


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

    whole = Carry(((0, WHOLE),), ((0, 0), (1, 1)))
    assert _stepped(whole, double, ((1, 0), 2)) == ((8, 3), ((8, 3), 2))

    def both(a: int, b: int, by: int) -> list[int]:
        return [a * by, b + 1, a]

    assert _stepped(Carry(((0, 0), (1, 1)), ((0, 0), (1, 1))), both, (1, 0, 2)) == ([8, 3, 4], (8, 3, 2))
    assert _stepped(Carry(((1, 2),), ((1, 2),)), both, (1, 0, 2)) == ([2, 2, 1], (1, 1, 2))
    assert _stepped(Carry(), both, (1, 0, 2)) == ([2, 1, 1], (1, 0, 2))
    assert _stepped(Carry((), ((1, 1),)), both, (1, 0, 2)) == ([2, 3, 1], (1, 3, 2))
    assert _stepped(Carry(), lambda: 7, ()) == (7, ())


def test_keyword_arguments_reach_every_step() -> None:
    seen = []

    def step(state: int, *, by: int) -> int:
        seen.append(by)
        return state + by

    carried = Carry(((0, WHOLE),), ((0, 0),))
    out, call = run(carried, step, call=((1,), {"by": 2}), steps=2, inputs=_inputs((1,)))
    assert (out, call, seen) == (5, ((5,), {"by": 2}), [2, 2])


def test_the_state_before_the_first_step_is_let_go_with_it() -> None:
    class State:
        alive = 0

        def __init__(self) -> None:
            State.alive += 1

        def __del__(self) -> None:
            State.alive -= 1

    most = []

    def step(state: State) -> State:
        new = State()
        most.append(State.alive)
        return new

    holder = [((State(),), {})]
    run(Carry(((0, WHOLE),), ((0, 0),)), step, call=holder.pop(), steps=3, inputs=_inputs((None,)))
    assert most == [2, 2, 2]


def test_static_arguments_pass_through_the_leaf_loop() -> None:
    def step(name: str, state: int) -> int:
        assert name == "add"
        return state + 1

    assert _stepped(Carry((), ((0, 0),)), step, ("add", 0), static={0: "add"}) == (3, ("add", 3))


def test_donated_inputs_are_replaced_before_every_step() -> None:
    given = []

    def step(state: int, batch: str) -> int:
        given.append(batch)
        return state + 1

    batches = iter("abc")
    carried = Carry(((0, WHOLE),), ((0, 0),))
    _stepped(carried, step, (0, "old"), fresh=lambda: [(1, next(batches))])
    assert given == ["a", "b", "c"]
