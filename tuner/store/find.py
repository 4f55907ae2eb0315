"""Which run is meant: by its name, the beginning of it, or the workload that it tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuner.errors import UsageError
from tuner.store.events import RunStarted
from tuner.store.folder import DEFAULT_FOLDER, RunFolder, Store
from tuner.store.log import read_first
from tuner.store.sources import workload_digest

__all__ = ["WorkloadRuns", "find_run", "runs_at", "runs_of", "similar_files"]

_SHOWN = 3


class WorkloadRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one workload, the newest last. `same`: its file and the modules beside it were then what they are now;
    `edited`: a file of that name, with other contents."""

    same: tuple[RunFolder, ...]
    edited: tuple[RunFolder, ...]


def runs_at(where: str) -> tuple[RunFolder, ...]:
    """The runs that the store at `where` (a folder or a database URL) keeps, the newest last; no folder is made."""
    root = DEFAULT_FOLDER if "://" in where else Path(where)
    runs = Store(root=root.absolute(), url=where).run_folders()
    return tuple(sorted(runs, key=lambda run: run.events.stat().st_mtime))


def find_run(runs: Sequence[RunFolder], name: str, *, where: str) -> RunFolder:
    """The one of `runs` with this id, or the only one whose id begins so.

    Raises UsageError, naming `where` the name was given, if there is none or if several are meant.
    """
    meant = [run for run in runs if run.id == name] or [run for run in runs if name and run.id.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(
            f"{name!r} could be any of {len(meant)} runs",
            where=where,
            next=f"name one of them: {', '.join(run.id for run in meant[-_SHOWN:])}",
        )
    from difflib import get_close_matches

    close = get_close_matches(name, [run.id for run in runs], n=1)
    raise UsageError(
        f"unknown run {name!r}" + (f"; did you mean {close[0]}?" if close else ""),
        where=where,
        next=f"the newest ones are {', '.join(run.id for run in runs[-_SHOWN:])}" if runs else "tune WORKLOAD",
    )


def similar_files(path: Path) -> list[Path]:
    """Python files beside a file that isn't there, of nearly its name; the nearest first, two at most."""
    from difflib import get_close_matches

    there = {file.stem: file for file in path.parent.glob("*.py")}  # the ending, which all have, makes nothing similar
    return [there[stem] for stem in get_close_matches(path.stem, there, n=2)]


def runs_of(runs: Sequence[RunFolder], workload: Path) -> WorkloadRuns:
    """Those of `runs` that tuned `workload`, in the same order. Raises WorkloadError if the file can't be read."""
    digest = workload_digest(workload)
    same, edited = [], []
    for run in runs:
        started = read_first(run.events)
        if not isinstance(started, RunStarted):
            continue
        if started.identity.get("workload") == digest:
            same.append(run)
        elif Path(started.workload).name == workload.name:
            edited.append(run)
    return WorkloadRuns(same=tuple(same), edited=tuple(edited))
