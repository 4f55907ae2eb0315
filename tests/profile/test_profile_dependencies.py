"""Whether the operations that kernels were taken for can have run in this order."""

from __future__ import annotations

from collections.abc import Sequence

from profile_traces import GPU_HLO

from tuner.profile.dependencies import Unit, doubtful, producers
from tuner.profile.hlo import read_module
from tuner.profile.timeline import Event

CHAIN = {("m", after): frozenset([before]) for before, after in zip("abcdefgh", "bcdefghi", strict=True)}


def judged(*groups: tuple[int, Sequence[tuple[str, float]]]) -> set[Unit]:
    """`groups`: number, and (operation, start) in the order of the program."""
    given = [
        (group, Event(name="k", start=start, end=start + 1), Event(name="k", start=0, end=0, op=op, module="m"))
        for group, of in groups
        for op, start in of
    ]
    return doubtful(given, CHAIN)


def test_what_launches_nothing_is_looked_through_and_loops_are_not() -> None:
    reads = producers({"jit_train": read_module(GPU_HLO)})
    assert reads["jit_train", "loop_gelu_fusion"] == {"gemm_fusion_dot.4"}
    assert reads["jit_train", "gemm_fusion_dot.4"] == {"all-reduce.1"}
    assert reads["jit_train", "all-reduce.1"] == frozenset()
    assert ("jit_train", "h.1") not in reads


def test_what_is_in_order_is_believed_whatever_it_is_found_by() -> None:
    assert judged((0, [("a", 1), ("b", 2)]), (1, [("c", 3), ("d", 3)])) == set()


def test_of_two_taken_for_each_other_neither_is_believed_and_all_others_are() -> None:
    steps = [(op, float(at)) for at, op in enumerate("abcdefghi")]
    swapped = [("d", 6.0), ("g", 3.0)]
    others = [pair for pair in steps if pair[0] not in "dg"]
    out = judged((0, others[:3]), (1, swapped[:1]), (0, others[3:5]), (1, swapped[1:]), (0, others[5:]))
    assert out == {(1, ("m", "d")), (1, ("m", "g"))}


def test_a_single_operation_out_of_order_does_not_take_the_rest_of_its_stretch_with_it() -> None:
    steps = [(op, float(at)) for at, op in enumerate("abcdefghi")]
    steps[8] = ("i", 6.5)
    out = judged((0, steps))
    assert out <= {(0, ("m", "h")), (0, ("m", "i"))}
    assert out


def test_runs_of_a_loop_are_compared_one_by_one() -> None:
    turns = [(op, 10.0 * turn + at) for turn in range(3) for at, op in enumerate("ab")]
    assert judged((0, turns)) == set()
    late = [(op, 10.0 * turn - at) for turn in range(3) for at, op in enumerate("ab")]
    assert judged((0, late)) == {(0, ("m", "a")), (0, ("m", "b"))}
