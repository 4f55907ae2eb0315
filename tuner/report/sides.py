"""Side: one thing to be compared, read from a run, a bundle, a JSON document of a run, or an env-file."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Literal

import msgspec

from tuner.errors import UsageError
from tuner.handoff.bundle import MANIFEST_FILE, Bundle, latest_bundle, load_bundle
from tuner.handoff.cache import CACHE_DIR, production
from tuner.handoff.dialects import parse_raw
from tuner.knobs.config import DEFAULT
from tuner.measure.types import Estimate, Verdict
from tuner.protocol import xla_flags
from tuner.report.document import SCHEMA, RunDocument
from tuner.report.samples import pair_samples
from tuner.report.view import RunView
from tuner.store.folder import RunFolder
from tuner.store.held import held_of
from tuner.store.reading import StoredRun, read_run

__all__ = ["UNCHANGED", "Side", "read_side"]

UNCHANGED = Estimate(gain=0.0, se=0.0, low=0.0, high=0.0, n=0)
"""The gain of the defaults over the defaults: known, not measured."""

_Z95 = 1.959964
_PRINTED = "give what `tune run --json` printed"


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """`name` as the user gave it; `label` for tables. `workload`: its file's stem; "" if there is none. `run`: the
    id of the run that measured it, "" if none did.

    `gain`: what is emitted, over this run's own default; 0 where the defaults stay, None without a verdict. `measured`:
    the best finalist's, whatever became of it. `control_ms`, `best_ms`: values of the objective with the defaults and
    with what is emitted, None if unknown; `control_pairs`, `best_pairs`: one a fresh process, where they are known.
    `left`: knobs that are gone, name → (status, why). `held`: fixed by the user, the workload's own knobs among them.
    """

    name: str
    label: str
    kind: Literal["run", "bundle", "document", "env-file"]
    workload: str = ""
    run: str = ""
    program: str = ""
    identity: dict[str, str] = {}
    context: dict[str, str] = {}
    settings: dict[str, str] = {}
    held: dict[str, str] = {}
    options: dict[str, str] = {}
    verdict: Verdict | None = None
    gain: Estimate | None = None
    measured: Estimate | None = None
    pairs: int = 0
    per: str = "a step"
    control_ms: float | None = None
    best_ms: float | None = None
    control_pairs: tuple[float, ...] = ()
    best_pairs: tuple[float, ...] = ()
    left: dict[str, tuple[str, str]] = {}

    @property
    def jax(self) -> str:
        """The version of jax; "" if unknown."""
        return self.identity.get("jax", "")


def read_side(name: str, *, store: str) -> Side:
    """What `name` means: a bundle's folder or one that holds bundles (the newest), a run (folder, event log or id in
    `store`), a JSON document, an env-file.

    Raises UsageError if it is none of them.
    """
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        if (path / MANIFEST_FILE).is_file():
            return _of_bundle(name, load_bundle(path, cached=False))
        if newest := latest_bundle(path):  # a run's folder of bundles, which is what its list of files names
            return _of_bundle(name, load_bundle(newest, cached=False))
        if not RunFolder(path=path).events.is_file() and not any(path.iterdir()):
            raise UsageError("is an empty folder", where=name, next="name a run, a bundle or a document")
    elif path.is_file():
        if path.name == MANIFEST_FILE:
            return _of_bundle(name, load_bundle(path.parent, cached=False))
        if path.suffix == ".json":
            return _of_document(name, path)
        if path.suffix == ".env":
            return _of_env_file(name, path)
    elif path.suffix in (".json", ".env"):
        raise UsageError("no such file", where=name, next="name a run, a bundle, a document or an env-file")
    return _of_run(name, read_run(name, store=store))


def _of_run(name: str, run: StoredRun) -> Side:
    view = RunView.of(run.events)
    confirm, probe, baseline = view.confirm, view.probe, view.baseline
    chosen = confirm.chosen if confirm else DEFAULT
    # Those of the default come from the pairs of whichever finalist there was.
    first = next((f.config for f in (confirm.finalists if confirm else ()) if f.failure is None), None)
    shown = chosen if chosen != DEFAULT else first
    pairs = pair_samples(run.events, shown, view.objective) if shown is not None else []
    control_pairs = tuple(pair.control_level for pair in pairs)
    return Side(
        name=name,
        label=run.id,
        kind="run",
        workload=Path(view.workload).stem,
        run=view.run,
        program=baseline.program if baseline else "",
        identity=probe.environment.identity if probe else {},
        context=probe.environment.context if probe else {},
        settings=chosen.as_dict(),
        held=held_of(view.options.get("hold", "")),
        options=view.options,
        verdict=confirm.verdict if confirm else None,
        gain=_emitted_gain(confirm.verdict, confirm.estimate) if confirm else None,
        measured=_finite(confirm.estimate) if confirm else None,
        pairs=confirm.pairs if confirm else 0,
        per=view.objective.per,
        control_ms=_time((confirm.control_ms if confirm else 0.0) or (baseline.control_ms if baseline else 0.0)),
        best_ms=_time(confirm.best_ms) if confirm else None,
        control_pairs=control_pairs,
        best_pairs=control_pairs if chosen == DEFAULT else tuple(pair.finalist_level for pair in pairs),
        left={status.name: (status.status, status.reason) for status in view.left},
    )


def _of_bundle(name: str, bundle: Bundle) -> Side:
    made = bundle.manifest
    return Side(
        name=name,
        label=f"{made.run}/{bundle.path.name}",
        kind="bundle",
        workload=Path(made.workload).stem,
        run=made.run,
        program=made.program,
        identity=made.environment.identity,
        context=made.environment.context,
        settings=made.settings,
        held=made.held,
        verdict=made.verdict,
        gain=_emitted_gain(made.verdict, made.estimate),
        measured=_finite(made.estimate),
        pairs=made.estimate.n if made.estimate else 0,
        per=made.objective.per,
        control_ms=_time(made.control_ms),
        best_ms=_time(made.best_ms),
    )


class _Head(msgspec.Struct):
    schema: str = ""


def _of_document(name: str, path: Path) -> Side:
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != SCHEMA:
            what = f"has the schema {schema!r}, not {SCHEMA!r}" if schema else f"names no schema; {SCHEMA!r} is wanted"
            raise UsageError(what, where=name, next=_PRINTED)
        made = msgspec.json.decode(data, type=RunDocument)
    except OSError as error:
        raise UsageError(f"can't be read: {error.strerror}", where=name) from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"is no document of a run: {error}", where=name, next=_PRINTED) from error
    estimate = _estimate(made)
    return Side(
        name=name,
        label=made.run,
        kind="document",
        workload=Path(made.workload).stem,
        run=made.run,
        program=made.program or "",
        identity=made.environment.identity if made.environment else {},
        context=made.environment.context if made.environment else {},
        settings=made.settings,
        held=held_of(made.options.get("hold", "")),
        options=made.options,
        verdict=made.verdict,
        gain=_emitted_gain(made.verdict, estimate) if made.verdict else None,
        measured=estimate,
        pairs=made.pairs,
        per=made.per,
        control_ms=made.control_ms,
        best_ms=made.best_ms or made.control_ms,
        left={part.name: (part.status, part.reason) for part in made.left if not part.values},
    )


def _estimate(made: RunDocument) -> Estimate | None:
    """The document's speed-up as a gain; its standard error by the normal distribution, which no comparison uses."""
    if not made.speedup or made.speedup_ci is None or not made.speedup_ci[0] > 0:
        return None
    low, high = (math.log(end) for end in made.speedup_ci)
    return Estimate(gain=math.log(made.speedup), se=(high - low) / (2 * _Z95), low=low, high=high, n=made.pairs)


def _of_env_file(name: str, path: Path) -> Side:
    """Settings alone: an env-file says nothing of times."""
    try:
        env = parse_raw(path.read_text(encoding="utf-8"), where=name)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't be read: {error}", where=name) from error
    flags = xla_flags.parse(env.pop("XLA_FLAGS", ""))
    settings = {flag.name: "true" if flag.value is None else flag.value for flag in flags} | env
    for variable in (*production(), CACHE_DIR):  # how a bundle's files load the cache: every one has these
        settings.pop(variable, None)
    return Side(name=name, label=path.name, kind="env-file", settings=settings)


def _emitted_gain(verdict: Verdict, estimate: Estimate | None) -> Estimate | None:
    """What is emitted over the default: measured if it is faster, else the default itself."""
    return _finite(estimate) if verdict is Verdict.FASTER else UNCHANGED


def _finite(estimate: Estimate | None) -> Estimate | None:
    if estimate is None or not all(map(math.isfinite, (estimate.gain, estimate.low, estimate.high))):
        return None
    return estimate


def _time(ms: float | None) -> float | None:
    return ms if ms is not None and math.isfinite(ms) and ms > 0 else None
