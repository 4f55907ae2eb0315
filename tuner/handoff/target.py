"""Which bundle a user means by the name of a workload, a run or a bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tuner.errors import UsageError
from tuner.handoff.bundle import MANIFEST_FILE, Bundle, latest_bundle, load_bundle
from tuner.machine.environment import mismatches
from tuner.store.find import find_run, runs_at, similar_files
from tuner.store.folder import RunFolder, locate_store
from tuner.store.lookup import Question, look_up, question_of, why_none

__all__ = ["Target", "resolve"]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`bundle` None: there is none, and `why` says why. `edited`: the workload's file (or a module beside it) is not
    what was tuned. `unlike`: what the place has other than the measured identity, name → (there, here). `notice`: what
    the user should know of the store's database."""

    bundle: Bundle | None = None
    why: str = ""
    edited: bool = False
    unlike: dict[str, tuple[str, str]] = {}
    notice: str = ""

    @property
    def differs(self) -> str:
        """How this place differs from the one that was measured; "" if nothing is seen."""
        return ", ".join(f"{name} is {here}, not {there}" for name, (there, here) in self.unlike.items())


def resolve(
    name: str,
    *,
    store: str,
    seen: Mapping[str, str] | None = None,
    cached: bool = False,
    number: int | None = None,
    previous: bool = False,
    knobs: Mapping[str, str] | None = None,
) -> Target:
    """What is meant by `name`: the path of a bundle, of a run's folder or of a workload, or a run's id in `store`.

    `seen`: what is known of the place (`visible`). Of a workload's bundles the newest that fits the place counts, or
    the one with this `number`, or the one `previous` to the newest, tuned with the parameters `knobs` of
    build() (None: without any, if there is such a one); one that doesn't fit, or was made for another
    text of the file, comes only if there is no other. `cached`: read the sealed cache too. Raises UsageError if nothing
    or several things are meant, TunerError for a bundle that was changed.
    """
    path = Path(os.path.expanduser(name))
    if path.is_file() and path.name != MANIFEST_FILE:
        question = question_of(path, number=number, previous=previous, knobs=knobs)
        return _of_workload(path, store, seen or {}, cached, question)
    if number is not None or previous or knobs:
        raise UsageError("this names one result already", where=name, next="name the workload's file")
    if path.is_dir():
        return _in_folder(path, seen or {}, cached)
    if path.is_file():
        return _load(path.parent, seen or {}, cached)
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


def _of_workload(path: Path, store: str, seen: Mapping[str, str], cached: bool, question: Question) -> Target:
    found = look_up(locate_store(store), question, seen=seen)
    answer = found.answer
    if answer is None:
        return Target(why=why_none(found, question, store=store), notice=found.notice)
    edited = answer.by == "name"
    if answer.bundle is None:
        why = f"run {answer.run}: {answer.whereabouts}"
        return Target(why=why, edited=edited, unlike=answer.unlike, notice=found.notice)
    target = _load(answer.bundle, seen, cached)
    return msgspec.structs.replace(target, edited=edited, notice=found.notice)
