"""Every exception becomes what, where, what next, and an exit code."""

from __future__ import annotations

import errno

import click
import pytest

from tuner.cli.boundary import Trouble, describe, show_trouble
from tuner.errors import (
    DeviceBusy,
    FlagsError,
    Interrupted,
    SessionEnded,
    SpaceError,
    StoreError,
    TunerError,
    UsageError,
    WorkloadError,
)
from tuner.protocol.failure import Failure, FailureClass


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (TunerError, 1),
        (StoreError, 1),
        (UsageError, 2),
        (SpaceError, 2),
        (WorkloadError, 2),
        (FlagsError, 2),
        (DeviceBusy, 75),
        (Interrupted, 130),
    ],
)
def test_an_error_of_ours_is_told_as_it_is_with_its_code(kind: type[TunerError], code: int) -> None:
    trouble = describe(kind("that is so", where="here", next="do this"))
    assert (trouble.what, trouble.where, trouble.next, trouble.exit_code) == ("that is so", "here", "do this", code)


def test_the_end_of_a_worker_shows_its_last_lines() -> None:
    log = tuple(f"line {number}" for number in range(9))
    failure = Failure(kind=FailureClass.CRASH, phase="compile", message="SIGSEGV", log_tail=log)
    trouble = describe(SessionEnded(failure))
    assert trouble.log == log[-5:]
    assert (trouble.what, trouble.where, trouble.exit_code) == ("SIGSEGV", "compile", 1)
    assert "log" in trouble.next
    assert "the same command" in trouble.next


@pytest.mark.parametrize(
    ("number", "what"),
    [(errno.ENOSPC, "no space"), (errno.EROFS, "read-only"), (errno.EACCES, "permission"), (errno.EDQUOT, "quota")],
)
def test_a_disk_that_cannot_be_written_is_no_defect(number: int, what: str) -> None:
    trouble = describe(OSError(number, "as the system says", "/runs/events.jsonl"))
    assert what in trouble.what
    assert trouble.where == "/runs/events.jsonl"
    assert "--store" in trouble.next
    assert trouble.exit_code == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_anywhere_ends_with_130(error: BaseException) -> None:
    assert (describe(error).exit_code, describe(error).kind) == (130, "interrupted")


def test_an_unexpected_exception_says_where_and_points_to_debug() -> None:
    try:
        raise KeyError("lane")
    except KeyError as error:
        trouble = describe(error)
    assert trouble.what == "KeyError: 'lane'"
    assert "test_cli_boundary.py:" in trouble.where
    assert "--debug" in trouble.next
    assert trouble.exit_code == 1


def test_an_exception_without_text_or_traceback_is_still_told() -> None:
    assert describe(ValueError()).what == "ValueError"
    assert describe(FileNotFoundError(errno.ENOENT, "No such file", "x")).what.startswith("FileNotFoundError")


def test_trouble_is_printed_on_stderr_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_trouble(Trouble(what="that is so", where="here", next="do this", log=("a", "b")))
    show_trouble(Trouble(what="only that"))
    show_trouble(Trouble(what="interrupted", kind="interrupted"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "tune: error: that is so\n  where: here\n  log: a\n  log: b\n  next: do this\n"
        "tune: error: only that\n"
        "tune: interrupted\n"
    )
