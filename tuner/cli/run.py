"""`tune run`: one run of the pipeline."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import RUN_SETTINGS, chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.workload import WorkloadCommand, check_not_a_command, run_options
from tuner.errors import Interrupted

if TYPE_CHECKING:
    from tuner.pipeline.run import Outcome

__all__ = ["command"]


@click.command("run", cls=WorkloadCommand)
@click.argument("workload", type=click.Path(path_type=Path))
@setting_options(*RUN_SETTINGS)
@click.option("--fresh", is_flag=True, help="Start a new run even if one can be continued.")
@json_option
@click.pass_context
def command(ctx: click.Context, workload: Path, fresh: bool, as_json: bool) -> int:
    """Tune WORKLOAD and prove the gain.

    WORKLOAD is a Python file with a top-level `build()`, or a script that calls a jitted step. The same command
    continues an interrupted run. What stands after `--` is passed to the workload as its arguments.
    """
    settings = chosen(ctx)
    options = run_options(ctx, workload, settings, fresh=fresh)
    check_not_a_command(ctx, workload)

    from tuner.store.uninterrupted import uninterrupted

    with uninterrupted():  # among the imports are some that lose a KeyboardInterrupt
        from tuner.pipeline.run import tune
        from tuner.report.progress import listener_for

    try:
        with listener_for(sys.stderr, quiet=settings["quiet"].value) as listener:
            outcome = tune(options, listener=listener)
    except KeyboardInterrupt:
        raise Interrupted("interrupted", next=shlex.join(options.command)) from None
    _print_result(outcome, as_json)
    return outcome.exit_code


def _print_result(outcome: Outcome, as_json: bool) -> None:
    from tuner.report.document import document
    from tuner.report.terminal import render_result
    from tuner.report.view import RunView

    view = RunView.of(outcome.events)
    if as_json:
        print_json(document(view, outcome.files))
        return
    width, color = look()
    click.echo(render_result(view, width=width, color=color, files=outcome.files), color=color, nl=False)
