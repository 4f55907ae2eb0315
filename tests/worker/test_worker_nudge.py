"""Moving inputs by one unit in the last place."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

from tuner.worker.nudge import nudged

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
BYTES = ["e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"]
NARROW = [np.float16, ml_dtypes.bfloat16, *(getattr(ml_dtypes, f"float8_{name}") for name in BYTES)]


def _ordered(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order, one apart if they are neighbours."""
    bits = 8 * values.dtype.itemsize
    raw = values.view(f"u{values.dtype.itemsize}").astype(object)
    sign = 1 << (bits - 1)
    return np.array([sign - int(x) if int(x) & sign else int(x) for x in raw.ravel()], dtype=object)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_value_moves_to_a_neighbour_some_up_some_down(dtype: type) -> None:
    values = np.linspace(-3, 3, 101).astype(np.float32).astype(dtype)
    values = values[np.abs(values.astype(np.float32)) > 0.1]
    moved = nudged(values, 0)
    assert moved.dtype == values.dtype
    steps = _ordered(moved) - _ordered(values)
    assert set(steps.tolist()) == {-1, 1}


def _all_bits(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Every value that a narrow dtype has, eight times; and as bits."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    raw = np.tile(np.arange(1 << 8 * unsigned.itemsize, dtype=unsigned), 8)
    return raw.view(dtype), raw


@pytest.mark.parametrize("dtype", NARROW)
def test_of_all_bit_patterns_finite_numbers_move_to_a_neighbour_and_others_stay(dtype: type) -> None:
    values, raw = _all_bits(dtype)
    with np.errstate(all="ignore"):
        still = ~np.isfinite(values) | (values == 0)
    moved = nudged(values, 0)
    steps = moved.view(raw.dtype).astype(int) - raw.astype(int)
    assert set(steps[still].tolist()) == {0}
    assert set(steps[~still].tolist()) == {-1, 1}
    assert np.isfinite(moved[~still]).all()
    assert (moved[~still] != 0).all()
    both = {-1: set(), 1: set()}
    for step, value in zip(steps[~still].tolist(), raw[~still].tolist(), strict=True):
        both[step].add(value)
    assert len(both[-1] & both[1]) > 0.9 * len(both[-1] | both[1]), "up and down"


@pytest.mark.parametrize("size", [1.0, 1.5, 16.0, 300.0])
@pytest.mark.parametrize("dtype", NARROW)
def test_of_all_bit_patterns_a_rounding_error_is_added_in_float32(dtype: type, size: float) -> None:
    """By the casts of ml_dtypes: payloads of NaN, infinities, subnormals and the ends of the range included."""
    values, raw = _all_bits(dtype)
    grain, part = 2.0**-1, 1 << 16
    with np.errstate(all="ignore"):
        wide = values.astype(np.float32)
        power = np.where(np.abs(wide) >= 2.0**-126, 2.0 ** np.floor(np.log2(np.abs(wide))), 0).astype(np.float32)
        draws = np.concatenate(
            [
                np.random.default_rng((4, i)).random(min(part, wide.size - i * part), np.float32)
                for i in range(-(-wide.size // part))
            ]
        )
        moved = wide + (draws - np.float32(0.5)) * np.float32(grain * size) * power
        rounded = moved.astype(dtype)
        kept = ~np.isfinite(rounded) | (rounded == 0) | (np.signbit(moved) != np.signbit(wide))
    expected = np.where(kept, raw, rounded.view(raw.dtype))
    assert np.array_equal(nudged(values, 4, grain=grain, size=size).view(raw.dtype), expected)
    assert 0 < np.mean(kept) < 0.9


@pytest.mark.parametrize("grain", [0.0, 2.0**-7])
def test_how_many_threads_there_are_makes_no_difference(grain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.linspace(1, 2, 2_000_000).astype(ml_dtypes.bfloat16)
    found = []
    for cores in (1, 3, 8):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        found.append(nudged(values, (3, 1), grain=grain).view(np.uint16))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("dtype", FLOATS)
def test_zero_nan_and_the_largest_value_stay_in_place_or_finite(dtype: type) -> None:
    largest, smallest = ml_dtypes.finfo(dtype).max, ml_dtypes.finfo(dtype).smallest_subnormal
    values = np.array([0.0, -0.0, np.nan, float(largest), -float(largest), float(smallest)], np.float64).astype(dtype)
    for seed in range(8):
        moved = nudged(values, seed).astype(np.float64)
        assert moved[0] == 0.0
        assert moved[1] == 0.0
        assert np.signbit(moved[1])
        assert np.isnan(moved[2])
        assert 0 < moved[3] < float(largest)
        assert -float(largest) < moved[4] < 0
        assert moved[5] > float(smallest)


@pytest.mark.parametrize("grain", [0.0, 2.0**-7])
def test_a_whole_part_of_zeros_stays(grain: float) -> None:
    """As an optimiser's state is at first; signs of zeros too."""
    values = np.zeros((2, 1 << 17), np.float32)
    values[1] = -0.0
    values[1, 5] = 1.0
    moved = nudged(values, 0, grain=grain)
    assert np.flatnonzero(moved).tolist() == [(1 << 17) + 5]
    assert (np.signbit(moved) == np.signbit(values)).all()


def test_infinities_stay() -> None:
    assert nudged(np.array([np.inf, -np.inf], np.float32), 0).tolist() == [np.inf, -np.inf]


def test_equal_seeds_move_alike_and_others_otherwise() -> None:
    values = np.ones(64, np.float32)
    assert np.array_equal(nudged(values, 1), nudged(values, 1))
    assert not np.array_equal(nudged(values, 1), nudged(values, 2))


def test_complex_parts_move_and_other_dtypes_do_not() -> None:
    values = np.full((2, 3), 1 + 2j, np.complex64)
    moved = nudged(values, 0)
    assert moved.shape == (2, 3)
    assert np.all(moved.real != 1)
    assert np.all(moved.imag != 2)
    powers = np.array([1.0, 2.0], ml_dtypes.float8_e8m0fnu)  # scales without a mantissa: one ulp would double them
    for untouched in (np.arange(3), np.array([True, False]), np.array([1, 2], ml_dtypes.int4), powers):
        assert np.array_equal(nudged(untouched, 0), untouched)


def test_a_scalar_and_an_empty_array_keep_their_shapes() -> None:
    assert nudged(np.array(1.0, np.float32), 0).shape == ()
    assert nudged(np.zeros((0, 3), np.float32), 0).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_with_a_coarser_grain_values_move_as_one_more_rounding_would_move_them(dtype: type) -> None:
    values = np.geomspace(1e-3, 1e3, 4000).astype(dtype) * np.where(np.arange(4000) % 2, 1, -1)
    moved = nudged(values, 0, grain=2.0**-7)
    assert moved.dtype == values.dtype
    rounded = values.astype(ml_dtypes.bfloat16).astype(dtype)
    shifts, errors = np.abs(moved - values) / np.abs(values), np.abs(rounded - values) / np.abs(values)
    assert shifts.max() <= 2.0**-8
    assert np.sqrt(np.mean(shifts**2)) == pytest.approx(np.sqrt(np.mean(errors**2)), rel=0.05)
    assert abs(np.mean((moved - values) / values)) < 1e-4
    assert np.array_equal(nudged(values.astype(ml_dtypes.bfloat16), 3, grain=2.0**-23), nudged(rounded.astype(
        ml_dtypes.bfloat16), 3)), "a finer grain than their own does nothing"  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_size_moves_them_by_as_much_more(dtype: type) -> None:
    values = np.linspace(1, 1.9, 500).astype(dtype)
    eps = float(ml_dtypes.finfo(dtype).eps)
    shifts = nudged(values, 0, size=16.0).astype(np.float64) - values.astype(np.float64)
    assert 6 * eps < np.abs(shifts).max() <= 8.5 * eps
    assert len(set(shifts.tolist())) > 8


def test_zeros_infinities_and_signs_stay_whatever_the_grain() -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, 1e-45, -1e-30], np.float32)
    for seed in range(20):
        moved = nudged(values, seed, grain=2.0**-7, size=16.0)
        assert moved[:4].tolist() == [0.0, 0.0, np.inf, -np.inf]
        assert np.isnan(moved[4])
        assert np.isfinite(moved[5:]).all()
        assert (np.signbit(moved) == np.signbit(values)).all()
        assert (moved[5:] != 0).all()


@pytest.mark.parametrize("grain", [0.0, 2.0**-8])
def test_every_part_of_a_large_array_moves_by_draws_of_its_own(grain: float) -> None:
    values = np.ones((3, 1 << 18), np.float32)
    moved = nudged(values, (1, 5), grain=grain)
    assert moved.shape == values.shape
    assert np.array_equal(moved, nudged(values, (1, 5), grain=grain))
    assert not np.array_equal(moved[0], moved[1])
    assert not np.array_equal(moved[1], moved[2])
    assert np.mean(moved != values) > 0.9
