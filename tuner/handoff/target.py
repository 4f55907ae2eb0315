"""Which bundle a user means by the name of a workload, a run or a bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tuner.errors import UsageError
from tuner.handoff.bundle import MANIFEST_FILE, Bundle, latest_bundle, load_bundle
from tuner.handoff.fit import mismatches
from tuner.store.find import find_run, runs_at, runs_of, similar_files
from tuner.store.folder import RunFolder

__all__ = ["Target", "resolve"]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`bundle` None: there is none, and `why` says why. `edited`: the workload's file (or a module beside it) is not
    what was tuned. `unlike`: what the place has other than the measured identity, name → (there, here)."""

    bundle: Bundle | None = None
    why: str = ""
    edited: bool = False
    unlike: dict[str, tuple[str, str]] = {}

    @property
    def differs(self) -> str:
        """How this place differs from the one that was measured; "" if nothing is seen."""
        return ", ".join(f"{name} is {here}, not {there}" for name, (there, here) in self.unlike.items())


def resolve(name: str, *, store: str, seen: Mapping[str, str] | None = None, cached: bool = False) -> Target:
    """What is meant by `name`: the path of a bundle, of a run's folder or of a workload, or a run's id in `store`.

    `seen`: what is known of the place (`fit.visible`). Of a workload's runs the newest one with a verdict counts that
    fits it; one that doesn't fit, or was made for another text of the file, comes only if there is no other. `cached`:
    read the sealed cache too. Raises UsageError if nothing or several things are meant, TunerError for a bundle that
    was changed.
    """
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return _in_folder(path, seen or {}, cached)
    if path.is_file():
        if path.name == MANIFEST_FILE:
            return _load(path.parent, seen or {}, cached)
        return _of_workload(path, store, seen or {}, cached)
    runs = runs_at(store)
    if os.sep in name or path.suffix == ".py":
        near = next(iter(similar_files(path)), None)
        raise UsageError(
            "no such file" + (f"; did you mean {near}?" if near else ""),
            where=name,
            next="give a workload's file, a run's id or a bundle's folder",
        )
    return _of_run(find_run(runs, name, where=name), seen or {}, cached)


def _in_folder(path: Path, seen: Mapping[str, str], cached: bool) -> Target:
    if (path / MANIFEST_FILE).is_file():
        return _load(path, seen, cached)
    run = RunFolder(path=path)
    if run.events.is_file():
        return _of_run(run, seen, cached)
    newest = latest_bundle(path)
    if newest is None:
        raise UsageError(
            "holds neither a bundle nor a run",
            where=str(path),
            next=f"name the folder that holds {MANIFEST_FILE}, or a run in .tuner/runs",
        )
    return _load(newest, seen, cached)


def _load(path: Path, seen: Mapping[str, str], cached: bool) -> Target:
    bundle = load_bundle(path, cached=cached)
    return Target(bundle=bundle, unlike=mismatches(bundle.manifest.environment, seen))


def _of_run(run: RunFolder, seen: Mapping[str, str], cached: bool) -> Target:
    newest = latest_bundle(run.bundle)
    if newest is None:
        return Target(why=f"run {run.id} is unfinished: it has no verdict yet")
    return _load(newest, seen, cached)


def _of_workload(path: Path, store: str, seen: Mapping[str, str], cached: bool) -> Target:
    known = runs_of(runs_at(store), path)
    targets = [_of_run(run, seen, cached) for run in reversed(known.same)]
    edited = [_of_run(run, seen, cached) for run in reversed(known.edited)]
    answers = [msgspec.structs.replace(t, edited=True) for t in edited]
    for found in (
        [t for t in targets if t.bundle and not t.unlike],
        [t for t in answers if t.bundle and not t.unlike],
        [t for t in targets if t.bundle],
        [t for t in answers if t.bundle],
        targets,
        answers,
    ):
        if found:
            return found[0]
    return Target(why=f"{path} was not tuned yet: {store} keeps no run of it")
