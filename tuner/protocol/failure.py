"""How a candidate or a session failed, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Failure", "FailureClass"]


class FailureClass(StrEnum):
    """What went wrong, as a user would group it. Values are stable: they are stored."""

    UNSUPPORTED = "unsupported"  # the compiler knows no such option
    BAD_VALUE = "bad_value"  # the option exists, the value does not fit its type
    COMPILE = "compile"  # the compiler raised
    OUT_OF_MEMORY = "out_of_memory"  # device memory (RESOURCE_EXHAUSTED)
    OVER_MEMORY = "over_memory"  # needs more device memory than --max-memory allows; never run
    HOST_OUT_OF_MEMORY = "host_out_of_memory"  # killed by the kernel, or MemoryError
    RUNTIME = "runtime"  # the step raised
    CRASH = "crash"  # died by a signal (SIGABRT, SIGSEGV, …)
    ILLEGAL_INSTRUCTION = "illegal_instruction"  # SIGILL: code for another CPU
    FATAL = "fatal"  # exited from C without a result
    TIMEOUT = "timeout"  # a phase outlived its deadline
    WRONG_RESULT = "wrong_result"  # the numerics gate refused it
    LANE_MISMATCH = "lane_mismatch"  # the emitted form does not compile to what was measured
    OTHER_WORK = "other_work"  # a step does more or less than the default's, which the objective doesn't count
    PGLE_INACTIVE = "pgle_inactive"  # a profile was asked for and not used
    DIVERGED = "diverged"  # ranks of one gang differ in what they run
    INVALID_TIME = "invalid_time"  # a clock reading that can't be (zero, negative, not finite)
    WORKLOAD = "workload"  # the user's file: build() raised, no step, …; for a candidate: under its settings
    PLATFORM = "platform"  # the wanted platform or device is not there
    PROTOCOL = "protocol"  # the worker answered nonsense or closed its pipe
    INTERRUPTED = "interrupted"  # we ended it ourselves

    @property
    def caused_by_config(self) -> bool:
        """True if the candidate's settings are to blame (it ranks worst); False for infrastructure (FAIL in Optuna)."""
        return self not in _INFRASTRUCTURE


_INFRASTRUCTURE = frozenset(
    {
        FailureClass.INVALID_TIME,
        FailureClass.PLATFORM,
        FailureClass.PROTOCOL,
        FailureClass.INTERRUPTED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure: class, phase, rank, how the process ended, first and last log lines, command to repeat.

    `message` is the one line that explains it: the exception's first line, or the fatal line of the log, verbatim.
    `steps`: of a rank of a gang, how many steps it had begun when it was last heard of.
    """

    kind: FailureClass
    phase: str
    message: str
    rank: int = 0
    exit_code: int | None = None
    signal: str | None = None
    log_head: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()
    command: str = ""
    traceback: str = ""
    steps: int | None = None
