"""A run's trials and samples as pandas DataFrames, and the trials as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import StoreError
from tuner.report.wording import interval, settings, speedup
from tuner.store.events import AnyEvent, RoundTimed, TrialFinished

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["results_frame", "samples_frame", "write_results"]

_BEFORE = {"number": "int64", "stage": "str", "session": "str", "state": "str", "config": "str"}
_AFTER = {
    "value": "float64",
    "speedup": "float64",
    "low": "float64",
    "high": "float64",
    "n": "Int64",
    "fingerprint": "str",
    "failure": "str",
    "shared_with": "Int64",
    "label": "str",
}
_SAMPLES = {
    "seq": "int64",
    "time": "float64",
    "stage": "str",
    "session": "str",
    "handle": "str",
    "control": "bool",
    "steps": "int64",
    "seconds": "float64",
    "ms_per_step": "float64",
    "told_ms": "float64",
}


def results_frame(events: Sequence[AnyEvent]) -> pd.DataFrame:
    """One row a trial, in the order finished.

    Columns: number, stage, session, state (timed | shared | failed | untimed), config (as emitted), one a knob with the
    exact text ("unset" where the trial leaves it alone, "" is a value), value (log ratio to the home control, negative
    is faster), speedup with its interval low and high, n (rounds), fingerprint, failure (class, "" without one),
    shared_with (the trial whose samples it shares), label. What was not measured is missing (NaN or NA). A knob whose
    name is one of the other columns' is called ``knob.<name>``.
    """
    import pandas as pd

    trials = [event for event in events if isinstance(event, TrialFinished)]
    knobs = sorted({name for trial in trials for name in trial.config.names})
    columns = {name: f"knob.{name}" if name in _BEFORE or name in _AFTER else name for name in knobs}
    rows = [_row(trial, columns) for trial in trials]
    types = {**_BEFORE, **dict.fromkeys(columns.values(), "str"), **_AFTER}
    return pd.DataFrame(rows, columns=list(types)).astype(types)


def _row(trial: TrialFinished, columns: dict[str, str]) -> dict[str, Any]:
    estimate = trial.estimate
    low, high = (interval(estimate) if estimate else None) or (None, None)
    return {
        "number": trial.number,
        "stage": trial.stage,
        "session": trial.session,
        "state": _state(trial),
        "config": settings(trial.config),
        **{column: trial.config.get(name) for name, column in columns.items()},
        "value": trial.value,
        "speedup": speedup(-trial.value) if trial.value is not None else None,
        "low": low,
        "high": high,
        "n": estimate.n if estimate else None,
        "fingerprint": trial.fingerprint,
        "failure": trial.failure.kind.value if trial.failure else "",
        "shared_with": trial.shared_with if trial.shared_with >= 0 else None,
        "label": trial.label,
    }


def _state(trial: TrialFinished) -> str:
    if trial.failure is not None:
        return "failed"
    if trial.value is None:
        return "untimed"
    return "shared" if trial.shared_with >= 0 else "timed"


def samples_frame(events: Sequence[AnyEvent]) -> pd.DataFrame:
    """One row a timed block, in the order timed.

    Columns: seq and time of the round's event (seconds since the epoch), stage, session, handle, control (True for the
    round's control), steps, seconds (of all steps together), ms_per_step, told_ms (what the block says of a step: that
    mean, a quantile, or the sum over several steps by weight). Ratios hold within one `seq` only.
    """
    import pandas as pd

    rows = [
        {
            "seq": event.seq,
            "time": event.time,
            "stage": event.stage,
            "session": event.session,
            "handle": block.id,
            "control": block.id == event.control,
            "steps": block.steps,
            "seconds": block.seconds,
            "ms_per_step": block.seconds / block.steps * 1000,
            "told_ms": block.step_s * 1000,
        }
        for event in events
        if isinstance(event, RoundTimed)
        for block in event.blocks
    ]
    return pd.DataFrame(rows, columns=list(_SAMPLES)).astype(_SAMPLES)


def write_results(events: Sequence[AnyEvent], path: Path) -> None:
    """`results_frame` as CSV. Read it with ``keep_default_na=False`` where an empty value must differ from none.

    Raises StoreError if the file can't be written.
    """
    try:
        results_frame(events).to_csv(path, index=False, quoting=csv.QUOTE_MINIMAL)
    except OSError as error:
        raise StoreError(f"the table can't be written: {error.strerror}", where=str(path)) from error
