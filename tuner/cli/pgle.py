"""`tune pgle`: one profile for the compiler's latency estimates, taken and judged by itself."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tuner.cli.options import chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.params import COUNT, Count
from tuner.cli.result_settings import settings_of
from tuner.cli.workload import WorkloadCommand, arguments_of

__all__ = ["command"]


@click.command("pgle", cls=WorkloadCommand)
@click.argument("workload", type=click.Path(path_type=Path))
@click.option("--runs", type=COUNT, default=3, show_default=True, metavar="N", help="Trace N steps.")
@click.option("--percentile", type=Count(0, 100), default=90, show_default=True, help="Of each one's times.")
@click.option("--env-file", type=click.Path(path_type=Path), metavar="FILE", help="Under the settings of an env-file.")
@click.option("--run", "run", metavar="RUN|BUNDLE", help="Under the settings that this run found.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep all there.")
@setting_options("knob", "platform", "python", "store")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    workload: Path,
    runs: int,
    percentile: int,
    env_file: Path | None,
    run: str | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Take a PGLE profile of WORKLOAD, judge it, and keep it.

    Nothing is timed; `tune WORKLOAD` finds out what it gains. --knob takes parameters of build(). Exits 1 if the
    profile is of no use here, and says why.
    """
    settings = chosen(ctx)
    store = settings["store"].value
    quiet = settings["quiet"].value
    env, knobs = settings_of(workload, env_file=env_file, run=run, store=store, quiet=quiet)

    from tuner.knobs import Recipe
    from tuner.pipeline.guide import GuideOptions, guide_workload
    from tuner.pipeline.workload_file import typed_knob
    from tuner.report.guide import guide_document, render_guide
    from tuner.store import open_store

    root = open_store(store).root
    options = GuideOptions(
        workload=workload,
        folder=(out or root / "pgle" / f"{workload.stem}-{time.strftime('%Y%m%d-%H%M%S')}").absolute(),
        argv=arguments_of(ctx),
        env=env,
        knobs={**knobs, **{name: typed_knob(value) for name, value in settings["knob"].value.items()}},
        recipe=Recipe(runs=runs, percentile=percentile),
        python=settings["python"].value,
        platform=settings["platform"].value,
    )
    said = f"tune: taking a profile of {workload} in a fresh process"
    found = guide_workload(options, begins=lambda: None if quiet else click.echo(said, err=True))
    if as_json:
        print_json(guide_document(found))
    else:
        width, color = look()
        click.echo(render_guide(found, workload, width=width, color=color), color=color, nl=False)
    return int(bool(found.cause))
