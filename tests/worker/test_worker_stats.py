"""Distances between a candidate's output leaf and the reference's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tuner.worker import on_device, on_host
from tuner.worker.stats import MAX_RATIO, Difference, Start

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(3)


def compared(reference: Array, candidate: Array, start: Start | None = None) -> Difference:
    """One leaf by itself."""
    (found,) = on_host.compared([reference], [candidate], [] if start is None else [start])
    return found


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


@pytest.mark.parametrize("block", [3, 8, 40])  # less than a row along the last axis, than a slice of the first, several
def test_cutting_into_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    reference = RNG.normal(size=(9, 5, 4))
    candidate = reference * (1 + 1e-3 * RNG.normal(size=reference.shape))
    candidate[7, 1, 1] = np.nan
    whole = compared(reference, candidate)
    monkeypatch.setattr(on_host, "_BLOCK", block)
    cut = compared(reference, candidate)
    start = 0.9 * reference
    moved = compared(reference, candidate, Start(start, start))
    assert moved.moved_l2 == pytest.approx(10 * cut.l2, rel=1e-9)
    assert cut.l2 == pytest.approx(whole.l2, rel=1e-12)
    assert cut.slope == pytest.approx(whole.slope, rel=1e-12)
    assert not cut.masks_equal


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks' sums are added up in their order, bit for bit."""
    monkeypatch.setattr(on_host, "_BLOCK", 500)
    with ThreadPoolExecutor(3) as pool:
        for shape in ((90, 80), (20, 4)):
            references = list(RNG.normal(size=(30, *shape)))
            candidates = [reference + 1e-3 * RNG.normal(size=shape) for reference in references]
            starts = [Start(0.9 * reference, 0.8 * reference) for reference in references]
            alone = on_host.compared(references, candidates, starts)
            assert on_host.compared(references, candidates, starts, each=pool.map) == alone


DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex64, np.complex128]


def group(dtype: Any, shape: tuple[int, ...], *, nudged: bool) -> tuple[list[Array], list[Array], list[Start]]:
    """Seven leaves: near its reference, equal, with NaN and infinities at other places, alike there, standing still,
    standing still as the reference does, and begun as no number."""
    references, candidates, starts = [], [], []
    for i in range(7):
        values = 5 * RNG.normal(size=shape)
        parts = values, values * (1 + 0.1 * RNG.normal(size=shape)), 0.9 * values, 0.8 * values
        reference, candidate, start, moved = (np.asarray(part).astype(dtype) for part in parts)
        moved = moved if nudged else start
        if i == 1:
            candidate, moved = reference.copy(), start
        if i in (2, 3) and dtype not in (np.int32, bool):
            reference.flat[0] = np.nan
            candidate.flat[0 if i == 3 else -1] = np.nan
        if i in (4, 5):
            candidate = moved.copy()
        if i == 5:
            reference = start.copy()
        if i == 6 and dtype not in (np.int32, bool):
            start.flat[0] = moved.flat[0] = np.nan
        references.append(reference)
        candidates.append(candidate)
        starts.append(Start(start, moved))
    return references, candidates, starts


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NaN among what makes a complex NaN
@pytest.mark.parametrize("dtype", [*DTYPES, np.int32, bool])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (4, 5), (2, 3, 4), (3, 1, 2, 2)])
@pytest.mark.parametrize("begun", ["no", "alike", "nudged"])
def test_leaves_compared_together_are_what_each_is_alone(dtype: Any, shape: tuple[int, ...], begun: str) -> None:
    references, candidates, starts = group(dtype, shape, nudged=begun == "nudged")
    given = starts if begun != "no" else []
    found = on_host.compared(references, candidates, given)
    alone = [compared(r, c, s) for r, c, s in zip(references, candidates, given or [None] * 7, strict=True)]
    agree(found, alone, rtol=1e-12)
    assert found[1].l2 == found[1].slope == 0


def agree(found: Sequence[Difference], others: Sequence[Difference], *, rtol: float) -> None:
    for one, other in zip(found, others, strict=True):
        for name, value in vars(one).items():
            expected = getattr(other, name)
            if isinstance(expected, float):
                expected = pytest.approx(expected, rel=rtol, abs=1e-300)
            assert value == expected, (name, one, other)


def test_empty_leaves_are_equal() -> None:
    empty = [np.zeros((0, 3), np.float32)] * 2
    assert [found.l2 for found in on_host.compared(empty, empty, [Start(*empty)] * 2)] == [0, 0]


def test_leaves_of_very_different_sizes_are_scaled_each_by_itself() -> None:
    references = [np.full((2, 3), size) for size in (1e300, 1.0, 1e-300, 0.0)]
    found = on_host.compared(references, [1.5 * reference for reference in references])
    assert [one.l2 for one in found] == pytest.approx([0.5, 0.5, 0.5, 0.0])
    assert [one.slope for one in found] == pytest.approx([0.5, 0.5, 0.5, 0.0])


@pytest.mark.jax
def test_the_accelerators_way_agrees_with_the_hosts() -> None:
    """Each leaf of a group as it is alone on the host, wide references of narrow results too."""
    import jax

    def call(function: Any, *args: Any) -> Any:
        return function(*args)

    for dtype, shape, begun in (
        (np.float32, (), "no"),
        (np.float32, (4, 5, 6), "alike"),
        (np.float64, (6,), "nudged"),  # the reference: an accelerator's candidates are of float32
        (ml_dtypes.bfloat16, (2, 3), "nudged"),
        (np.complex64, (), "no"),
        (np.complex64, (4, 5), "nudged"),
        (np.int32, (4, 5), "nudged"),
        (bool, (), "no"),
    ):
        references, candidates, starts = group(dtype, shape, nudged=begun == "nudged")
        narrow = np.float32 if dtype is np.float64 else dtype
        candidates = [candidate.astype(narrow) for candidate in candidates]
        starts = [Start(s.reference.astype(narrow), s.candidate.astype(narrow)) for s in starts]
        given = starts if begun != "no" else []
        found = on_device.begun(references, list(map(jax.device_put, candidates)), given, run=call)()
        agree(found, on_host.compared(references, candidates, given), rtol=1e-6)
    assert not jax.config.jax_enable_x64
