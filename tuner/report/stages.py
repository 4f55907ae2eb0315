"""What each stage took and found, and what the run's time went into: rows for every form of report."""

from __future__ import annotations

from tuner.report.findings import finding
from tuner.report.view import STAGES, RunView
from tuner.report.wording import count, duration
from tuner.store.records import StageRecord

__all__ = ["spent_on", "stage_rows"]


def stage_rows(view: RunView) -> list[tuple[str, str, str]]:
    """Rows (stage, time, what it found or where it stands), every stage once."""
    records: dict[str, StageRecord | None] = {
        "probe": view.probe,
        "baseline": view.baseline,
        "presets": view.presets,
        "screen": view.screen,
        "search": view.search,
        "minimise": view.minimise,
        "confirm": view.confirm,
        "seal": view.seal,
        "report": view.report,
    }
    rows = []
    for stage in STAGES:
        record = records[stage]
        if record is not None:
            rows.append((stage, duration(view.stages.get(stage, 0.0)), finding(record)))
        elif stage == view.unfinished:
            state = "interrupted" if view.interrupted else "under way" if view.exit_code is None else "stopped"
            tried = sum(trial.stage == stage for trial in view.trials)
            done, unit = (view.pairs, "pair") if stage == "confirm" else (tried, "trial")
            rows.append((stage, duration(view.unfinished_s), f"{state} after {count(done, unit)}" if done else state))
        elif stage == "report" and view.confirm is not None and not view.unfinished:
            rows.append((stage, "–", "this report is of its making"))
        else:
            rows.append((stage, "–", "not run"))
    return rows


def spent_on(view: RunView) -> str:
    """The run's time by the clock, in one phrase."""
    spent = view.spent
    profiles = f"profiles {duration(spent.profiles_s)}, " if spent.profiles_s else ""
    return (
        f"{duration(spent.total_s)}: compiling {duration(spent.compile_s)}, timed steps {duration(spent.steps_s)}, "
        f"checking numbers {duration(spent.checks_s)}, starting and ending processes {duration(spent.processes_s)}, "
        f"{profiles}other {duration(spent.other_s)} ({spent.other_s / spent.total_s if spent.total_s else 0:.0%})"
    )
