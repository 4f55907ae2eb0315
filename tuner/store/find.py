"""Which run is meant: by its name, or the beginning of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.errors import UsageError
from tuner.store.folder import RunFolder, locate_store

__all__ = ["find_run", "runs_at", "similar_files"]

_SHOWN = 3


def runs_at(where: str) -> tuple[RunFolder, ...]:
    """The runs that the store at `where` (a folder or a database URL) keeps, the newest last; no folder is made."""
    runs = locate_store(where).run_folders()
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
