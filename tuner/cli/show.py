"""`tune show`: one trial of a run, or the candidates that failed, from the run's event log."""

from __future__ import annotations

import click

from tuner.cli.boundary import Trouble, show_trouble
from tuner.cli.options import chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.params import Count
from tuner.errors import UsageError

__all__ = ["command"]

_NOTHING_FOUND = 4


@click.command("show")
@click.argument("trial", type=Count(0), required=False)
@click.option("--failed", is_flag=True, help="Every candidate that failed, by cause.")
@click.option("--ran", is_flag=True, help="All, grouped by how they communicated.")
@click.option("--run", "run_id", metavar="ID", help="The run to look into.  [the newest]")
@setting_options("store")
@json_option
@click.pass_context
def command(ctx: click.Context, trial: int | None, failed: bool, ran: bool, run_id: str | None, as_json: bool) -> int:
    """Show one TRIAL of a run by its number, or all that failed."""
    if (trial is not None) + failed + ran != 1:
        raise UsageError("give the number of a trial, --failed or --ran", next="tune show 3, or tune show --failed")
    where = chosen(ctx)["store"].value

    from tuner.report import trial as report
    from tuner.report.ran import ran_document, render_ran
    from tuner.store.find import find_run, runs_at
    from tuner.store.log import read

    runs = runs_at(where)
    if not runs:
        show_trouble(Trouble(what="no run is kept here", where=where, next="tune WORKLOAD, or name another --store"))
        return _NOTHING_FOUND
    events = read((runs[-1] if run_id is None else find_run(runs, run_id, where="--run")).events)
    width, color = look()
    if ran:
        if as_json:
            print_json(ran_document(events))
        else:
            click.echo(render_ran(events, width=width, color=color), color=color, nl=False)
    elif as_json:
        print_json(report.failed_document(events) if trial is None else report.trial_document(events, trial))
    elif trial is None:
        click.echo(report.render_failed(events, width=width, color=color), color=color, nl=False)
    else:
        click.echo(report.render_trial(events, trial, width=width, color=color), color=color, nl=False)
    return 0
