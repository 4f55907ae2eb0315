"""Keeping a store in order: its database made anew from the event logs, and what nobody needs any more."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tuner.errors import StoreError
from tuner.machine.lock import FileLock, Held
from tuner.measure.types import UNSETTLED
from tuner.store.disk import disk_error
from tuner.store.events import RunStarted, StageFinished
from tuner.store.folder import RunFolder, Store
from tuner.store.index import Index
from tuner.store.log import read
from tuner.store.records import SealRecord
from tuner.store.study import StudyMirror

__all__ = ["Garbage", "Rebuilt", "garbage", "rebuild", "remove", "restore_studies"]


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """`runs`: taken up from their logs. `notices`: what went wrong or was found, for the user."""

    runs: int
    notices: tuple[str, ...]


class Garbage(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can go: `path`, a file or folder of `size` bytes, and `why`. `run`: the run that goes with it."""

    path: Path
    size: int
    why: str
    run: str = ""


def rebuild(store: Store, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Rebuilt:
    """Make index and Optuna studies of the store's runs anew from their event logs.

    Rows of runs whose logs are elsewhere stay. A database that is damaged is kept aside. Raises StoreError if the
    database stays locked or can't be written.
    """
    folders = store.run_folders()
    index = Index(store.url, runs=store.runs)
    notices: list[str] = []
    try:
        index.open()
        done = index.rebuild(folders)
        notices += index.notices
    finally:
        index.close()
    notices += restore_studies(store, folders, limit_s=None, progress=progress)
    return Rebuilt(runs=done, notices=tuple(dict.fromkeys(notices)))


def restore_studies(
    store: Store,
    folders: Sequence[RunFolder],
    *,
    limit_s: float | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Add to the database the studies of `folders`' runs that it lacks, the newest run first, for at most `limit_s`
    seconds (None: until all are there). Returns notices."""
    end = None if limit_s is None else clock() + limit_s
    mirror = StudyMirror(store.url)
    notices: list[str] = []
    newest = sorted(folders, key=lambda run: -run.events.stat().st_mtime)
    try:
        for done, run in enumerate(newest):
            if end is not None and clock() >= end:
                left = len(newest) - done
                return [*notices, f"the Optuna studies of {left} runs are still missing: tune store rebuild adds them"]
            progress(done, len(newest))
            try:
                events = read(run.events)
            except StoreError as error:
                notices.append(f"left out: {error.where}: {error.what}")
                continue
            if events and isinstance(events[0], RunStarted) and (trouble := mirror.record(events)):
                notices.append(trouble)
    finally:
        mirror.close()
    return notices


def garbage(store: Store, *, keep: int | None = None, unfinished: bool = False) -> list[Garbage]:
    """What can go from the store, runs that are being written left alone.

    Always: what runs leave in their scratch folders, bundles that were never finished, damaged databases that were set
    aside. `unfinished`: runs without a bundle. `keep`: of each workload in each environment so many bundles stay, the
    newest, and those of runs that settled nothing go first; the others' sealed caches and files go, and their records
    stay.
    """
    found = [
        Garbage(path=path, size=_size(path), why="a damaged database that was made anew")
        for path in sorted(store.root.glob("*.corrupt-*"))
    ]
    sealed: dict[tuple[str, str], list[tuple[bool, float, Path]]] = {}
    for run in store.run_folders():
        if _being_written(run):
            continue
        if run.scratch.is_dir() and any(run.scratch.iterdir()):
            found.append(Garbage(path=run.scratch, size=_size(run.scratch), why="left by a run"))
        for part in sorted(run.bundle.glob(".*.part")):
            found.append(Garbage(path=part, size=_size(part), why="a bundle that was never finished"))
        bundles = [path for path in sorted(run.bundle.glob("[0-9]*")) if path.is_dir()]
        if unfinished and not bundles and not _sealed(run):
            found = [g for g in found if not g.path.is_relative_to(run.path)]
            found.append(Garbage(path=run.path, size=_size(run.path), why="a run without a result", run=run.id))
        for path in bundles:
            group, settled = _told(run)
            sealed.setdefault(group, []).append((settled, path.stat().st_mtime, path))
    if keep is not None:
        for paths in sealed.values():
            old = sorted(paths)[:-keep]
            found += [Garbage(path=p, size=_size(p), why=f"of this workload the newest {keep} stay") for *_, p in old]
    return found


def remove(store: Store, found: Sequence[Garbage]) -> None:
    """Delete it, and what the database says of runs that go. Raises StoreError if the disk refuses."""
    gone = [RunFolder(path=g.path) for g in found if g.run]
    if gone:
        index = Index(store.url, runs=store.runs)
        try:
            index.open()
            index.forget(gone)
        finally:
            index.close()
    for item in found:
        try:
            if item.path.is_dir():
                shutil.rmtree(item.path)
                if item.why == "left by a run":
                    item.path.mkdir()
            else:
                item.path.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, item.path) from error


def _being_written(run: RunFolder) -> bool:
    lock = FileLock(run.events.with_name(run.events.name + ".lock"), command="tune store gc")
    try:
        lock.acquire()
    except (Held, OSError):
        return True
    lock.release()
    return False


def _sealed(run: RunFolder) -> bool:
    try:
        return any(isinstance(e, StageFinished) and isinstance(e.record, SealRecord) for e in read(run.events))
    except StoreError:
        return True  # what can't be understood isn't thrown away


def _told(run: RunFolder) -> tuple[tuple[str, str], bool]:
    """Workload and environment; and whether the run settled anything."""
    from tuner.store.records import ConfirmRecord, ProbeRecord

    workload, environment, settled = run.id, "", True
    with contextlib.suppress(StoreError):
        for event in read(run.events):
            if isinstance(event, RunStarted):
                workload = Path(event.workload).name
            elif isinstance(event, StageFinished) and isinstance(event.record, ProbeRecord):
                environment = event.record.environment.key
            elif isinstance(event, StageFinished) and isinstance(event.record, ConfirmRecord):
                settled = event.record.verdict not in UNSETTLED
    return (workload, environment), settled


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)
