"""What XLA_FLAGS can carry is asked beside the first start, and given up with it."""

from __future__ import annotations

import threading

import pytest

from tuner.errors import SessionEnded, TunerError
from tuner.protocol.failure import Failure, FailureClass
from tuner.session import FakeMachine
from tuner.store.events import StageFinished
from tuner.store.records import ProbeRecord


class Stuck:
    """A session that says nothing until somebody else closes it."""

    ended = None

    def __init__(self, launch):
        self.launch = launch
        self.closed = threading.Event()

    def start(self):
        assert self.closed.wait(30), "nobody gave it up"
        raise SessionEnded(Failure(kind=FailureClass.INTERRUPTED, phase="load", message="closed"))

    def close(self):
        self.closed.set()


class OneStuck(FakeMachine):
    """On it the process that is to name unknown flags never ends by itself."""

    stuck = None

    def factory(self, launch):
        if launch.name != "flags":
            return super().factory(launch)
        self.stuck = Stuck(launch)
        return self.stuck


def left(outcome):
    record = next(
        e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, ProbeRecord)
    )
    return {status.name: status for status in record.left}


def test_what_only_the_compiler_takes_is_left_out_with_the_reason(tune_on):
    found = left(tune_on(FakeMachine(option_only={"xla_good"}), budget_s=20.0))["xla_good"]
    assert (found.status, "compile option only" in found.reason) == ("unsupported", True)


@pytest.mark.slow
def test_a_refused_value_hides_no_unknown_name(tune_on):
    """The parser ends at the first value that it can't read, and names no unknown flag then: it is asked again."""
    machine = FakeMachine(option_types={"xla_good": "int32"}, option_only={"xla_bad"})
    found = left(tune_on(machine, budget_s=20.0))
    assert "compile option only" in found["xla_bad"].reason
    assert sum(session.launch.name == "flags" for session in machine.sessions) == 2


@pytest.mark.slow
def test_a_first_process_that_fails_gives_the_question_up(tune_on):
    """Its failure is told at once, however long the parser's process would have taken."""
    machine = OneStuck(max_sessions=0)
    with pytest.raises(TunerError):
        tune_on(machine)
    assert machine.stuck.closed.is_set()
