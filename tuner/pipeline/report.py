"""Stage 9, report: the files beside the event log that people and scripts read."""

from __future__ import annotations

import shutil

from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.report.table import write_results
from tuner.report.written import run_files, write_reports
from tuner.store.records import ReportRecord

__all__ = ["run_report"]


def run_report(run: Run, benches: Benches) -> ReportRecord:
    """Write the table of trials and the report in both forms; name every file of the run. What only the run itself
    needed goes."""
    benches.close()
    folder = run.folder
    shutil.rmtree(folder.scratch, ignore_errors=True)
    write_results(run.events, folder.results)
    write_reports(run.events, folder)
    return ReportRecord(files=run_files(folder))
