"""Records on their way between stores: event logs as one stream of lines, and whole runs from another store's folder.

A stream holds event logs one after another; each begins with its RunStarted. It can hold nothing else, so that
importing it can't bring anything that is executed. Merging takes bundles and their sealed caches too: it is for stores
of one's own.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tuner.errors import StoreError, UsageError
from tuner.store.disk import disk_error
from tuner.store.events import AnyEvent, RunStarted
from tuner.store.folder import RunFolder, Store
from tuner.store.lines import decode, encode, uid_of
from tuner.store.log import EventLog, read, read_first

__all__ = ["Taken", "export_runs", "import_records", "merge_store"]

_ZIPPED = b"\x1f\x8b"
_MOST_BYTES = 8 << 30  # of an unpacked stream: more is no records of ours


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """`added`: ids of runs that are new here; `grown`: those whose log had more events there; `same`: how many were
    here already; `bundles`: how many were copied; `left`: what was left out, with the reason."""

    added: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    same: int = 0
    bundles: int = 0
    left: tuple[str, ...] = ()

    def plus(self, other: Taken) -> Taken:
        """Both together."""
        return Taken(
            added=self.added + other.added,
            grown=self.grown + other.grown,
            same=self.same + other.same,
            bundles=self.bundles + other.bundles,
            left=self.left + other.left,
        )


def export_runs(runs: Sequence[RunFolder]) -> Iterator[bytes]:
    """The event logs of `runs` as lines of a stream. Raises StoreError for a broken log."""
    for run in runs:
        yield from map(encode, read(run.events))


def import_records(data: bytes, store: Store, *, where: str) -> Taken:
    """Add the runs of a stream (packed with gzip or not) to `store`. `where` names it in errors.

    Every line is read as an event before anything is written. Raises UsageError if it is no such stream, StoreError if
    the disk refuses.
    """
    return _take(_logs(_unpacked(data, where), where), store)


def merge_store(other: Path, store: Store) -> Taken:
    """Add the runs that lie in the store folder `other`, with their bundles, to `store`.

    Raises UsageError if it holds no runs, StoreError if the disk refuses.
    """
    folders = Store(root=other, url="").run_folders()
    if not folders or other.resolve() == store.root.resolve():
        what = "is this store itself" if folders else "holds no runs"
        raise UsageError(what, where=str(other), next="name the folder of another store, such as ../other/.tuner")
    taken = Taken()
    for folder in folders:
        try:
            events = read(folder.events)
        except StoreError as error:
            taken = msgspec.structs.replace(taken, left=(*taken.left, f"{error.where}: {error.what}"))
            continue
        if not events:
            continue
        one = _take([events], store)
        target = next(run for run in _of_uid(store, events))
        copied = _copy_bundles(folder, target)
        taken = taken.plus(msgspec.structs.replace(one, bundles=copied))
    return taken


def _unpacked(data: bytes, where: str) -> bytes:
    if not data.startswith(_ZIPPED):
        return data
    try:
        unpacker = zlib.decompressobj(wbits=31)
        unpacked = unpacker.decompress(data, _MOST_BYTES)
        if unpacker.unconsumed_tail:
            raise UsageError("is too large when unpacked", where=where, next="export fewer runs at once")
        # gzip files may be several, one after another
        return unpacked if not unpacker.unused_data else unpacked + gzip.decompress(unpacker.unused_data)
    except (OSError, EOFError, zlib.error) as error:
        raise _no_records(where, str(error)) from error


def _logs(data: bytes, where: str) -> list[list[AnyEvent]]:
    """The stream's event logs. Raises UsageError naming the first line that doesn't belong."""
    logs: list[list[AnyEvent]] = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            event = decode(line)
        except StoreError as error:
            raise _no_records(f"{where}:{number}", error.what) from error
        if isinstance(event, RunStarted):
            logs.append([])
        elif not logs:
            raise _no_records(f"{where}:{number}", "an event before its run's beginning")
        if event.seq != len(logs[-1]):
            raise _no_records(f"{where}:{number}", f"event {event.seq} stands where event {len(logs[-1])} belongs")
        logs[-1].append(event)
    if not logs:
        raise _no_records(where, "it is empty")
    return logs


def _no_records(where: str, why: str) -> UsageError:
    return UsageError(f"no records of runs: {why}", where=where, next="give what `tune store export` wrote")


def _take(logs: Iterable[list[AnyEvent]], store: Store) -> Taken:
    added, grown, same = [], [], 0
    for events in logs:
        there = _of_uid(store, events)
        if not there:
            added.append(_write(store, events))
        elif len(read(there[0].events)) < len(events):
            _extend(there[0], events)
            grown.append(there[0].id)
        else:
            same += 1
    return Taken(added=tuple(added), grown=tuple(grown), same=same)


def _of_uid(store: Store, events: Sequence[AnyEvent]) -> list[RunFolder]:
    """The run in `store` that began as these events do."""
    first = events[0]
    assert isinstance(first, RunStarted)
    uid = uid_of(first)
    names = [_name(first), f"{_name(first)}@{uid[:6]}"]
    found = [(run, read_first(run.events)) for run in map(store.run, names)]
    return [run for run, event in found if isinstance(event, RunStarted) and uid_of(event) == uid]


def _name(first: RunStarted) -> str:
    """The run's id as the name of a folder. It comes from elsewhere: nothing but a plain name is taken."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,120}", first.run):
        return first.run
    return f"run-{uid_of(first)[:6]}"


def _write(store: Store, events: Sequence[AnyEvent]) -> str:
    first = events[0]
    assert isinstance(first, RunStarted)
    run = store.run(_name(first))
    if run.path.exists():
        run = store.run(f"{_name(first)}@{uid_of(first)[:6]}")  # another machine's run of that id is here
    run.create(exist_ok=True)
    _replace(run.events, events)
    return run.id


def _extend(run: RunFolder, events: Sequence[AnyEvent]) -> None:
    with EventLog(run.events, command="tune store import"):  # nobody may be writing it
        _replace(run.events, events)


def _replace(path: Path, events: Sequence[AnyEvent]) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.writelines(map(encode, events))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise disk_error(error, path) from error


def _copy_bundles(source: RunFolder, target: RunFolder) -> int:
    """Bundles never change: one that is there already stays. Each appears whole. Returns how many were copied."""
    copied = 0
    for bundle in sorted(source.bundle.glob("[0-9]*")):
        final = target.bundle / bundle.name
        if final.exists():
            continue
        part = target.bundle / f".{bundle.name}.part"
        try:
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(bundle, part)
            part.rename(final)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise disk_error(error, final) from error
        copied += 1
    return copied
