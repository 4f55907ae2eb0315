"""Stage 9, report: the files beside the event log that people and scripts read."""

from __future__ import annotations

import shutil

from tuner.pipeline.bench import Benches
from tuner.pipeline.context import Run
from tuner.report.table import write_results
from tuner.store.records import ReportRecord

__all__ = ["run_report"]


def run_report(run: Run, benches: Benches) -> ReportRecord:
    """Write the table of trials; name every file of the run. What only the run itself needed goes."""
    benches.close()
    folder = run.folder
    shutil.rmtree(folder.scratch, ignore_errors=True)  # the reference outputs can be gigabytes
    write_results(run.events, folder.results)
    files = {
        "env": folder.best_env,
        "shell": folder.best_sh,
        "json": folder.best_json,
        "events": folder.events,
        "table": folder.results,
        "bundle": folder.bundle,
    }
    return ReportRecord(files={name: str(path) for name, path in files.items() if path.exists()})
