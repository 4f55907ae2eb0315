"""Distances between a candidate's output leaf and the reference's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tuner.worker import stats
from tuner.worker.stats import MAX_RATIO, Start, compared

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.complex64, np.int32, bool]
)
@pytest.mark.parametrize("shape", [(), (7,), (5, 6), (2, 3, 4)])
def test_equal_arrays_differ_by_exactly_nothing(dtype: type, shape: tuple[int, ...]) -> None:
    values = (3 * RNG.normal(size=shape)).astype(dtype)
    found = compared(values, values.copy())
    assert (found.l2, found.slope, found.masks_equal) == (0.0, 0.0, True)


def test_a_slice_scaled_by_a_percent_shows_in_the_slope_of_its_axis_only_faintly_in_l2() -> None:
    reference = RNG.normal(size=(40, 50))
    candidate = reference.copy()
    candidate[:, 7] *= 1.01
    found = compared(reference, candidate)
    share = np.sum(reference[:, 7] ** 2) / np.sum(reference**2)
    assert found.l2 == pytest.approx(0.01 * np.sqrt(share), rel=1e-6)
    weight = np.sum(reference[:, 7] ** 2) / max(np.sum(reference[:, 7] ** 2), np.mean(np.sum(reference**2, axis=0)))
    assert found.slope >= 0.01 * weight * (1 - 1e-9)
    assert found.slope > 5 * found.l2


def test_noise_without_direction_has_a_small_slope() -> None:
    reference = RNG.normal(size=(64, 64))
    noise = RNG.normal(size=(64, 64)) * 1e-3
    found = compared(reference, reference + noise)
    assert found.l2 == pytest.approx(1e-3, rel=0.1)
    assert found.slope < found.l2


def test_a_slice_of_almost_nothing_is_measured_against_the_usual_slice() -> None:
    reference = np.ones((4, 100))
    reference[0] = 1e-12
    candidate = reference.copy()
    candidate[0] *= 2
    assert compared(reference, candidate).slope < 1e-20


@pytest.mark.parametrize("begin", [np.inf, -np.inf, np.nan])
def test_what_began_as_no_number_is_compared_by_its_value(begin: float) -> None:
    """A running minimum begins at infinity: a wrong one must not hide behind it."""
    start = Start(np.array([begin, 1.0]), np.array([begin, 1.0]))
    reference, wrong = np.array([2.0, 1.5]), np.array([3.0, 1.5])
    found = compared(reference, wrong, start)
    assert found.l2 == pytest.approx(1 / 2.5)
    assert found.moved_l2 is not None
    assert found.moved_l2 > 0.4
    assert compared(reference, reference.copy(), start).l2 == 0.0


def test_masks_of_nan_and_infinities_count_and_the_rest_is_compared() -> None:
    reference = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    assert compared(reference, reference.copy()).masks_equal
    for place, value in ((0, np.nan), (1, 1.0), (2, -np.inf), (3, np.inf), (4, np.inf)):
        candidate = reference.copy()
        candidate[place] = value
        found = compared(reference, candidate)
        assert not found.masks_equal
        assert found.l2 == 0.0


def test_integers_give_the_share_that_differs() -> None:
    reference = np.arange(10)
    candidate = reference.copy()
    candidate[:3] += 1
    assert compared(reference, candidate).l2 == pytest.approx(0.3)
    assert compared(np.array([True, False]), np.array([True, True])).l2 == pytest.approx(0.5)


def test_a_difference_from_zero_is_the_largest_ratio_and_stays_a_json_number() -> None:
    found = compared(np.zeros(3), np.array([0.0, 0.0, 1e-30]))
    assert found.l2 == MAX_RATIO
    assert json.loads(json.dumps(found.l2, allow_nan=False)) == MAX_RATIO


@pytest.mark.parametrize("size", [1e-38, 1e38])
def test_squares_neither_overflow_nor_vanish(size: float) -> None:
    reference = np.full((3, 4), size, np.float32)
    assert compared(reference, reference * np.float32(1.5)).l2 == pytest.approx(0.5, rel=1e-5)
    huge = np.full(4, 1e300)
    assert compared(huge, huge * 1.5).l2 == pytest.approx(0.5)


def test_a_movement_is_compared_with_the_movement() -> None:
    """An update of a thousandth with the wrong sign: the value is off by 0.2 %, the movement by 200 %."""
    start = RNG.normal(size=(30, 20))
    reference = start + 1e-3 * RNG.normal(size=start.shape)
    found = compared(reference, 2 * start - reference, Start(start, start))
    assert found.l2 == pytest.approx(2e-3, rel=0.1)
    assert found.travel == pytest.approx(1e-3, rel=0.1)
    assert found.moved_l2 == pytest.approx(2.0, rel=1e-9)
    assert found.moved_slope == pytest.approx(2.0, rel=1e-9)
    assert not found.still


def test_what_displaced_the_start_is_taken_off() -> None:
    start = RNG.normal(size=(30, 20))
    nudged = start + 1e-2 * RNG.normal(size=start.shape)
    step = 1e-3 * RNG.normal(size=start.shape)
    found = compared(start + step, nudged + step, Start(start, nudged))
    assert found.l2 < 1e-13
    assert found.moved_l2 < 1e-12


def test_a_leaf_that_is_what_it_was_is_still_unless_the_reference_is_too() -> None:
    start = RNG.normal(size=(5, 4)).astype(np.float32)
    moved = start + np.float32(1e-3)
    assert compared(moved, start.copy(), Start(start, start)).still
    assert compared(moved, start.copy(), Start(start, start)).moved_l2 == pytest.approx(1.0)
    rested = compared(start, start.copy(), Start(start, start))
    assert (rested.still, rested.travel, rested.moved_l2, rested.moved_slope) == (False, 0.0, 0.0, 0.0)
    count = np.arange(3)
    assert compared(count + 1, count, Start(count, count)).still
    assert not compared(count + 1, count + 1, Start(count, count)).still


@pytest.mark.parametrize("chunk", [3, 8, 40])  # less than a row along the last axis, than a slice of the first, several
def test_cutting_into_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    reference = RNG.normal(size=(9, 5, 4))
    candidate = reference * (1 + 1e-3 * RNG.normal(size=reference.shape))
    whole = compared(reference, candidate)
    monkeypatch.setattr(stats, "_CHUNK", chunk)
    cut = compared(reference, candidate)
    start = 0.9 * reference
    moved = compared(reference, candidate, Start(start, start))
    assert moved.moved_l2 == pytest.approx(10 * cut.l2, rel=1e-9)
    assert cut.l2 == pytest.approx(whole.l2, rel=1e-12)
    assert cut.slope == pytest.approx(whole.slope, rel=1e-12)


@pytest.mark.jax
def test_the_accelerators_way_agrees_with_the_hosts() -> None:
    code = """
import sys, warnings; warnings.simplefilter("error")
import jax, jax.numpy as jnp, ml_dtypes, numpy as np
from tuner.worker.stats import Start, compared, compared_on_device
call = lambda function, *args: function(*args)
rng = np.random.default_rng(0)
for dtype in (np.float32, ml_dtypes.bfloat16, np.complex64, np.int32):
    for shape in ((), (6,), (4, 5, 6)):
        r = (5 * rng.normal(size=shape)).astype(dtype); c = (r * (1 + 0.02 * rng.normal(size=shape))).astype(dtype)
        if shape == (6,) and dtype == np.float32: r[1], c[2] = np.nan, np.inf
        host, device = compared(r, c), compared_on_device(jnp.asarray(r), jnp.asarray(c), run=call)
        assert host.masks_equal == device.masks_equal
        assert np.allclose([host.l2, host.slope], [device.l2, device.slope], rtol=1e-6, atol=0), (dtype, host, device)
        start = Start((0.9 * r).astype(dtype), (0.8 * r).astype(dtype))
        host, device = compared(r, c, start), compared_on_device(jnp.asarray(r), jnp.asarray(c), start, run=call)
        assert host.still == device.still
        if host.travel is not None:
            numbers = [(d.l2, d.slope, d.travel, d.moved_l2, d.moved_slope) for d in (host, device)]
            assert np.allclose(*numbers, rtol=1e-6, atol=0), (dtype, host, device)
        same = compared_on_device(jnp.asarray(r), jnp.asarray(r), run=call)
        assert (same.l2, same.slope, same.masks_equal) == (0, 0, True)
assert not jax.config.jax_enable_x64
print("agreed")
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "agreed", done.stderr
