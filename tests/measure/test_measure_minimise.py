"""Minimising: total losses, what to time next, and which reduced config is chosen."""

from __future__ import annotations

import itertools
import math

import pytest
from measure_samples import known

from tuner.knobs.config import Config
from tuner.measure import Estimate, allowed_loss, next_drops, not_inferior, smallest_not_inferior

MARGIN = 0.005
UNKNOWN = Estimate(gain=0.0, se=math.inf, low=-math.inf, high=math.inf, n=1)


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_the_allowance_is_half_the_margin_but_at_most_a_fifth_of_the_gain() -> None:
    assert allowed_loss(0.05, MARGIN) == pytest.approx(0.0025)
    assert allowed_loss(0.006, MARGIN) == pytest.approx(0.0012)
    assert allowed_loss(0.0, MARGIN) == allowed_loss(-0.01, MARGIN) == 0.0


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (known(0.0, 0.002), True),
        (known(-0.002, 0.0004), True),
        (known(-0.002, 0.001), False),  # might lose 0.3 %
        (known(0.001, 0.01), False),  # looks better, but nothing is certain
        (UNKNOWN, False),
    ],
)
def test_only_a_loss_that_is_certainly_small_is_no_loss(estimate: Estimate, expected: bool) -> None:
    assert not_inferior(estimate, 0.0025) is expected


def test_of_few_settings_all_subsets_are_timed_smallest_first() -> None:
    assert next_drops("ba", {}, allowed=0.002) == (some("a"), some("b"))
    three = next_drops("abc", {}, allowed=0.002)
    assert three == (some("a"), some("b"), some("c"), some("a", "b"), some("a", "c"), some("b", "c"))
    assert len(next_drops("abcde", {}, allowed=0.002)) == 2**5 - 2
    assert next_drops("a", {}, allowed=0.002) == next_drops("", {}, allowed=0.002) == ()


def test_what_was_timed_is_not_asked_for_again() -> None:
    measured = {some("a"): known(0.0, 0.001)}
    assert next_drops("ab", measured, allowed=0.002) == (some("b"),)


def test_many_settings_go_one_by_one_until_all_subsets_can_be_timed() -> None:
    full = "abcdefg"
    first = next_drops(full, {}, allowed=0.002)
    assert first == tuple(frozenset(full) - {name} for name in full)
    measured = {s: known(-0.01, 0.001) for s in first}
    measured[frozenset("abcdef")] = known(0.0, 0.001)  # only g is idle
    second = next_drops(full, measured, allowed=0.002)
    assert second == tuple(frozenset("abcdef") - {name} for name in "abcdef")
    measured |= {s: known(-0.0005, 0.001) for s in second}
    measured[frozenset("abcde")] = known(-0.0001, 0.001)
    last = next_drops(full, measured, allowed=0.002)
    assert len(last) == 2**5 - 2
    assert all(s < frozenset("abcde") for s in last)


def test_small_losses_that_add_up_are_not_let_through() -> None:
    """Every setting is worth 0.1 %: each drop alone is harmless against the config before it, all together are not."""

    def against_full(kept: frozenset[str]) -> Estimate:
        return known(-0.001 * (8 - len(kept)), 0.0004)

    measured: dict[frozenset[str], Estimate] = {}
    while todo := next_drops("abcdefgh", measured, allowed=0.0025):
        measured |= {s: against_full(s) for s in todo}
    chosen, resolved = smallest_not_inferior(measured, full=frozenset("abcdefgh"), allowed=0.0025)
    assert len(chosen) == 6
    assert resolved


def test_where_every_setting_matters_nothing_more_is_timed() -> None:
    measured = {frozenset("abcdefg") - {name}: known(-0.01, 0.001) for name in "abcdefg"}
    assert next_drops("abcdefg", measured, allowed=0.002) == ()
    assert smallest_not_inferior(measured, full=frozenset("abcdefg"), allowed=0.002) == (frozenset("abcdefg"), True)


def test_fewer_settings_win_and_the_better_estimate_among_equally_many() -> None:
    estimates = {
        some("a", "b"): known(0.001, 0.001),
        some("a"): known(-0.0005, 0.001),
        some("b"): known(-0.0001, 0.001),
        some("c"): known(-0.02, 0.001),
    }
    assert smallest_not_inferior(estimates, full=some("a", "b", "c"), allowed=0.002) == (some("b"), True)


def test_noise_that_hides_whether_less_would_do_is_not_called_resolved() -> None:
    estimates = {some("a"): known(-0.001, 0.004), some("b"): known(-0.02, 0.004)}
    assert smallest_not_inferior(estimates, full=some("a", "b"), allowed=0.002) == (some("a", "b"), False)
    assert smallest_not_inferior({some("a"): UNKNOWN}, full=some("a", "b"), allowed=0.002) == (some("a", "b"), False)


def test_configs_can_be_chosen_among_as_well() -> None:
    full = Config.of({"x": "1", "y": "2"})
    estimates = {full.drop("x"): known(0.0, 0.001), full.drop("y"): known(-0.05, 0.001)}
    assert smallest_not_inferior(estimates, full=full, allowed=0.002) == (full.drop("x"), True)


@pytest.mark.parametrize("vital", [set(), {"a"}, {"b", "d"}, {"a", "c", "e"}, set("abcdefg")])
def test_the_settings_that_matter_are_what_is_left(vital: set[str]) -> None:
    """Whatever subset carries the gain: only supersets of it keep up with the full winner."""
    full = frozenset("abcdefg")
    measured: dict[frozenset[str], Estimate] = {}
    for _ in range(10):
        todo = next_drops(full, measured, allowed=0.002)
        measured |= {s: known(0.0 if vital <= s else -0.03, 0.001) for s in todo}
    chosen, resolved = smallest_not_inferior(measured, full=full, allowed=0.002)
    assert resolved
    assert chosen >= vital
    assert len(chosen) == max(1, len(vital))


def test_an_interaction_is_found_that_leaving_one_out_would_miss() -> None:
    """Either of two settings does the whole job: neither seems to matter alone, and one of them must stay."""
    measured = {
        frozenset(s): known(0.0 if {"a", "b"} & set(s) else -0.03, 0.001)
        for n in (1, 2)
        for s in itertools.combinations("abc", n)
    }
    chosen, _ = smallest_not_inferior(measured, full=frozenset("abc"), allowed=0.002)
    assert chosen in (some("a"), some("b"))
