"""Whom a gang's end is due to: the dead before those that followed, the silent, the one that is behind."""

from __future__ import annotations

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Progress
from tuner.session.blame import Heard, culprit

DEATH = Failure(kind=FailureClass.CRASH, phase="round", message="Check failed: x", signal="SIGSEGV")
FOLLOWED = Failure(
    kind=FailureClass.CRASH,
    phase="round",
    message="F0101 00:00:00.000000 1 client.h:80] Terminating process because the JAX distributed service detected "
    "fatal errors. This most likely indicates that another task died",
    signal="SIGABRT",
)
LATE = Failure(kind=FailureClass.TIMEOUT, phase="round", message="no answer in round within 5 s")


def heard(steps: int = 0, *, silent_s: float = 0.1, waiting: bool = False, ended: Failure | None = None) -> Heard:
    return Heard(progress=Progress(op="round", steps=steps, waiting=waiting), silent_s=silent_s, ended=ended)


def test_the_one_that_was_seen_dead_is_to_blame_if_the_others_live() -> None:
    assert culprit(1, DEATH, [heard(), heard(ended=DEATH)]) == (1, DEATH)


def test_a_rank_that_followed_another_into_death_is_not_to_blame() -> None:
    assert culprit(0, FOLLOWED, [heard(ended=FOLLOWED), heard(ended=FOLLOWED), heard(ended=DEATH)]) == (2, DEATH)


def test_of_several_that_died_by_themselves_the_first_rank_is_named() -> None:
    ranks = [heard(ended=FOLLOWED), heard(ended=DEATH), heard(ended=DEATH)]
    assert culprit(0, FOLLOWED, ranks)[0] == 1


def test_a_silent_rank_is_why_the_others_gave_up() -> None:
    rank, failure = culprit(0, FOLLOWED, [heard(ended=FOLLOWED), heard(silent_s=11.0)])
    assert (rank, failure.kind, failure.signal) == (1, FailureClass.TIMEOUT, None)
    assert "rank 1 gave no sign of life for 11 s" in failure.message


def test_if_all_followed_and_none_is_silent_the_first_seen_stays() -> None:
    assert culprit(1, FOLLOWED, [heard(ended=FOLLOWED), heard(ended=FOLLOWED)]) == (1, FOLLOWED)


def test_when_time_is_up_a_silent_rank_is_late() -> None:
    rank, failure = culprit(0, LATE, [heard(9), heard(4, silent_s=5.0)])
    assert rank == 1
    assert failure.message == "no answer in round within 5 s; rank 1 gave no sign of life for 5 s"


def test_when_time_is_up_the_one_that_does_not_wait_is_late() -> None:
    rank, failure = culprit(0, LATE, [heard(7, waiting=True), heard(7), heard(7, waiting=True)])
    assert rank == 1
    assert "rank 1 is behind at step 7, rank 0 at step 7" in failure.message


def test_when_time_is_up_the_one_with_fewest_steps_is_late() -> None:
    assert culprit(0, LATE, [heard(7), heard(5), heard(7)])[0] == 1


def test_when_nothing_tells_them_apart_the_first_asked_stays() -> None:
    assert culprit(0, LATE, [heard(7), heard(7)]) == (0, LATE)
    assert culprit(0, LATE, [heard(7, silent_s=9.0), heard(7, silent_s=9.0)]) == (0, LATE)
