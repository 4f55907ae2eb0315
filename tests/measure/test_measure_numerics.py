"""The numerics gate: planted faults are found, harmless changes pass, and reasons name what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from measure_step import Array, Outputs, as_tf32, compared, initial, leaf, leaf_stats, nudged, reply, to_bfloat16, train

from tuner.measure import Tolerance, judge, tolerances
from tuner.protocol.messages import LeafStats, NumericsReply

MANY = 8
BASE = initial()
REFERENCE = {1: train(BASE, 1), MANY: train(BASE, MANY)}


def against_reference(run: Callable[[int], Outputs]) -> NumericsReply:
    return reply(*(compared(REFERENCE[steps], run(steps), steps=steps) for steps in (1, MANY)))


LIMITS = tolerances([against_reference(lambda steps, s=seed: train(nudged(BASE, s), steps)) for seed in (1, 2)])


def with_fault(path: str, fault: Callable[[Array], Array]) -> NumericsReply:
    return against_reference(
        lambda steps: {k: fault(v.copy()) if k == path else v for k, v in train(BASE, steps).items()}
    )


def test_the_same_program_passes() -> None:
    assert judge(against_reference(lambda steps: train(BASE, steps)), LIMITS) == (True, "")


@pytest.mark.parametrize("order", range(1, 9))
def test_sums_in_another_order_pass(order: int) -> None:
    assert judge(against_reference(lambda steps: train(BASE, steps, order=order)), LIMITS) == (True, "")


@pytest.mark.parametrize("seed", range(3, 9))
def test_another_nudge_than_those_that_set_the_limits_passes(seed: int) -> None:
    assert judge(against_reference(lambda steps: train(nudged(BASE, seed), steps)), LIMITS) == (True, "")


def a_row(value: Array) -> Array:
    value[..., 3, :] *= np.float32(1.01)
    return value


def a_column(value: Array) -> Array:
    value[..., 3] *= np.float32(1.01)
    return value


@pytest.mark.parametrize("path", ["w1", "w2", "dw1", "dw2"])
@pytest.mark.parametrize("fault", [a_row, a_column])
def test_one_slice_that_is_one_percent_off_is_wrong(path: str, fault: Callable[[Array], Array]) -> None:
    passed, reason = judge(with_fault(path, fault), LIMITS)
    assert not passed
    assert re.fullmatch(
        rf"wrong result: output out\['{path}'\] after 1 step: slope error \S+e-0[23], limit 3e-05", reason
    )


def test_a_slice_that_is_wrong_shows_even_where_it_is_a_thousandth_of_the_norm() -> None:
    """Relative L2 over a big leaf would hide it: it stays under one percent of one percent of its square."""
    big = np.random.default_rng(0).standard_normal((4000, 50)).astype(np.float32)
    wrong = big.copy()
    wrong[7] *= np.float32(1.001)
    null = reply((leaf_stats("out", big, np.nextafter(big, np.float32(9))),))
    stats = leaf_stats("out", big, wrong)
    assert stats.l2 < 3e-5 < stats.slope
    assert not judge(reply((stats,)), tolerances([null]))[0]


def test_numbers_that_became_finite_or_stopped_being_are_wrong() -> None:
    reference = np.random.default_rng(1).standard_normal((20, 30)).astype(np.float32)
    reference[2, 3], reference[4, 5], reference[6, 7] = np.nan, np.inf, -np.inf
    limits = tolerances([reply((leaf_stats("out", reference, reference),))])
    assert judge(reply((leaf_stats("out", reference, reference),)), limits)[0]
    for place, value in (((2, 3), 0.0), ((4, 5), 3.4e38), ((6, 7), np.inf), ((0, 0), np.nan), ((0, 0), np.inf)):
        wrong = reference.copy()
        wrong[place] = value
        passed, reason = judge(reply((leaf_stats("out", reference, wrong),)), limits)
        assert not passed
        assert "NaN or infinity in other places" in reason


def test_one_wrong_class_is_wrong() -> None:
    def flipped(value: Array) -> Array:
        value[0] += 1
        return value

    passed, reason = judge(with_fault("classes", flipped), LIMITS)
    assert not passed
    assert "classes" in reason


@pytest.mark.parametrize("path", ["w1", "b1", "dw2", "classes"])
def test_a_leaf_in_another_order_is_wrong(path: str) -> None:
    assert not judge(with_fault(path, lambda v: np.roll(v, 1, axis=0)), LIMITS)[0]


@pytest.mark.parametrize(
    "gradient",
    [
        lambda g: {**g, "w1": g["w1"] * np.float32(1.002)},
        lambda g: {**g, "b1": np.zeros_like(g["b1"])},
        lambda g: {**g, "w2": -g["w2"]},
        lambda g: {**g, "w1": np.where(np.arange(g["w1"].shape[1]) == 5, 0, g["w1"]).astype(np.float32)},
    ],
    ids=["scaled", "missing", "wrong sign", "one unit dead"],
)
def test_a_wrong_gradient_is_wrong(gradient: Callable[[Outputs], Outputs]) -> None:
    assert not judge(against_reference(lambda steps: train(BASE, steps, gradient=gradient)), LIMITS)[0]


def test_a_gradient_that_is_wrong_shows_in_the_parameters_alone() -> None:
    """A step that returns no gradients: what they do to the parameters is small, and is found."""

    def kept(out: Outputs) -> Outputs:
        return {k: v for k, v in out.items() if not k.startswith("d")}

    wrong = train(BASE, 1, gradient=lambda g: {**g, "w1": g["w1"] * np.float32(1.05)})
    stats = reply(compared(kept(REFERENCE[1]), kept(wrong)))
    limits = [t for t in LIMITS if t.steps == 1 and "['d" not in t.path]
    passed, reason = judge(stats, limits)
    assert not passed
    assert "w1" in reason


def test_another_precision_is_a_change_of_results() -> None:
    """TF32 instead of float32 is what `--allow numerics` is for; it must not slip through."""
    assert not judge(against_reference(lambda steps: train(BASE, steps, rounded=as_tf32)), LIMITS)[0]


# -- bfloat16 ----------------------------------------------------------------------------------------------------------


def rounded_outputs(out: Outputs) -> Outputs:
    return {k: to_bfloat16(v) if v.dtype == np.float32 else v for k, v in out.items()}


def in_bfloat16(a: Array) -> Array:
    return to_bfloat16(a).astype(np.float32)


def mixed(inputs: Outputs, *, order: int = 0, unfused: bool = False) -> Outputs:
    """One step with bfloat16 operands and bfloat16 outputs, as floats; the integers are left out."""
    out = train(inputs, 1, order=order, rounded=in_bfloat16, stored=in_bfloat16 if unfused else lambda a: a)
    return {k: in_bfloat16(v) for k, v in out.items() if v.dtype == np.float32}


def mixed_reply(out: Outputs, *, good: Outputs) -> NumericsReply:
    return reply(compared({k: to_bfloat16(v) for k, v in good.items()}, {k: to_bfloat16(v) for k, v in out.items()}))


def test_rounding_noise_of_bfloat16_passes_and_a_wrong_slice_does_not() -> None:
    """Parameters in float32, arithmetic and outputs in bfloat16; another kernel rounds at other places."""
    good = mixed(BASE)
    null = [mixed(nudged(BASE, 1)), mixed(BASE, unfused=True)]
    limits = tolerances([mixed_reply(out, good=good) for out in null])
    for order in range(1, 6):
        for unfused in (False, True):
            assert judge(mixed_reply(mixed(BASE, order=order, unfused=unfused), good=good), limits) == (True, "")
    for path in ("w1", "dw1"):
        passed, reason = judge(mixed_reply({**good, path: a_column(good[path].copy())}, good=good), limits)
        assert not passed
        assert path in reason


def test_where_inputs_are_bfloat16_their_ulp_is_coarse_and_a_dead_unit_still_shows() -> None:
    start = {k: in_bfloat16(v) for k, v in BASE.items()}
    good = mixed(start)

    def moved(seed: int) -> Outputs:
        signs = np.random.default_rng(seed)
        return {
            k: in_bfloat16(v * (1 + 2.0**-8 * signs.choice([-1, 1], v.shape)).astype(np.float32))
            for k, v in start.items()
        }

    limits = tolerances([mixed_reply(mixed(moved(seed)), good=good) for seed in (1, 2)])
    for seed in range(3, 8):
        assert judge(mixed_reply(mixed(moved(seed), unfused=True), good=good), limits) == (True, "")
    dead = {**good, "dw2": np.where(np.arange(10) == 4, 0, good["dw2"])}
    assert not judge(mixed_reply(dead, good=good), limits)[0]


# -- judging -----------------------------------------------------------------------------------------------------------


def test_the_reason_names_leaf_steps_statistic_and_by_how_much() -> None:
    wrong = LeafStats(path="[1]['w']", dtype="float32", size=9, steps=1, l2=1e-3, slope=1e-2, masks_equal=True)
    limits = [Tolerance(path="[1]['w']", steps=1, l2=3e-5, slope=3e-5)]
    expected = "wrong result: output [1]['w'] after 1 step: slope error 1.0e-02, limit 3e-05"
    assert judge(reply((wrong,)), limits) == (False, expected)


def test_of_several_faults_the_earliest_and_there_the_worst_is_named() -> None:
    limits = [Tolerance(path=p, steps=s, l2=1e-5, slope=1e-5) for p in "ab" for s in (1, 8)]
    faults = [("a", 8, 1.0), ("a", 1, 1e-3), ("b", 1, 1e-2), ("b", 8, 1.0)]
    leaves = tuple(
        LeafStats(path=p, dtype="float32", size=9, steps=s, l2=x, slope=0.0, masks_equal=True) for p, s, x in faults
    )
    assert judge(reply(leaves), limits)[1].startswith("wrong result: output b after 1 step: relative error 1.0e-02")
    assert "after 8 steps" in judge(reply(leaves[:1] + leaves[3:]), limits)[1]


def test_a_statistic_that_is_not_a_number_is_wrong() -> None:
    limits = [Tolerance(path="out", steps=1, l2=1.0, slope=1.0)]
    assert not judge(reply((leaf(math.nan),)), limits)[0]
    assert not judge(reply((leaf(0.0, math.nan),)), limits)[0]


def test_outputs_and_limits_must_match() -> None:
    known = [Tolerance(path="out", steps=1, l2=1.0, slope=1.0)]
    passed, reason = judge(reply((leaf(0.0), leaf(0.0, steps=8))), known)
    assert not passed
    assert "output out after 8 steps: not among" in reason
    passed, reason = judge(reply((leaf(0.0),)), [*known, Tolerance(path="other", steps=8, l2=1.0, slope=1.0)])
    assert not passed
    assert "output other after 8 steps: missing" in reason


def test_nothing_compared_is_nothing_proven() -> None:
    assert judge(NumericsReply(leaves=()), []) == (False, "wrong result: no output was compared")


def test_the_workloads_own_check_decides_alone() -> None:
    awful = leaf(1.0, 1.0)
    assert judge(NumericsReply(leaves=(awful,), check=True), []) == (True, "")
    refused = NumericsReply(leaves=(leaf(0.0),), check=False, check_message="energy drifts")
    assert judge(refused, LIMITS) == (False, "wrong result: energy drifts")
    assert not judge(NumericsReply(leaves=(), check=False), [])[0]


def test_coarser_products_than_a_coarse_control_has_fail_the_limits_of_what_trades_accuracy() -> None:
    """Where the control multiplies in TF32, what harmless changes do to an update is coarse too (1e-4, seen on a card),
    and a generous multiple of that has room for products in bfloat16 (1.6e-3)."""

    def update(moved_l2: float) -> NumericsReply:
        found = leaf(0.0, steps=MANY, shape=(256, 256))
        return reply((replace(found, travel=0.01, moved_l2=moved_l2, moved_slope=0.0),))

    nulls = [update(1.03e-4), update(1.04e-4), update(0.99e-4)]
    usual, strict = tolerances(nulls), tolerances(nulls, strict=True)
    assert judge(update(1.6e-3), usual)[0]
    passed, reason = judge(update(1.6e-3), strict)
    assert not passed
    assert "relative error of the update 1.6e-03" in reason
    assert judge(update(3e-4), strict) == (True, "")
