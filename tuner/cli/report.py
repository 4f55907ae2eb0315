"""`tune report`: the report on a run, made again from its event log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.boundary import Trouble, show_trouble
from tuner.cli.options import chosen, setting_options
from tuner.cli.output import write_out
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.store.reading import StoredRun

__all__ = ["command"]

_NOTHING_FOUND = 4


@click.command("report")
@click.argument("run", required=False)
@click.option("--html", "form", flag_value="html", type=click.STRING, help="Only the HTML page.")
@click.option("--md", "form", flag_value="md", type=click.STRING, help="Only the Markdown.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), metavar="FILE|-", help="Write it there."
)
@setting_options("store")
@click.pass_context
def command(ctx: click.Context, run: str | None, form: str | None, out: Path | None) -> int:
    """Write a run's report again, as HTML and Markdown.

    The files are report.html and report.md in the run's folder. RUN is a run's id or how it begins, its folder, or its
    event log; the newest run if it is left out. With --out the report goes to that file, or to standard output, and
    nowhere else.
    """
    where = chosen(ctx)["store"].value
    form = form or (_form_of(out) if out is not None else None)

    from tuner.report.written import write_reports
    from tuner.store.find import runs_at
    from tuner.store.reading import read_run

    if run is None:
        runs = runs_at(where)
        if not runs:
            advice = "tune WORKLOAD, or name another --store"
            show_trouble(Trouble(what="no run is kept here", where=where, next=advice))
            return _NOTHING_FOUND
        run = str(runs[-1].path)
    found = read_run(run, store=where)
    if out is not None and form is not None:
        _write_one(found, form, out)
    elif found.folder is None:
        raise UsageError("this log lies in no run's folder", where=run, next="say where the report goes: --out FILE")
    elif form is not None:
        target = found.folder.report_html if form == "html" else found.folder.report_markdown
        _write_one(found, form, target)
    else:
        for path in write_reports(found.events, found.folder):
            click.echo(path)
    return 0


def _form_of(out: Path) -> str:
    forms = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}
    if out.suffix not in forms:
        raise UsageError("it isn't clear which form is wanted", where=f"--out {out}", next="add --html or --md")
    return forms[out.suffix]


def _write_one(found: StoredRun, form: str, out: Path) -> None:
    from tuner.report.html import render_html
    from tuner.report.markdown import render_markdown
    from tuner.report.paper import run_paper
    from tuner.report.written import linked_files

    to_terminal = str(out) == "-"
    files = linked_files(found.folder) if found.folder else {"events": str(found.path)}
    paper = run_paper(found.events, files=files, beside=None if to_terminal else out.parent)
    text = render_html(paper) if form == "html" else render_markdown(paper)
    if to_terminal:
        click.echo(text, nl=False)
        return
    write_out(out, text.encode())
    click.echo(out)
