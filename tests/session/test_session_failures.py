"""What a log and an exit say together."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tuner.protocol.failure import FailureClass
from tuner.session.failures import LogExcerpt, death, log_text, read_log
from tuner.session.process import Exit

FATAL = "F1127 23:43:41.430175    7391 parse_flags_from_env.cc:234] "


def log_of(tmp_path: Path, text: str) -> Path:
    log = tmp_path / "worker.log"
    log.write_text(text)
    return log


@pytest.mark.parametrize(
    ("lines", "fatal"),
    [
        (["W1127 23:43:41.430175 1 a.cc:1] odd", FATAL + "Unknown flags", FATAL + "second"], FATAL + "Unknown flags"),
        (["2025-11-27 23:43:41.430175: F external/xla/a.cc:1] Check failed: x"],) * 2,
        (
            [
                "E1127 23:43:42.374299 7398 command_line_flags.cc:93] Couldn't interpret value maybe for flag xla_a.",
                FATAL + "Check failed: tsl::Flags::Parse(…) Flag parsing failed.",
            ],
            "E1127 23:43:42.374299 7398 command_line_flags.cc:93] Couldn't interpret value maybe for flag xla_a.",
        ),
        (
            ["E1127 RESOURCE_EXHAUSTED: retrying", "terminate called after throwing 'std::bad_alloc'", "end"],
            "terminate called after throwing 'std::bad_alloc'",
        ),
        (["E1127 RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes", "bye"],) * 2,
        (
            ["Traceback (most recent call last):", '  File "x", line 1', "a.b.SomeError: no", "noise"],
            "a.b.SomeError: no",
        ),
        (["nothing", "of interest"], ""),
        ([], ""),
    ],
)
def test_the_line_that_explains_an_end_is_found(tmp_path: Path, lines: list[str], fatal: str | list[str]) -> None:
    expected = fatal if isinstance(fatal, str) else fatal[0]
    assert read_log(log_of(tmp_path, "".join(f"{line}\n" for line in lines))).fatal == expected


@pytest.mark.slow
def test_head_and_tail_are_bounded_in_lines_and_length(tmp_path: Path) -> None:
    text = "".join(f"{n} {'x' * 2000}\n" for n in range(1000))
    excerpt = read_log(log_of(tmp_path, text))
    assert excerpt.head[0].startswith("0 x")
    assert excerpt.tail[-1].startswith("999 x") or excerpt.tail[-1].startswith("x")
    assert len(excerpt.head) <= 20
    assert len(excerpt.tail) <= 40
    assert max(map(len, (*excerpt.head, *excerpt.tail))) <= 500


@pytest.mark.slow
def test_the_fatal_line_is_found_at_both_ends_of_a_huge_log(tmp_path: Path) -> None:
    filler = ("x" * 99 + "\n") * 100_000
    assert read_log(log_of(tmp_path, f"{FATAL}first\n{filler}")).fatal == f"{FATAL}first"
    assert read_log(log_of(tmp_path, f"{filler}{FATAL}last\n")).fatal == f"{FATAL}last"


def test_only_what_came_after_the_request_explains_its_end(tmp_path: Path) -> None:
    before = f"old\n{FATAL}survived\n"
    log = log_of(tmp_path, f"{before}new\n")
    assert read_log(log, since=len(before)).fatal == ""
    assert read_log(log, start=4, since=len(before)).head == (f"{FATAL}survived", "new")


def test_bytes_that_are_no_text_and_a_missing_log_do_no_harm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_log(log) == LogExcerpt()
    log.write_bytes(b"\xff\xfe\nend\n")
    assert read_log(log).tail[-1] == "end"


ABORT = Exit(signal=signal.SIGABRT)


@pytest.mark.parametrize(
    ("ended", "fatal", "kind"),
    [
        (Exit(code=1), FATAL + "Unknown flags in XLA_FLAGS: --xla_a=1", FailureClass.UNSUPPORTED),
        (Exit(code=1), "E1127 x] Couldn't interpret value 7 for flag xla_a.", FailureClass.BAD_VALUE),
        (Exit(code=1), FATAL + 'Could not open file "a" to read flags', FailureClass.BAD_VALUE),
        (Exit(code=1), "F1127 23:43:41.4 1 b.cc:1] Check failed: a", FailureClass.FATAL),
        (ABORT, "F1127 23:43:41.4 1 b.cc:1] Check failed: a", FailureClass.CRASH),
        (ABORT, "F1127 23:43:41.4 1 b.cc:1] RESOURCE_EXHAUSTED: CUDA_ERROR_OUT_OF_MEMORY", FailureClass.OUT_OF_MEMORY),
        (ABORT, "terminate called after throwing an instance of 'std::bad_alloc'", FailureClass.HOST_OUT_OF_MEMORY),
        (Exit(signal=signal.SIGILL), "", FailureClass.ILLEGAL_INSTRUCTION),
        (Exit(signal=signal.SIGKILL), "", FailureClass.HOST_OUT_OF_MEMORY),
        (Exit(signal=signal.SIGKILL, by_us=True), "", FailureClass.PROTOCOL),
        (Exit(signal=signal.SIGHUP), "", FailureClass.INTERRUPTED),
        (Exit(signal=signal.SIGBUS), "", FailureClass.CRASH),
        (Exit(code=3), "", FailureClass.FATAL),
        (Exit(code=0), "", FailureClass.PROTOCOL),
    ],
)
def test_the_class_of_an_end(ended: Exit, fatal: str, kind: FailureClass) -> None:
    failure = death(ended, LogExcerpt(fatal=fatal, tail=("last",)), phase="round", greeted=True, command="again")
    assert (failure.kind, failure.phase, failure.command, failure.log_tail) == (kind, "round", "again", ("last",))
    assert fatal in failure.message
    assert failure.message


def test_before_the_hello_no_setting_is_to_blame() -> None:
    failure = death(Exit(code=1), LogExcerpt(tail=("a", "env: no such file")), phase="start", greeted=False)
    assert (failure.kind, failure.message) == (FailureClass.PROTOCOL, "env: no such file")
    assert not failure.kind.caused_by_config


def test_a_kill_by_the_kernel_is_told_with_its_likely_cause() -> None:
    message = death(Exit(signal=signal.SIGKILL), LogExcerpt(), phase="compile", greeted=True).message
    assert "SIGKILL" in message
    assert "memory" in message


@pytest.mark.parametrize(
    ("line", "said"),
    [(FATAL + "Unknown flag: --a]b", "Unknown flag: --a]b"), (" plain [1] words ", "plain [1] words")],
)
def test_what_a_log_line_says(line: str, said: str) -> None:
    assert log_text(line) == said
