"""`tune show`: one trial of a run, or the candidates that failed, from the run's event log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.boundary import Trouble, show_trouble
from tuner.cli.options import chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.suggest import did_you_mean
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.store.folder import RunFolder

__all__ = ["show"]

_NOTHING_FOUND = 4


@click.command("show")
@click.argument("trial", type=click.IntRange(min=0), required=False)
@click.option("--failed", is_flag=True, help="Every candidate that failed, by cause.")
@click.option("--run", "run_id", metavar="ID", help="The run to look into.  [the newest]")
@setting_options("store")
@json_option
@click.pass_context
def show(ctx: click.Context, trial: int | None, failed: bool, run_id: str | None, as_json: bool) -> int:
    """Show one TRIAL of a run by its number, or all that failed."""
    if (trial is None) == (not failed):
        raise UsageError("give the number of a trial, or --failed", next="tune show 3, or tune show --failed")
    where = chosen(ctx)["store"].value
    run = _find(_runs(where), run_id)
    if run is None:
        show_trouble(Trouble(what="no run is kept here", where=where, next="tune WORKLOAD, or name another --store"))
        return _NOTHING_FOUND

    from tuner.report import trial as report
    from tuner.store.log import read

    events = read(run.events)
    width, color = look()
    if as_json:
        print_json(report.failed_document(events) if trial is None else report.trial_document(events, trial))
    elif trial is None:
        click.echo(report.render_failed(events, width=width, color=color), color=color)
    else:
        click.echo(report.render_trial(events, trial, width=width, color=color), color=color)
    return 0


def _runs(where: str) -> tuple[RunFolder, ...]:
    """The runs that the store at `where` keeps, the newest last. Looking makes no folder."""
    from tuner.store.folder import DEFAULT_FOLDER, Store

    root = DEFAULT_FOLDER if "://" in where else Path(where)
    runs = Store(root=root.absolute(), url=where).run_folders()
    return tuple(sorted(runs, key=lambda run: run.events.stat().st_mtime))


def _find(runs: tuple[RunFolder, ...], run_id: str | None) -> RunFolder | None:
    """The newest run, or the one named; None if there is none at all. Raises UsageError for an unknown name."""
    if run_id is None or not runs:
        return runs[-1] if runs else None
    named = {run.id: run for run in runs}
    if run_id not in named:
        meant = did_you_mean(run_id, named)
        raise UsageError(
            f"unknown run {run_id!r}" + (f"; did you mean {meant}?" if meant else ""),
            where="--run",
            next=f"the newest ones are {', '.join([run.id for run in runs][-3:])}",
        )
    return named[run_id]
