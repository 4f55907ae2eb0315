"""Interval arithmetic against hand-made cases, and against counting moments one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.profile.intervals import Interval, clipped, gaps, intersection, length, shares, union

_INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def _moments(intervals: list[Interval]) -> set[int]:
    return {t for start, end in intervals for t in range(int(start), int(end))}


def test_a_union_merges_what_overlaps_or_touches_and_drops_what_is_empty() -> None:
    assert union([(5, 7), (0, 2), (2, 3), (6, 9), (4, 4), (8, 1)]) == [(0, 3), (5, 9)]


def test_gaps_begin_and_end_with_what_they_are_in() -> None:
    assert gaps((0, 10), [(2, 3), (5, 12)]) == [(0, 2), (3, 5)]
    assert gaps((0, 10), []) == [(0, 10)]
    assert gaps((0, 10), [(-1, 11)]) == []


def test_a_moment_is_shared_equally_and_by_the_lowest_rank_alone() -> None:
    owned = [((0, 4), "a"), ((2, 6), "b"), ((0, 10), "loop")]
    assert shares(owned, rank={"loop": 1}) == {"a": 3.0, "b": 3.0, "loop": 4.0}


def test_an_owner_that_is_active_twice_counts_once() -> None:
    assert shares([((0, 4), "a"), ((0, 4), "a"), ((0, 4), "b")]) == {"a": 2.0, "b": 2.0}


@given(_INTERVALS)
def test_unions_are_in_order_and_hold_the_same_moments(intervals: list[Interval]) -> None:
    merged = union(intervals)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))
    assert _moments(merged) == _moments(intervals)
    assert length(intervals) == len(_moments(intervals))


@given(_INTERVALS, _INTERVALS)
def test_intersections_hold_the_moments_of_both(one: list[Interval], other: list[Interval]) -> None:
    assert _moments(intersection(one, other)) == _moments(one) & _moments(other)


@given(_INTERVALS, st.integers(0, 15), st.integers(15, 30))
def test_gaps_and_what_is_busy_make_up_the_whole(intervals: list[Interval], start: int, end: int) -> None:
    free = gaps((start, end), intervals)
    assert _moments(free) == set(range(start, end)) - _moments(intervals)
    assert length(free) + length(clipped(intervals, (start, end))) == end - start


@given(st.lists(st.tuples(st.tuples(st.integers(0, 30), st.integers(0, 30)), st.sampled_from("abc")), max_size=12))
def test_shares_sum_to_the_union(owned: list[tuple[Interval, str]]) -> None:
    assert sum(shares(owned, rank={"c": 1}).values()) == pytest.approx(length(i for i, _ in owned))
