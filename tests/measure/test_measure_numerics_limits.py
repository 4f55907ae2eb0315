"""The gate's limits, the same for integers and for what a step did to its inputs, and the second chance."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from measure_step import leaf, reply

from tuner.measure import Tolerance, epsilon, judge, second_chance, tolerances
from tuner.protocol.messages import LeafStats

pytestmark = pytest.mark.slow  # simulates

# -- limits ------------------------------------------------------------------------------------------------------------


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
