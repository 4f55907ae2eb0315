"""What a user is told where a process can't start for something that they wrote: the workload, a platform, flags."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import FlagsError, TunerError, UsageError, WorkloadError
from tuner.protocol.failure import Failure, FailureClass
from tuner.session.failures import log_text

__all__ = ["refusal"]

# What argparse, click and sys.exit raise: the script ended itself, and only its log says why.
_EXIT = "SystemExit"
_MISSING = "ModuleNotFoundError"


def refusal(failure: Failure, *, workload: Path, flags: str, log: Path | None) -> TunerError | None:
    """The error for a `failure` that the user can mend; None for any other.

    `flags`: where XLA_FLAGS comes from, "" if it isn't set. `log`: where the worker's log stays; None: nowhere, and so
    its last lines are told.
    """
    last = failure.log_tail if log is None else ()
    whole = "" if log is None else f"; the whole log is in {log}"
    if failure.kind is FailureClass.WORKLOAD:
        advice = "fix the workload"
        if _EXIT in failure.traceback:
            last = failure.log_tail
            advice = f"see what it says; arguments of its own stand after --, as in tune {workload} -- ARGUMENT..."
        elif _MISSING in failure.message:
            advice = "install it where the workload runs, or name the interpreter that has it with --python"
        return WorkloadError(failure.message, where=str(workload), next=advice + whole, log=last)
    if failure.kind is FailureClass.PLATFORM:
        advice = "tune doctor says what jax finds and why; tune config shows where the platform was set"
        return UsageError(failure.message, where="--platform", next=advice)
    if failure.kind in (FailureClass.UNSUPPORTED, FailureClass.BAD_VALUE) and flags:
        return FlagsError(
            log_text(failure.message), where=flags, next="remove or correct the flag this jaxlib does not take"
        )
    return None
