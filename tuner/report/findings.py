"""What a stage found, in one phrase: the line that a stage leaves behind while running and in the result."""

from __future__ import annotations

from collections import Counter

from tuner.knobs.config import DEFAULT
from tuner.measure.types import Verdict
from tuner.report.view import gone
from tuner.report.wording import change, count, duration, percent, ratio, settings, value
from tuner.store.records import (
    BaselineRecord,
    ConfirmRecord,
    Measured,
    MinimiseRecord,
    PresetsRecord,
    ProbeRecord,
    ReportRecord,
    ScreenRecord,
    SealRecord,
    SearchRecord,
    StageRecord,
)

__all__ = ["finding"]


def finding(record: StageRecord) -> str:
    """One phrase without a full stop; never empty."""
    match record:
        case ProbeRecord():
            return _probe(record)
        case BaselineRecord():
            skipped = f"; no room in it for {', '.join(record.skipped)}" if record.skipped else ""
            return (
                f"{value(record.control_ms, record.objective)}, noise {percent(record.noise)} a round, "
                f"smallest gain this budget can resolve {percent(record.resolution)}{skipped}"
            )
        case PresetsRecord():
            return f"{count(len(record.measured), 'preset')} timed{_best(record.measured)}"
        case ScreenRecord():
            flips = f"{count(len(record.flips), 'flip')} timed{_best(record.flips)}"
            return f"{flips}; {count(len(record.live), 'knob')} live{_left(record)}"
        case SearchRecord() if not record.trials and not record.best:
            return "nothing to search"
        case SearchRecord():
            how = f", {'the whole space' if record.enumerated else 'sampled'}" if record.trials else ""
            return f"{count(record.trials, 'trial')}{how}{_best(record.best)}"
        case MinimiseRecord():
            return _minimise(record)
        case ConfirmRecord():
            return _confirm(record)
        case SealRecord():
            own = record.command
            return (
                f"first step {duration(record.first_step_cold_s)} cold, {duration(record.first_step_warm_s)} from the "
                f"sealed cache; {record.cache_hits} of {count(record.cache_requests, 'compile')} found in it"
                f"{f'; {own.command}: {own.hits} of {own.requests}' if own else ''}"
            )
        case ReportRecord():
            return f"{count(len(record.files), 'file')} written"


def _probe(record: ProbeRecord) -> str:
    devices = record.environment.identity
    # A CPU's kind is "cpu" again.
    where = " ".join(dict.fromkeys(devices[key] for key in ("platform", "device_kind") if devices.get(key)))
    knobs = f"{count(len(record.offered), 'knob')} offered, {len(record.live)} live{_left(record)}"
    return f"{where}; {knobs}" if where else knobs


def _left(record: ProbeRecord | ScreenRecord) -> str:
    """How many knobs left in this stage, by status."""
    left = Counter(status.status for status in gone(record.left, record.live).values())
    return "".join(f", {number} {status}" for status, number in left.most_common())


def _best(measured: tuple[Measured, ...]) -> str:
    tried = [entry for entry in measured if entry.config != DEFAULT]
    if not tried:
        return ""
    best = max(tried, key=lambda entry: entry.estimate.gain)
    return f", best {ratio(best.estimate)} {best.label or settings(best.config)}"


def _minimise(record: MinimiseRecord) -> str:
    if record.winner is None or record.reduced is None:
        return "nothing to minimise"
    before, after = len(record.winner.config), len(record.reduced.config)
    kept = f"{count(after, 'setting')}, none to spare" if before == after else f"{after} of {before} settings kept"
    return f"{kept}, {ratio(record.reduced.estimate)}"


def _confirm(record: ConfirmRecord) -> str:
    if not record.finalists:
        return "nothing to confirm"
    unstable = f"; {record.unstable}" if record.unstable else ""
    how = "alive together" if record.alive_together else "one after another"
    pairs = f"{count(record.pairs, 'pair')} of fresh processes, {how}{unstable}"
    if record.estimate is None:
        return f"{record.verdict.value}; {pairs}"
    faster = record.verdict is Verdict.FASTER
    values = f", {change(record.control_ms, record.best_ms, record.objective)}" if faster else ""
    return f"{record.verdict.value} {ratio(record.estimate)}{values}; {pairs}"
