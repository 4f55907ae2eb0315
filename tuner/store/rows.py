"""Events as rows of the index's tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

import msgspec
import sqlalchemy as sa

from tuner.knobs.config import Config
from tuner.measure.types import Estimate
from tuner.store import tables
from tuner.store.events import AnyEvent, CandidateCompiled, RunFinished, RunStarted, StageFinished, TrialFinished
from tuner.store.held import form_text
from tuner.store.records import BaselineRecord, ConfirmRecord, ProbeRecord, SealRecord

__all__ = ["Changes", "changes_of"]

Row = dict[str, Any]


class Changes(msgspec.Struct, frozen=True):
    """What some events of one run add to the database.

    `rows`: each new row with its table; one that exists stays as it is. `run`: changed columns of the run's own row.
    """

    rows: list[tuple[sa.Table, Row]]
    run: Row


def changes_of(events: Iterable[AnyEvent], *, uid: str, workload: str) -> Changes:
    """The changes that `events` of the run `uid` make, in order."""
    changes = Changes([], {})
    for event in events:
        if isinstance(event, RunStarted):
            changes.rows.append((tables.runs, _run(event, uid)))
        elif isinstance(event, TrialFinished):
            changes.rows.append(_config(event.config))
            changes.rows.append((tables.trials, _trial(event, uid)))
        elif isinstance(event, CandidateCompiled):
            if (sketch := event.compiled.sketch) is not None:
                row: Row = {"program": event.compiled.program, "operations": sum(sketch.operations.values())}
                changes.rows.append((tables.sketches, {**row, "sketch": msgspec.to_builtins(sketch)}))
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
        changes.run.update(program=record.program, first_program=record.first_program)
    elif isinstance(record, SealRecord):
        _seal(event, record, uid, changes)
    elif isinstance(record, ConfirmRecord):
        changes.run.update(verdict=record.verdict.value)
        for place, finalist in enumerate(record.finalists):
            row = {
                "uid": uid,
                "seq": event.seq,
                "place": place,
                "time": event.time,
                "config": finalist.config.key,
                "verdict": finalist.verdict.value,
                **_estimate(finalist.estimate),
                "control_ms": _known(finalist.control_ms),
                "best_ms": _known(finalist.best_ms),
                "chosen": finalist.config == record.chosen,
                "failure": finalist.failure.kind.value if finalist.failure else None,
            }
            changes.rows.extend((_config(finalist.config), (tables.verdicts, row)))


def _seal(event: StageFinished, record: SealRecord, uid: str, changes: Changes) -> None:
    folder = PurePath(record.bundle).name
    row: Row = {
        "uid": uid,
        "seq": event.seq,
        "number": record.number or (int(folder) if folder.isdecimal() else 0),
        "time": event.time,
        "variables": record.environment,
    }
    changes.rows.append((tables.bundles, row))
    changes.run["sealed"] = event.time
    for module in record.modules:
        key: Row = {"uid": uid, "seq": event.seq, "key": module.key, "module": module.module, "fields": module.fields}
        changes.rows.append((tables.cache_keys, key))


def _run(event: RunStarted, uid: str) -> Row:
    return {
        "uid": uid,
        "run": event.run,
        "workload": event.workload,
        "identity": event.identity,
        "options": event.options,
        "started": event.time,
        "digest": event.identity.get("workload"),
        "name": PurePath(event.workload).name,
        "form": _form(event.options),
    }


def _form(options: Mapping[str, str]) -> str:
    """Logs that don't tell which of the held knobs are the workload's count all of them."""
    return options.get("form", form_text(options.get("hold", ""), options.get("argv", "")))


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


def _known(ms: float) -> float:
    """0 for a time that there is none of: SQLite takes what is no number for an empty field."""
    return ms if math.isfinite(ms) else 0.0


def _estimate(estimate: Estimate | None) -> Row:
    read: Callable[[str], Any] = (lambda name: None) if estimate is None else (lambda name: getattr(estimate, name))
    return {name: read(name) for name in ("gain", "se", "low", "high", "level", "n")}
