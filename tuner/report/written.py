"""The report's files in a run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.report.html import render_html
from tuner.report.markdown import render_markdown
from tuner.report.paper import run_paper
from tuner.store.disk import disk_error
from tuner.store.events import AnyEvent
from tuner.store.folder import RunFolder

__all__ = ["linked_files", "run_files", "write_reports"]


def run_files(folder: RunFolder) -> dict[str, str]:
    """The files of a run that are there, by the names that reports give them."""
    files = {
        "env": folder.best_env,
        "shell": folder.best_sh,
        "json": folder.best_json,
        "events": folder.events,
        "table": folder.results,
        "report": folder.report_html,
        "summary": folder.report_markdown,
        "bundle": folder.bundle,
    }
    return {name: str(path) for name, path in files.items() if path.exists()}


def linked_files(folder: RunFolder) -> dict[str, str]:
    """Those that a report links to: the run's, and the folder of what its processes printed."""
    return run_files(folder) | ({"logs": str(folder.logs)} if folder.logs.exists() else {})


def write_reports(events: Sequence[AnyEvent], folder: RunFolder) -> tuple[Path, Path]:
    """Write ``report.html`` and ``report.md`` into the run's folder. Raises StoreError if the disk refuses."""
    own = {"report": str(folder.report_html), "summary": str(folder.report_markdown)}
    paper = run_paper(events, files=linked_files(folder) | own, beside=folder.path)
    _write(folder.report_html, render_html(paper))
    _write(folder.report_markdown, render_markdown(paper))
    return folder.report_html, folder.report_markdown


def _write(path: Path, text: str) -> None:
    """A file in UTF-8. Raises StoreError if the disk refuses."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise disk_error(error, path) from error
