"""A run read back: from its folder, its event log (packed or not), or by its id in a store."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuner.errors import StoreError, UsageError
from tuner.store.events import AnyEvent, RunStarted
from tuner.store.find import find_run, runs_at
from tuner.store.folder import RunFolder
from tuner.store.log import parse, read

__all__ = ["StoredRun", "read_run"]

_PACKED = ".gz"


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """`events`: at least one. `folder`: where the run lies; None if the log was found by itself."""

    events: Sequence[AnyEvent]
    path: Path
    folder: RunFolder | None

    @property
    def id(self) -> str:
        first = self.events[0]
        return first.run if isinstance(first, RunStarted) else self.path.parent.name


def read_run(name: str, *, store: str) -> StoredRun:
    """The run that `name` means: a run's folder, an event log (also one packed with gzip), or the id of a run in
    `store`, or how only one of them begins.

    Raises UsageError if nothing or several runs are meant, or what is meant holds none; StoreError for a broken log.
    """
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return _in_folder(RunFolder(path=path))
    if path.is_file():
        return _log(path)
    if os.sep in name or path.suffix in (".jsonl", _PACKED):
        raise UsageError("no such file or folder", where=name, next="give a run's folder, its event log, or its id")
    folder = find_run(runs_at(store), name, where=name)
    return StoredRun(events=_some(read(folder.events), folder.events), path=folder.events, folder=folder)


def _in_folder(folder: RunFolder) -> StoredRun:
    if not folder.events.is_file():
        inside = sorted(
            p.parent
            for pattern in ("*", "runs/*", ".tuner/runs/*")
            for p in folder.path.glob(f"{pattern}/events.jsonl")
        )
        what = f"is no run; it holds {len(inside)}" if inside else "holds no run: there is no events.jsonl"
        advice = f"name one of them, for instance {inside[-1]}" if inside else "name a folder below .tuner/runs"
        raise UsageError(what, where=str(folder.path), next=advice)
    return StoredRun(events=_some(read(folder.events), folder.events), path=folder.events, folder=folder)


def _log(path: Path) -> StoredRun:
    try:
        data = path.read_bytes()
        if path.suffix == _PACKED:
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"can't be read: {error}", where=str(path), next="give a run's event log") from error
    try:
        parse(data[: data.find(b"\n") + 1], path)
    except StoreError as error:
        what = f"is no event log of a run ({error.what})"
        raise UsageError(what, where=str(path), next="give a run's event log") from error
    beside = RunFolder(path=path.parent) if path.name == "events.jsonl" else None
    return StoredRun(events=_some(parse(data, path)[0], path), path=path, folder=beside)


def _some(events: Sequence[AnyEvent], path: Path) -> Sequence[AnyEvent]:
    if not events:
        raise UsageError("this run has no events yet", where=str(path), next="wait until it has begun")
    return events
