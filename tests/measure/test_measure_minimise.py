"""Minimising: total losses, what to time next, and which reduced config is chosen."""

from __future__ import annotations

import itertools
import math

import pytest
from measure_samples import known

from tuner.knobs.config import Config
from tuner.measure import Estimate, allowed_loss, not_inferior, smallest_not_inferior

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


def subsets(full: str) -> list[frozenset[str]]:
    """All proper, non-empty ones."""
    return [frozenset(c) for n in range(1, len(full)) for c in itertools.combinations(full, n)]


def test_small_losses_that_add_up_are_not_let_through() -> None:
    """Every setting is worth 0.1 %: each drop alone is harmless against the config before it, all together are not."""

    def against_full(kept: frozenset[str]) -> Estimate:
        return known(-0.001 * (8 - len(kept)), 0.0004)

    measured = {s: against_full(s) for s in subsets("abcdefgh")}
    chosen, resolved = smallest_not_inferior(measured, full=frozenset("abcdefgh"), allowed=0.0025)
    assert len(chosen) == 6
    assert resolved


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
    measured = {s: known(0.0 if vital <= s else -0.03, 0.001) for s in subsets("abcdefg")}
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
