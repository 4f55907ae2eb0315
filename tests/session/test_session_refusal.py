"""What a user is told where a process can't start for something that they wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import FlagsError, TunerError, UsageError, WorkloadError
from tuner.protocol.failure import Failure, FailureClass
from tuner.session.refusal import refusal

LOGS = Path("store/logs")
SAID = ("usage: train.py --out OUT", "train.py: error: the following arguments are required: --out")


def told(
    kind: FailureClass, *, message: str = "it failed", traceback: str = "", flags: str = "", log: Path | None = LOGS
) -> tuple[type[TunerError] | None, str, str, tuple[str, ...]]:
    failure = Failure(kind=kind, phase="load", message=message, traceback=traceback, log_tail=SAID)
    found = refusal(failure, workload=Path("train.py"), flags=flags, log=log)
    return (None, "", "", ()) if found is None else (type(found), found.where, found.next, found.log)


def test_a_workload_that_fails_is_named_with_the_log_that_stays() -> None:
    assert told(FailureClass.WORKLOAD) == (
        WorkloadError,
        "train.py",
        "fix the workload; the whole log is in store/logs",
        (),
    )


def test_a_log_that_is_gone_with_the_command_isnt_named_but_quoted() -> None:
    assert told(FailureClass.WORKLOAD, log=None) == (WorkloadError, "train.py", "fix the workload", SAID)


def test_a_script_that_ends_itself_is_quoted_and_its_arguments_have_a_place() -> None:
    _, _, advice, log = told(FailureClass.WORKLOAD, traceback="…\nSystemExit: 2\n\nThe above exception …")
    assert log == SAID
    assert "as in tune train.py -- ARGUMENT..." in advice
    assert advice.endswith("; the whole log is in store/logs")


def test_a_module_that_is_missing_may_be_in_another_interpreter() -> None:
    message = "the script raised ModuleNotFoundError: No module named 'brax' (wrappers.py:9)"
    _, _, advice, _ = told(FailureClass.WORKLOAD, message=message)
    assert "name the interpreter that has it with --python" in advice


@pytest.mark.parametrize("kind", [FailureClass.UNSUPPORTED, FailureClass.BAD_VALUE])
def test_flags_are_to_blame_only_where_some_are_set(kind: FailureClass) -> None:
    assert told(kind, flags="inherited XLA_FLAGS")[:2] == (FlagsError, "inherited XLA_FLAGS")
    assert told(kind)[0] is None


def test_a_platform_that_isnt_there_is_the_users_and_a_crash_is_not() -> None:
    assert told(FailureClass.PLATFORM)[:2] == (UsageError, "--platform")
    assert told(FailureClass.CRASH, flags="inherited XLA_FLAGS")[0] is None
