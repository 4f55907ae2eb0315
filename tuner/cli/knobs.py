"""`tune knobs`: which knobs there are, which of them apply here, and why."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tuner.cli.options import KNOB_SETTINGS, chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.workload import WorkloadCommand, run_options
from tuner.errors import WorkloadError

__all__ = ["command"]

# A folder is the pipeline's sign for "any step will do".
_ANY_STEP = Path()


@click.command("knobs", cls=WorkloadCommand)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@setting_options(*KNOB_SETTINGS)
@json_option
@click.pass_context
def command(ctx: click.Context, workload: Path | None, as_json: bool) -> int:
    """List the knobs, which of them apply here, and why.

    With WORKLOAD the knobs that it declares are listed too. Nothing is tuned and nothing is kept.
    """
    if workload is not None and workload.is_dir():
        raise WorkloadError("is a folder, not a Python file", where=str(workload), next="name one workload file")
    settings = chosen(ctx)
    options = run_options(ctx, workload or _ANY_STEP, settings)

    from tuner.pipeline.run import list_knobs
    from tuner.report.knobs import knobs_document, render_knobs
    from tuner.report.progress import listener_for

    with listener_for(sys.stderr, quiet=settings["quiet"].value) as listener:
        found, statuses, types = list_knobs(options, listener=listener)
    if as_json:
        print_json(knobs_document(found, statuses, types=types))
        return 0
    width, color = look()
    click.echo(render_knobs(found, statuses, types=types, width=width, color=color), color=color, nl=False)
    return 0
