"""Turns the way a worker ended, and what its log says about it, into a `Failure`."""

from __future__ import annotations

import dataclasses
import re
import signal
from pathlib import Path

import msgspec

from tuner.protocol.failure import Failure, FailureClass
from tuner.session.process import Exit

__all__ = ["LogExcerpt", "death", "nonsense", "read_log", "timeout", "with_log"]

_HEAD_LINES = 20
_TAIL_LINES = 40
_LINE_CHARS = 500
# Of what was written since a request was sent, at most so much is searched at either end.
_SEARCH_BYTES = 4 << 20

# A line of LOG(FATAL): "F1127 23:43:41.430175 …", or the older "2025-11-27 23:43:41.430175: F …".
_FATAL_LOG = re.compile(r"(?:F\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: F )")
_LOG_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ [^\]]*\] ")
# Says why a flag's value was refused; the fatal line after it says only that parsing failed.
_BAD_FLAG_VALUE = re.compile(r".*Couldn't interpret value .* for flag ")
# Last words of a process that are no log line of XLA's.
_LAST_WORDS = re.compile(
    r".*(?:Check failed|Fatal Python error|terminate called|LLVM ERROR|UNREACHABLE executed|Assertion .* failed"
    r"|double free|free\(\): |malloc\(\): |corrupted size|stack smashing|undefined symbol)"
)
# Also printed by what recovers, so they explain an end only where nothing else does.
_MEMORY_WORDS = re.compile(r".*(?:RESOURCE_EXHAUSTED|std::bad_alloc|MemoryError|[Cc]annot allocate memory)")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")

# First match wins; looked for in the fatal line.
_KINDS = (
    (re.compile(r"Unknown flags? in XLA_FLAGS"), FailureClass.UNSUPPORTED),
    (_BAD_FLAG_VALUE, FailureClass.BAD_VALUE),
    (re.compile(r"parse_flags_from_env"), FailureClass.BAD_VALUE),
    (re.compile(r"std::bad_alloc|MemoryError|[Cc]annot allocate memory"), FailureClass.HOST_OUT_OF_MEMORY),
    (re.compile(r"RESOURCE_EXHAUSTED|OUT_OF_MEMORY|[Oo]ut of memory"), FailureClass.OUT_OF_MEMORY),
)
# Someone else ended it: no setting is to blame.
_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


class LogExcerpt(msgspec.Struct, frozen=True, kw_only=True):
    """What a failure quotes of a log. `fatal`: the line that explains the end, verbatim and whole; "" if none does."""

    head: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    fatal: str = ""


def read_log(log: Path, *, start: int = 0, since: int = 0) -> LogExcerpt:
    """Head and tail of what was written to `log` from byte `start` on, and the fatal line from byte `since` on.

    Parts before `since` are not searched: a candidate that failed there was survived. A missing log is an empty one.
    """
    try:
        size = log.stat().st_size
        with log.open("rb") as file:
            file.seek(start)
            head = file.read(_HEAD_LINES * _LINE_CHARS * 2)
            file.seek(max(since, size - _SEARCH_BYTES))
            end = file.read()
            file.seek(since)
            begin = file.read(_SEARCH_BYTES) if size - since > _SEARCH_BYTES else b""
            file.seek(max(start, size - _TAIL_LINES * _LINE_CHARS * 2))
            tail = file.read()
    except OSError:
        return LogExcerpt()
    first = _lines(head)[:_HEAD_LINES]
    last = _lines(tail)[-_TAIL_LINES:]
    return LogExcerpt(
        head=tuple(line[:_LINE_CHARS] for line in first),
        tail=tuple(line[:_LINE_CHARS] for line in last),
        fatal=_fatal_line([*_lines(begin), *_lines(end)]),
    )


def log_text(line: str) -> str:
    """What a line of XLA's log says, without severity, time, thread and place in its source."""
    return _LOG_PREFIX.sub("", line.strip())


def death(ended: Exit, excerpt: LogExcerpt, *, phase: str, greeted: bool, command: str = "") -> Failure:
    """The failure of a worker that ended without an answer in `phase`. `greeted`: its hello had come."""
    kind = _kind(ended, excerpt.fatal, greeted=greeted)
    last = "" if greeted or not excerpt.tail else excerpt.tail[-1]
    return Failure(
        kind=kind,
        phase=phase,
        message=excerpt.fatal or last or f"the worker {_how(ended)} in {phase} without a word",
        exit_code=ended.code,
        signal=None if ended.signal is None or ended.by_us else _signal_name(ended.signal),
        log_head=excerpt.head,
        log_tail=excerpt.tail,
        command=command,
    )


def timeout(limit_s: float, excerpt: LogExcerpt, *, phase: str, command: str = "") -> Failure:
    """The failure of a worker that gave no answer within `limit_s` seconds and was killed."""
    return Failure(
        kind=FailureClass.TIMEOUT,
        phase=phase,
        message=f"no answer in {phase} within {limit_s:.0f} s",
        log_head=excerpt.head,
        log_tail=excerpt.tail,
        command=command,
    )


def nonsense(what: str, excerpt: LogExcerpt, *, phase: str, command: str = "") -> Failure:
    """The failure of a worker that answered something that is no answer."""
    return Failure(
        kind=FailureClass.PROTOCOL,
        phase=phase,
        message=what,
        log_head=excerpt.head,
        log_tail=excerpt.tail,
        command=command,
    )


def with_log(failure: Failure, excerpt: LogExcerpt, *, command: str) -> Failure:
    """A failure that the worker reported itself, with the log lines and the command that only its parent knows."""
    return dataclasses.replace(failure, log_head=excerpt.head, log_tail=excerpt.tail, command=command)


def _kind(ended: Exit, fatal: str, *, greeted: bool) -> FailureClass:
    for pattern, kind in _KINDS:
        if fatal and pattern.search(fatal):
            return kind
    if ended.by_us:
        return FailureClass.PROTOCOL  # it closed its pipe and lived on
    if ended.signal is not None:
        if ended.signal == signal.SIGILL:
            return FailureClass.ILLEGAL_INSTRUCTION
        if ended.signal == signal.SIGKILL:
            return FailureClass.HOST_OUT_OF_MEMORY
        return FailureClass.INTERRUPTED if ended.signal in _FROM_OUTSIDE else FailureClass.CRASH
    # Before its hello the worker has touched neither jax nor a setting.
    return FailureClass.FATAL if greeted and ended.code != 0 else FailureClass.PROTOCOL


def _how(ended: Exit) -> str:
    if ended.by_us:
        return "closed its pipe"
    if ended.signal is None and ended.code is None:
        return "ended its connection"
    if ended.signal is None:
        return f"exited with code {ended.code}"
    if ended.signal == signal.SIGKILL:
        return "was killed by SIGKILL, which the tuner did not send (most likely the kernel ran out of memory)"
    return f"died by {_signal_name(ended.signal)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _lines(data: bytes) -> list[str]:
    return [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]


def _fatal_line(lines: list[str]) -> str:
    """The line that explains an end: a refused value, a fatal log line, other last words, an exception's last line."""
    for pattern in (_BAD_FLAG_VALUE, _FATAL_LOG, _LAST_WORDS, _MEMORY_WORDS):
        if found := next((line for line in lines if pattern.match(line)), None):
            return found
    return next((line for line in reversed(lines) if _EXCEPTION.match(line)), "")
