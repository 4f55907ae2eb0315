"""Events as rows of the index's tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from tuner.knobs.config import Config
from tuner.measure.types import Estimate
from tuner.store import tables
from tuner.store.events import AnyEvent, RunFinished, RunStarted, StageFinished, TrialFinished
from tuner.store.lines import encode
from tuner.store.records import BaselineRecord, ConfirmRecord, ProbeRecord

__all__ = ["Changes", "changes_of", "uid_of"]

Row = dict[str, Any]


class Changes(msgspec.Struct, frozen=True):
    """What some events of one run add to the database.

    `rows`: each new row with its table; one that exists stays as it is. `run`: changed columns of the run's own row.
    """

    rows: list[tuple[sa.Table, Row]]
    run: Row


def uid_of(first: RunStarted) -> str:
    """16 hex digits that name a run among those of all machines."""
    return hashlib.sha256(encode(first)).hexdigest()[:16]


def changes_of(events: Iterable[AnyEvent], *, uid: str, workload: str) -> Changes:
    """The changes that `events` of the run `uid` make, in order."""
    changes = Changes([], {})
    for event in events:
        if isinstance(event, RunStarted):
            changes.rows.append((tables.runs, _run(event, uid)))
        elif isinstance(event, TrialFinished):
            changes.rows.append(_config(event.config))
            changes.rows.append((tables.trials, _trial(event, uid)))
        elif isinstance(event, RunFinished):
            changes.run.update(finished=event.time, exit_code=event.exit_code)
        elif isinstance(event, StageFinished):
            _stage(event, uid, workload, changes)
    return changes


def _stage(event: StageFinished, uid: str, workload: str, changes: Changes) -> None:
    record = event.record
    if isinstance(record, ProbeRecord):
        found = record.environment
        row: Row = {"environment": found.key, "identity": found.identity}
        changes.rows.append((tables.environments, row))
        changes.run.update(environment=found.key, context=found.context)
    elif isinstance(record, BaselineRecord):
        changes.rows.append((tables.programs, {"program": record.program, "workload": workload}))
        changes.run.update(program=record.program)
    elif isinstance(record, ConfirmRecord):
        for place, finalist in enumerate(record.finalists):
            row = {
                "uid": uid,
                "seq": event.seq,
                "place": place,
                "time": event.time,
                "config": finalist.config.key,
                "verdict": finalist.verdict.value,
                **_estimate(finalist.estimate),
                "control_ms": finalist.control_ms,
                "best_ms": finalist.best_ms,
                "chosen": finalist.config == record.chosen,
                "failure": finalist.failure.kind.value if finalist.failure else None,
            }
            changes.rows.extend((_config(finalist.config), (tables.verdicts, row)))


def _run(event: RunStarted, uid: str) -> Row:
    return {
        "uid": uid,
        "run": event.run,
        "workload": event.workload,
        "identity": event.identity,
        "options": event.options,
        "started": event.time,
    }


def _trial(event: TrialFinished, uid: str) -> Row:
    return {
        "uid": uid,
        "seq": event.seq,
        "number": event.number,
        "time": event.time,
        "stage": event.stage,
        "session": event.session,
        "config": event.config.key,
        "value": event.value,
        **_estimate(event.estimate),
        "fingerprint": event.fingerprint,
        "shared_with": event.shared_with,
        "label": event.label,
        "failure": event.failure.kind.value if event.failure else None,
        "message": event.failure.message if event.failure else None,
    }


def _config(config: Config) -> tuple[sa.Table, Row]:
    return tables.configs, {"config": config.key, "settings": [list(pair) for pair in config.settings]}


def _estimate(estimate: Estimate | None) -> Row:
    read: Callable[[str], Any] = (lambda name: None) if estimate is None else (lambda name: getattr(estimate, name))
    return {name: read(name) for name in ("gain", "se", "low", "high", "level", "n")}
