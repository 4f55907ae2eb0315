"""When a machine is too unsteady for a verdict, and which verdicts outlast that."""

from __future__ import annotations

import pytest
from measure_samples import known

from tuner.measure import Instability, Verdict, instability, upheld

STEADY = [100.0, 101.0, 99.5, 100.2, 101.5, 100.0]
BUSY = "other processes kept 1.5 of 2 cores busy (9 of 10 turns)"


def test_an_ordinary_drift_is_steady() -> None:
    assert instability(STEADY, spread=0.002) is None
    assert instability([100.0 * 1.007**i for i in range(12)], spread=0.002) is None


def test_a_jump_between_pairs_is_noticed_with_its_numbers() -> None:
    found = instability([126.0, 125.0, 126.5, 150.0, 175.0, 151.0], spread=0.01)
    assert found is not None
    assert "from 125 to 175 ms" in found.seen
    assert 0.08 < found.limit < 0.09


def test_a_machine_whose_baseline_was_as_restless_is_known_to_be_so() -> None:
    levels = [5.0, 5.6, 5.2, 5.9, 5.4, 5.1]
    assert instability(levels, spread=0.002) is not None
    assert instability(levels, spread=0.06) is None


def test_a_few_disturbed_pairs_are_borne_and_many_are_not() -> None:
    assert instability(STEADY, spread=0.002, disturbed=[BUSY, BUSY]) is None
    found = instability(STEADY, spread=0.002, disturbed=["steal", BUSY, BUSY])
    assert found is not None
    assert f"3 of 6 pairs stayed disturbed, for instance: {BUSY}" in found.seen
    assert found.limit == 0.03


def test_a_step_that_never_settled_allows_no_small_claim() -> None:
    found = instability(STEADY, spread=0.002, settled=False)
    assert found is not None
    assert found.limit == 0.03


def test_without_pairs_nothing_was_seen() -> None:
    assert instability([], spread=0.002) is None


@pytest.mark.parametrize(
    ("found", "gain", "half", "expected"),
    [
        (Verdict.FASTER, 0.02, 0.01, Verdict.UNSTABLE),
        (Verdict.FASTER, 0.3, 0.1, Verdict.FASTER),  # far beyond what the machine could have done
        (Verdict.SAME, 0.0, 0.002, Verdict.UNSTABLE),
        (Verdict.UNCLEAR, 0.01, 0.5, Verdict.UNSTABLE),
        (Verdict.SLOWER, -0.3, 0.1, Verdict.SLOWER),
        (Verdict.SLOWER, -0.02, 0.01, Verdict.UNSTABLE),
    ],
)
def test_only_what_is_larger_than_the_instability_outlasts_it(
    found: Verdict, gain: float, half: float, expected: Verdict
) -> None:
    assert upheld(found, known(gain, half), Instability(seen="jumps", limit=0.05)) is expected
    assert upheld(found, known(gain, half), None) is found
