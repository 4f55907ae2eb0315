"""`tune doctor`: whether everything here is fit for tuning."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.options import chosen, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.params import DURATION

__all__ = ["command"]


@click.command("doctor")
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@click.option("--timeout", type=DURATION, default="60s", metavar="TIME", help="Wait so long for jax to start.  [60s]")
@setting_options("python", "store")
@json_option
@click.pass_context
def command(ctx: click.Context, workload: Path | None, timeout: float, as_json: bool) -> int:
    """Check software, devices, machine and environment.

    Says what to do about each trouble; exits 1 if a check failed. With WORKLOAD also whether the file can be tuned and
    its result fits here.
    """
    settings = chosen(ctx)

    from tuner.handoff.doctor import diagnose, gather
    from tuner.machine.inherited import inherited
    from tuner.pipeline.workload_file import inspect
    from tuner.report.doctor import doctor_document, render_findings

    facts = gather(
        inherited(),
        python=settings["python"].value,
        store=settings["store"].value,
        workload=workload,
        inspect=inspect,
        timeout_s=timeout,
    )
    findings = diagnose(facts)
    if as_json:
        print_json(doctor_document(findings))
    else:
        width, color = look()
        click.echo(render_findings(findings, width=width, color=color), color=color, nl=False)
    return int(any(finding.level == "fail" for finding in findings))
