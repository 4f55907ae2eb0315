"""Failure classes and whom they blame."""

from __future__ import annotations

from tuner.protocol.failure import FailureClass


def test_what_the_users_file_does_under_a_candidates_settings_is_their_doing() -> None:
    """The default was built before any candidate: `build(mode="b")` that raises ranks worst, as a crash does. What
    befalls a candidate from outside doesn't."""
    blamed = {kind for kind in FailureClass if kind.caused_by_config}
    assert {FailureClass.WORKLOAD, FailureClass.CRASH, FailureClass.WRONG_RESULT} <= blamed
    assert set(FailureClass) - blamed == {
        FailureClass.INVALID_TIME,
        FailureClass.PLATFORM,
        FailureClass.PROTOCOL,
        FailureClass.INTERRUPTED,
    }
