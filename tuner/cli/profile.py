"""`tune profile`: where a step's time goes."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click

from tuner.cli.options import chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.params import COUNT, DURATION
from tuner.cli.result_settings import settings_of
from tuner.cli.workload import WorkloadCommand, arguments_of
from tuner.errors import UsageError

__all__ = ["command"]


@click.command("profile", cls=WorkloadCommand)
@click.argument("workload", type=click.Path(path_type=Path))
@click.option("--env-file", type=click.Path(path_type=Path), metavar="FILE", help="Under the settings of an env-file.")
@click.option("--run", "run", metavar="RUN|BUNDLE", help="Under the settings that this run found.")
@click.option("--steps", type=COUNT, metavar="N", help="Trace N steps.  [3 to 10, by their time]")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep the traces there.")
@click.option("--processes", type=COUNT, metavar="N", help="Over N processes, each with its share of the devices.")
@click.option("--nsys", is_flag=True, help="A timeline by Nsight Systems instead.")
@click.option("--delay", type=DURATION, metavar="TIME", help="With --nsys: begin so long after the start.")
@click.option("--duration", type=DURATION, metavar="TIME", help="With --nsys: capture for so long.")
@setting_options("knob", "platform", "launch", "python", "store")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    workload: Path,
    env_file: Path | None,
    run: str | None,
    steps: int | None,
    out: Path | None,
    processes: int | None,
    nsys: bool,
    delay: float | None,
    duration: float | None,
    as_json: bool,
) -> int:
    """Show where a step's time goes, and why.

    Also what bounds it, and what to try. The traces stay in the store, for XProf, TensorBoard and Perfetto. --knob
    takes parameters of build(). With several processes each rank's
    trace is read. Exits 1 where a profiler that was asked for is missing.
    """
    settings = chosen(ctx)
    if (delay or duration) and not nsys:
        raise UsageError("--delay and --duration are for --nsys", next="add --nsys")
    launch = settings["launch"].value or ""
    if processes and launch:
        raise UsageError("--processes and --launch say two things", next="leave one of them out")
    if nsys and launch:
        raise UsageError(
            "--nsys is for processes on this machine",
            next="put nsys before the program in your own launch command, once a rank",
        )
    store = settings["store"].value
    quiet = settings["quiet"].value
    env, knobs = settings_of(workload, env_file=env_file, run=run, store=store, quiet=quiet)

    from tuner.pipeline.profiling import ProfileOptions, profile_workload
    from tuner.pipeline.workload_file import typed_knob
    from tuner.store import open_store

    root = open_store(store).root
    options = ProfileOptions(
        workload=workload,
        folder=(out or root / "profiles" / f"{workload.stem}-{time.strftime('%Y%m%d-%H%M%S')}").absolute(),
        root=root,
        argv=arguments_of(ctx),
        env=env,
        knobs={**knobs, **{name: typed_knob(value) for name, value in settings["knob"].value.items()}},
        steps=steps,
        processes=processes or 1,
        launcher=tuple(shlex.split(launch)),
        nsight=nsys,
        delay_s=delay,
        duration_s=duration,
        python=settings["python"].value,
        platform=settings["platform"].value,
    )
    said = f"tune: profiling {workload} in a fresh process"
    found = profile_workload(options, begins=lambda: None if quiet else click.echo(said, err=True))

    from tuner.report.profile import profile_document, render_profile

    if as_json:
        print_json(profile_document(found))
    else:
        width, color = look()
        click.echo(render_profile(found, width=width, color=color), color=color, nl=False)
    return int(found.missing)
