"""The exceptions a user can meet.

::

    TunerError                exit 1   base of all; carries what happened, where, and what to do next
    ├── UsageError            exit 2   a wrong option, name, value or file the user wrote
    │   ├── SpaceError        exit 2   a search-space file breaks the contract (names file and place)
    │   ├── WorkloadError     exit 2   the workload file can't be tuned (missing, no step, build() raised, …)
    │   └── FlagsError        exit 2   an XLA_FLAGS text would be misread by XLA
    ├── SessionEnded          exit 1   a worker process is gone; carries the `Failure`
    ├── StoreError            exit 1   the run folder or the database can't be read or written
    │   └── StoreUnusable     exit 2   the store can't be used: full, read-only, a file in the way, no database
    ├── LaunchFailed          exit 125 `tune exec` failed before it became the command (126, 127: the command itself)
    ├── DeviceBusy            exit 75  another tuner holds the device
    └── Interrupted           exit 130 the user pressed Ctrl-C; carries the command that goes on

A candidate that fails is data (`tuner.protocol.Failure`), never an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.protocol.failure import Failure

__all__ = [
    "DeviceBusy",
    "FlagsError",
    "Interrupted",
    "LaunchFailed",
    "SessionEnded",
    "SpaceError",
    "StoreError",
    "StoreUnusable",
    "TunerError",
    "UsageError",
    "WorkloadError",
]


class TunerError(Exception):
    """What happened, where, and what to do next.

    `what` is one sentence; `where` names a file, line, option or variable; `next` is a command or an action; `log` is
    what a worker wrote last.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", next: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next = next
        self.log = tuple(log)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  next: {self.next}" if self.next else text


class UsageError(TunerError):
    """The user asked for something that can't be: a wrong option, name, value or file."""

    exit_code = 2


class SpaceError(UsageError):
    """A search-space file breaks the contract; `where` names the file and the place in it."""


class WorkloadError(UsageError):
    """The workload file can't be tuned as it is."""


class FlagsError(UsageError):
    """XLA would misread this XLA_FLAGS text; `what` names the token and what would be lost."""


class SessionEnded(TunerError):
    """A worker process is gone; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(
            failure.message,
            where=failure.phase,
            next="the worker's whole log is in the run's folder, under logs; the same command goes on from here",
            log=failure.log_tail,
        )
        self.failure = failure


class StoreError(TunerError):
    """The run folder or the database can't be read or written."""


class StoreUnusable(StoreError):
    """The place that `--store` names can't be used, or no longer: what was measured so far is kept there."""

    exit_code = 2


class LaunchFailed(TunerError):
    """`tune exec` failed: 125 by itself, 126 if the command can't be started, 127 if there is none of that name."""

    def __init__(self, what: str, *, where: str = "", next: str = "", exit_code: int = 125) -> None:
        super().__init__(what, where=where, next=next)
        self.exit_code = exit_code


class DeviceBusy(TunerError):
    """Another tuner holds the device; `what` says who."""

    exit_code = 75


class Interrupted(TunerError):
    """The user pressed Ctrl-C; all that was measured is in the event log and `next` is the command that goes on."""

    exit_code = 130
