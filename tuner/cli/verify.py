"""`tune verify`: whether a bundle still holds here; the gate for upgrades."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.boundary import Trouble, show_trouble
from tuner.cli.options import chosen, form_of, form_option, json_option, setting_options
from tuner.cli.output import look, print_json
from tuner.cli.params import DURATION
from tuner.errors import StoreError, TunerError, UsageError

if TYPE_CHECKING:
    from tuner.handoff.doctor.finding import Finding

__all__ = ["command"]

_FAILED = 3
_NO_ANSWER = 4


@click.command("verify")
@click.argument("target", metavar="BUNDLE|RUN|WORKLOAD")
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@click.option("--time", "limit_s", type=DURATION, default="60s", metavar="TIME", help="Go on for about so long.  [60s]")
@click.option("--require-gain", is_flag=True, help="A gain that can't be told in that time is a failure too.")
@form_option
@setting_options("python", "store")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    workload: Path | None,
    limit_s: float,
    require_gain: bool,
    knobs: tuple[tuple[str, str], ...],
    as_json: bool,
) -> int:
    """Check that a bundle still holds here, and exit 3 if not.

    Files are what was sealed, flags exist, the step lowers to the tuned program, everything it compiles is found in the
    cache, its numbers are the default's, the gain holds. WORKLOAD is the program's file; without it the one that was
    tuned.
    """
    settings = chosen(ctx)

    from tuner.handoff.doctor.finding import fail, ok
    from tuner.handoff.target import resolve
    from tuner.handoff.verify import verify
    from tuner.machine.inherited import inherited

    try:
        found = resolve(target, store=settings["store"].value, cached=True, knobs=form_of(knobs))
    except TunerError as error:
        if isinstance(error, (UsageError, StoreError)):
            raise
        return _told([fail("files", f"{error.where} {error.what}", error.next)], as_json)
    if found.notice and not settings["quiet"].value:
        click.echo(f"tune: {found.notice}", err=True)
    if found.bundle is None:
        show_trouble(Trouble(what=f"nothing to verify: {found.why}", where=target, next="tune WORKLOAD"))
        return _NO_ANSWER
    file = _workload(target, workload, found.bundle.path, found.bundle.manifest.workload)
    findings = list(verify(found.bundle, file, python=settings["python"].value, environ=inherited(), limit_s=limit_s))
    if require_gain and any(f.check == "gain" and f.what.startswith("can't be told") for f in findings):
        findings = [fail(f.check, f.what, f.fix) if f.check == "gain" else f for f in findings]
    return _told([ok("files", "what was sealed"), *findings], as_json)


def _told(findings: Sequence[Finding], as_json: bool) -> int:
    from tuner.report.doctor import doctor_document, render_findings

    if as_json:
        print_json({**doctor_document(findings), "schema": "tuner/verify/1"})
    else:
        width, color = look()
        click.echo(render_findings(findings, width=width, color=color), color=color, nl=False)
    return _FAILED if any(f.level == "fail" for f in findings) else 0


def _workload(target: str, given: Path | None, bundle: Path, name: str) -> Path:
    """The file to verify with. Raises UsageError if it has to be named."""
    if given is not None:
        if not given.is_file():
            raise UsageError("no such file", where=str(given), next="name the workload's file")
        return given
    named = Path(target)
    if named.is_file() and named.suffix == ".py":
        return named

    from tuner.store.events import RunStarted
    from tuner.store.log import read_first

    first = read_first(bundle.parent.parent / "events.jsonl")
    tuned = [Path(first.workload)] if isinstance(first, RunStarted) else []
    for path in (*tuned, Path(name)):
        if path.is_file():
            return path
    raise UsageError(f"{name} isn't here", where=target, next=f"tune verify {target} WORKLOAD")
