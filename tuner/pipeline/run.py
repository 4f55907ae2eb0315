"""The loop that runs the stages, and everything around it: identity, resume, lock, Ctrl-C."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.errors import Interrupted
from tuner.knobs import Knob, KnobStatus
from tuner.machine import Sampler
from tuner.measure import Verdict
from tuner.pipeline.baseline import run_baseline
from tuner.pipeline.beforehand import made_ready
from tuner.pipeline.benches import Benches
from tuner.pipeline.confirm import run_confirm
from tuner.pipeline.context import Run
from tuner.pipeline.minimise import run_minimise
from tuner.pipeline.opening import opened
from tuner.pipeline.options import RunOptions
from tuner.pipeline.presets import run_presets
from tuner.pipeline.probe import offered_knobs, run_probe
from tuner.pipeline.report import run_report
from tuner.pipeline.screen import run_screen
from tuner.pipeline.seal import run_seal
from tuner.pipeline.search import run_search
from tuner.report.listener import Listener, Silent, Status
from tuner.session import SessionFactory
from tuner.store.events import AnyEvent, Interruption, RunFinished, RunStarted, StageFinished
from tuner.store.records import ConfirmRecord, ProbeRecord, ReportRecord, StageRecord

__all__ = ["STAGES", "Outcome", "list_knobs", "tune"]

Stage = Callable[[Run, Benches], StageRecord]


def _probe(run: Run, benches: Benches) -> StageRecord:
    with made_ready(run.study, cores=run.host.usable_cores):
        return run_probe(run, benches)


STAGES: Mapping[str, Stage] = {
    "probe": _probe,
    "baseline": run_baseline,
    "presets": run_presets,
    "screen": run_screen,
    "search": run_search,
    "minimise": run_minimise,
    "confirm": run_confirm,
    "seal": run_seal,
    "report": run_report,
}
"""The pipeline, in order. A stage whose record is in the event log is skipped: that is all of resuming."""

_NO_GAIN = 4


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished run leaves: its events, its files, and the exit code that the CLI ends with."""

    run: str
    folder: Path
    events: list[AnyEvent]
    exit_code: int
    files: dict[str, str]


def tune(
    options: RunOptions,
    *,
    listener: Listener | None = None,
    factory: SessionFactory | None = None,
    conditions: Sampler | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Run the pipeline, or what an earlier run of the same identity left of it.

    `factory` makes sessions (None: real workers), `conditions` samples the machine (None: this one, where workers are
    real), `clock` is the run's time in seconds: the seam for fakes and replays. Raises TunerError and its subclasses;
    `Interrupted` on Ctrl-C, after everything was closed.
    """
    with opened(options, listener=listener or Silent(), factory=factory, conditions=conditions, clock=clock) as run:
        benches = Benches(run)
        stage = ""
        try:
            for stage, function in STAGES.items():
                if stage not in run.records:
                    _run_stage(run, benches, stage, function)
        except KeyboardInterrupt:
            benches.close()
            run.emit(Interruption(stage=stage))
            raise Interrupted(
                f"stopped in {stage}; everything measured so far is kept in {run.folder.path}",
                next=f"the same command goes on from here: {shlex.join(options.command)}",
            ) from None
        finally:
            benches.close()
        return _outcome(run)


def _run_stage(run: Run, benches: Benches, stage: str, function: Stage) -> None:
    began, run.cut_s = run.budget.now() - run.cut_s, 0.0
    record = function(run, benches)
    run.emit(StageFinished(stage=stage, seconds=run.budget.now() - began, record=record))
    run.publish()


def _outcome(run: Run) -> Outcome:
    confirmed = run.record("confirm", ConfirmRecord)
    gained = confirmed.verdict is Verdict.FASTER
    code = _NO_GAIN if run.options.require_gain and not gained else 0
    if not any(isinstance(e, RunFinished) for e in run.events):
        run.emit(RunFinished(exit_code=code))
        run.publish()
    return Outcome(
        run=run.folder.id,
        folder=run.folder.path,
        events=run.events,
        exit_code=code,
        files=run.record("report", ReportRecord).files,
    )


class _Unnamed:
    """Tells a listener everything but the name of a run that nobody will find again."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_resumed(self, events: Sequence[AnyEvent]) -> None:
        self._listener.on_resumed(events)

    def on_event(self, event: AnyEvent) -> None:
        if not isinstance(event, RunStarted):
            self._listener.on_event(event)

    def on_status(self, status: Status) -> None:
        self._listener.on_status(status)


# What `tune knobs` asks with when no workload is named: any jitted step will do.
_ANY_STEP = """
import jax.numpy as jnp


def build():
    return lambda x: jnp.tanh(x @ x), (jnp.eye(64),)
"""


def list_knobs(
    options: RunOptions, *, listener: Listener | None = None, factory: SessionFactory | None = None
) -> tuple[list[Knob], list[KnobStatus], dict[str, str]]:
    """What exists and applies here: every knob offered (as this machine takes it, if it does), why those left that did,
    and the options' types.

    Runs the probe alone, in a store that is thrown away. `options.workload` may be a folder: then a small built-in step
    is asked with.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-knobs-") as folder:
        workload = options.workload
        if workload.is_dir():
            workload = Path(folder) / "any_step.py"
            workload.write_text(_ANY_STEP)
        store = str(Path(folder) / "store")
        # Nothing is timed: what is to be made small, and within which memory, doesn't matter here.
        alone = msgspec.structs.replace(
            options, workload=workload, store=store, fresh=True, objective="mean", max_memory=None
        )
        with opened(alone, listener=_Unnamed(listener or Silent()), factory=factory, clock=time.monotonic) as run:
            benches = Benches(run)
            try:
                record: ProbeRecord = run_probe(run, benches, lasting=False)
                offered = offered_knobs(run)
            finally:
                benches.close()
    live = {k.name: k for k in record.knobs}
    return [live.get(k.name, k) for k in offered], list(record.left), record.option_types
