"""The numerics gate: planted faults are found, harmless changes pass, and reasons name what is wrong."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from measure_step import Array, Outputs, as_tf32, compared, initial, leaf_stats, nudged, reply, to_bfloat16, train

from tuner.measure import Tolerance, epsilon, judge, second_chance, tolerances
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


# -- limits ------------------------------------------------------------------------------------------------------------


def leaf(
    l2: float, slope: float = 0.0, *, dtype: str = "float32", steps: int = 1, shape: tuple[int, ...] = (100,)
) -> LeafStats:
    return LeafStats(
        path="out", dtype=dtype, size=math.prod(shape), shape=shape, steps=steps, l2=l2, slope=slope, masks_equal=True
    )


def limit(*leaves: LeafStats) -> Tolerance:
    (only,) = tolerances([reply((x,)) for x in leaves])
    return only


def test_a_limit_is_a_multiple_of_the_largest_null_statistic() -> None:
    found = limit(leaf(1e-3, 2e-3), leaf(4e-3, 1e-3))
    assert (found.l2, found.slope) == pytest.approx((3.9 * 4e-3, 3.9 * 2e-3))


def test_a_scalar_that_moved_little_by_luck_gets_more_room() -> None:
    scalar, large = limit(leaf(1e-3, shape=())), limit(leaf(1e-3, shape=(1000, 1000)))
    assert (scalar.l2, large.l2) == pytest.approx((12e-3, 3e-3), rel=1e-2)


def test_a_scalar_passes_after_any_two_null_draws_but_rare_ones() -> None:
    """The null set gives two draws of a scalar's error and a harmless candidate a third: rejected in under 1 %."""
    draws = 1e-2 * np.abs(np.random.default_rng(0).standard_normal((3, 3000)))
    rejected = 0
    for first, second, candidate in draws.T:
        allowed = limit(leaf(first, shape=()), leaf(second, shape=()))
        rejected += not judge(reply((leaf(candidate, shape=()),)), [allowed])[0]
    assert rejected / 3000 < 0.01


def test_the_multiple_is_generous_while_the_limit_is_small() -> None:
    """A nudge understates what another order of sums does; in absolute terms the room stays below 0.1 %."""
    assert limit(leaf(1e-5)).l2 == pytest.approx(32e-5)
    assert limit(leaf(1e-4)).l2 == pytest.approx(1e-3)
    limits = [limit(leaf(float(x))).l2 for x in np.geomspace(1e-9, 1, 200)]
    assert limits == sorted(limits)


def test_after_more_steps_limits_are_looser() -> None:
    once, often = limit(leaf(1e-3, 1e-3)), limit(leaf(1e-3, 1e-3, steps=8))
    assert (often.l2, often.slope) == pytest.approx((2 * once.l2, 2 * once.slope))
    assert limit(leaf(0.0, steps=8)).l2 == pytest.approx(math.sqrt(8) * limit(leaf(0.0)).l2)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float64", 1e-14, 1e-12),
        ("complex128", 1e-14, 1e-12),
        ("float32", 1e-5, 1e-4),
        ("complex64", 1e-5, 1e-4),
        ("float16", 5e-4, 5e-3),
        ("bfloat16", 5e-3, 5e-2),
        ("float8_e4m3fn", 0.1, 0.5),
        ("float8_e5m2", 0.2, 0.5),
        ("float4_e2m1fn", 0.4, 0.6),
    ],
)
def test_a_lucky_null_set_still_leaves_room_for_rounding(dtype: str, low: float, high: float) -> None:
    assert low < limit(leaf(0.0, dtype=dtype)).l2 < high


def test_rounding_averages_out_over_a_slice() -> None:
    """A slice of a matrix must be right to a fraction of an ulp; a vector's slices are single elements."""
    vector, matrix, unknown = (limit(leaf(0.0, dtype="bfloat16", shape=s)).slope for s in ((4096,), (64, 64), ()))
    assert matrix < vector / 7
    assert vector == unknown > 2.0**-7


def test_epsilons_are_those_of_the_dtypes() -> None:
    for dtype in ("float64", "float32", "float16"):
        assert epsilon(dtype) == np.finfo(dtype).eps
    assert epsilon("bfloat16") == 2.0**-7
    assert (epsilon("int32"), epsilon("bool"), epsilon("key<fry>")) == (None, None, None)
    assert epsilon("float3_unheard_of") == 1.0


def test_limits_go_through_json() -> None:
    hopeless = limit(leaf(1e300, 1e300, steps=8))
    assert msgspec.json.decode(msgspec.json.encode(hopeless), type=Tolerance) == hopeless


def test_without_a_null_set_there_are_no_limits() -> None:
    with pytest.raises(ValueError, match="harmless"):
        tolerances([])


# -- integers ----------------------------------------------------------------------------------------------------------


def test_integers_must_be_equal_unless_harmless_changes_flip_some() -> None:
    exact = limit(leaf(0.0, dtype="int32"))
    assert (exact.l2, exact.slope) == (0.0, 0.0)
    assert judge(reply((leaf(0.0, dtype="int32"),)), [exact])[0]
    passed, reason = judge(reply((leaf(0.01, dtype="int32"),)), [exact])
    assert not passed
    assert reason == "wrong result: output out after 1 step: 1 % of the values differ, limit 0 %"
    flips = limit(leaf(0.004, dtype="int32", steps=8))
    assert flips.l2 == pytest.approx(0.02)
    assert judge(reply((leaf(0.01, dtype="int32", steps=8),)), [flips])[0]
    assert not judge(reply((leaf(0.03, dtype="int32", steps=8),)), [flips])[0]


def test_only_a_small_share_of_integers_may_differ() -> None:
    assert limit(leaf(0.02, dtype="int8")).l2 == 0.05
    assert limit(leaf(0.2, dtype="bool")).l2 == pytest.approx(0.3)
    assert limit(leaf(0.9, dtype="uint8")).l2 == 1.0


def test_one_wrong_class_is_wrong() -> None:
    def flipped(value: Array) -> Array:
        value[0] += 1
        return value

    passed, reason = judge(with_fault("classes", flipped), LIMITS)
    assert not passed
    assert "classes" in reason


def test_integers_that_a_coarse_nudge_flips_may_flip_by_chance() -> None:
    """The null set saw none of a flip that comes once in several draws: that is no proof that there are none."""
    exact = leaf(0.0, dtype="int32", shape=(64,))

    def allowed(coarse: float) -> float:
        (found,) = tolerances([reply((exact,))], reply((leaf(coarse, dtype="int32", shape=(64,)),)))
        return found.l2 * 64

    assert allowed(0.0) == 0
    assert 1 < allowed(1 / 64) < 4
    assert allowed(8 / 64) < 8
    rng = np.random.default_rng(0)
    for rate in (0.02, 0.2, 2.0):  # flips that one rounding error makes, of 64; a coarse nudge makes 16 times as many
        coarse, flips = rng.poisson(16 * rate, 2000), rng.poisson(rate, 2000)
        refused = [n > allowed(min(64, c) / 64) for c, n in zip(coarse, flips, strict=True)]
        assert np.mean(refused) < 0.03


def test_a_jump_that_only_a_coarse_nudge_shows_may_come_by_chance() -> None:
    """A sign that flips under Adam: one element in 32 moves a whole step the other way, in one harmless draw of ten."""
    smooth, jumpy = (leaf(16e-5 * over, 16e-5 * over) for over in (1.0, 12.0))
    draws = [reply((leaf(1e-5, 1e-5),))]
    (plain,), (same,), (room,) = (tolerances(draws, c) for c in (None, reply((smooth,)), reply((jumpy,))))
    assert plain == same
    assert (room.l2, room.slope) == pytest.approx((1.25 * jumpy.l2, 1.25 * jumpy.slope))
    assert judge(reply((jumpy,)), [room])[0]
    assert not judge(reply((jumpy,)), [plain])[0]
    assert tolerances(draws, reply((leaf(math.nan, math.inf),))) == (plain,)


# -- what a step did to its inputs -------------------------------------------------------------------------------------


def moved(
    l2: float, slope: float, *, dtype: str = "float32", travel: float = 1e-3, still: bool = False, size: int = 4096
) -> LeafStats:
    """A leaf that takes an input's place; its value is off by as much as its movement is."""
    return LeafStats(
        path="out", dtype=dtype, size=size, shape=(size // 64, 64), steps=8, l2=l2 * travel, slope=slope * travel,
        masks_equal=True, travel=travel, moved_l2=l2, moved_slope=slope, still=still,
    )  # fmt: skip


def test_a_fault_that_hides_in_the_value_shows_in_the_movement() -> None:
    """bfloat16 gradients, float32 parameters that move by a thousandth: limits of the value are beyond a wrong sign."""
    null = [reply((moved(0.02, 0.004),)), reply((moved(0.03, 0.003),))]
    limits = tolerances(null)
    assert limits[0].l2 > 2e-3 * 0.2
    assert judge(reply((moved(0.06, 0.01),)), limits) == (True, "")
    for wrong in (moved(2.0, 2.0), moved(0.5, 0.5), moved(0.05, 0.2)):
        passed, reason = judge(reply((wrong,)), limits)
        assert not passed
        assert "of the update" in reason


def test_a_leaf_that_stays_what_it_was_is_stale_however_noisy_its_movement_is() -> None:
    noise = [reply((moved(1.3, 0.9),)), reply((moved(1.4, 1.0),))]
    limits = tolerances(noise)
    assert judge(reply((moved(1.0, 1.0),)), limits)[0]
    passed, reason = judge(reply((moved(1.0, 1.0, still=True),)), limits)
    assert not passed
    assert "still what the step was given" in reason
    sometimes = tolerances([*noise, reply((moved(1.0, 1.0, still=True),))])
    assert judge(reply((moved(1.0, 1.0, still=True),)), sometimes)[0]


def test_in_narrow_floats_some_elements_jump_by_an_ulp() -> None:
    """A parameter in bfloat16 whose update is a tenth of an ulp: one element in ten moves, and others may."""
    quiet = reply((moved(0.0, 0.0, dtype="bfloat16", travel=1e-3),))
    (limit_,) = tolerances([quiet])
    assert 0.1 < limit_.moved_l2 < 3
    assert limit_.moved_slope < limit_.moved_l2
    (single,) = tolerances([reply((moved(0.0, 0.0, travel=1e-3),))])
    assert single.moved_l2 < 2e-3


def test_a_leaf_that_the_reference_never_moves_is_judged_by_its_value() -> None:
    (limit_,) = tolerances([reply((moved(0.0, 0.0, travel=0.0),))])
    assert (limit_.moved_l2, limit_.moved_slope) == (None, None)
    assert not judge(reply((leaf(1e-2, steps=8),)), [limit_])[0]


# -- the second chance -------------------------------------------------------------------------------------------------

CLOSE = [Tolerance(path="out", steps=1, l2=1e-5, slope=1e-5)]


def chance(candidate: float, control: float, *, dtype: str = "float32", **fields: Any) -> tuple[bool, str]:
    """A candidate that is refused; its and the control's distance from the precise reference."""
    refused = reply((dataclasses.replace(leaf(1e-2, 1e-3, dtype=dtype), **fields),))
    assert not judge(refused, CLOSE)[0]
    near, own = (reply((leaf(x, x / 10, dtype=dtype),)) for x in (candidate, control))
    return second_chance(refused, CLOSE, precise=dataclasses.replace(near, precision="float64"), control=own)


def test_different_but_no_farther_from_the_truth_passes_and_says_so() -> None:
    assert chance(1e-3, 1e-3) == (
        True,
        "different from the default's results, but no farther from a float64 reference",
    )
    assert chance(1e-5, 1e-3)[0]
    assert chance(2.5e-3, 1e-3)[0]  # 100 elements: 2.6 times


def test_what_is_truly_farther_fails_and_says_by_how_much() -> None:
    passed, reason = chance(1e-2, 1e-3)
    assert not passed
    assert reason == "output out after 1 step: 3.8 times what its distance from a float64 reference may be"
    assert not chance(4e-3, 1e-7)[0]  # bfloat16 accumulation where the default has float32


def test_no_distance_excuses_wrong_masks_a_stale_leaf_or_a_missing_output() -> None:
    assert not chance(1e-3, 1e-3, masks_equal=False)[0]
    stale = [msgspec.structs.replace(CLOSE[0], moves=True)]
    refused = reply((dataclasses.replace(leaf(1e-2), still=True),))
    fine = reply((leaf(1e-3),))
    assert second_chance(refused, stale, precise=fine, control=fine)[0] is False
    assert second_chance(reply(()), CLOSE, precise=fine, control=fine)[0] is False
    assert second_chance(reply((leaf(1e-2),)), CLOSE, precise=reply(()), control=fine)[0] is False


def test_a_statistic_that_is_no_number_is_never_near() -> None:
    assert not chance(math.nan, 1e-3)[0]


def test_integers_may_differ_from_the_truth_as_often_as_the_defaults_do() -> None:
    assert chance(0.03, 0.03, dtype="int32")[0]
    assert not chance(0.03, 0.0, dtype="int32")[0]
    assert not chance(0.5, 0.02, dtype="int32")[0]


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
