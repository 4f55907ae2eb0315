"""`tune best`: what is known to be best for a workload, without starting anything."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.boundary import Trouble, show_trouble
from tuner.cli.options import chosen, form_of, form_option, json_option, setting_options
from tuner.cli.output import print_json
from tuner.cli.params import COUNT
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.store.lookup import Answer

__all__ = ["command"]

_NO_ANSWER = 4
_SCHEMA = "tuner/best/1"
_BY = {
    "alias": "the file and what it imports beside it are as they were tuned (--check lowers the step)",
    "program": "the step lowers to the program that was tuned",
    "name": "only the file's name is that of the tuned one: it has changed since (--check lowers the step)",
}


@click.command("best")
@click.argument("workload", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Lower the step in a fresh process and go by its program, not the file.")
@click.option(
    "--for", "place", metavar="ENVIRONMENT", help="Answer for another place: a key, NAME=VALUE[,…] or a manifest.json."
)
@click.option("--previous", is_flag=True, help="The bundle before the newest, to go back to.")
@click.option("--number", type=COUNT, metavar="N", help="The bundle with this number.")
@form_option
@setting_options("python", "store")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    workload: Path,
    check: bool,
    place: str | None,
    previous: bool,
    number: int | None,
    knobs: tuple[tuple[str, str], ...],
    as_json: bool,
) -> int:
    """Show the best settings that are known for WORKLOAD here.

    Exits 4 if there are none for this place, and names what differs. What was measured on a machine with another
    kernel and the like is usable, with a notice.
    """
    settings = chosen(ctx)
    if previous and number is not None:
        raise UsageError("--previous and --number exclude each other", next="give one of them")
    where, python = settings["store"].value, settings["python"].value
    quiet = settings["quiet"].value

    import msgspec

    from tuner.machine.here import visible
    from tuner.store.folder import locate_store
    from tuner.store.lookup import look_up, question_of, why_none

    store = locate_store(where)
    question = question_of(workload, number=number, previous=previous, knobs=form_of(knobs))
    if place is None:
        seen = visible(python)
    else:
        from tuner.store.places import place_of

        seen = place_of(place, store)
    found = look_up(store, question, seen=seen)
    checked = False
    if check:
        question, checked = _checked(question, found.answer, workload, python), True
        found = look_up(store, question, seen=seen)
    if found.notice and not quiet:
        click.echo(f"tune: {found.notice}", err=True)
    answer = found.answer
    if answer is None or (checked and answer.by != "program" and not _same(answer, question.program)):
        changed = "the step lowers to another program than the one that was tuned"
        why = changed if answer is not None else why_none(found, question, store=where)
        show_trouble(Trouble(what=why, where=str(workload), next=f"tune {workload}"))
        return _NO_ANSWER
    if answer.unlike:
        differs = ", ".join(f"{name} is {here}, not {there}" for name, (there, here) in answer.unlike.items())
        what = f"run {answer.run} is of another place: {differs}"
        advice = f"tune {workload}; for another place: tune best {workload} --for ENVIRONMENT"
        show_trouble(Trouble(what=what, where=str(workload), next=advice))
        return _NO_ANSWER
    context = {} if place is not None else _context(answer, seen)
    if as_json:
        print_json(_document(answer, context, checked))
        return 0
    kept = settings["store"]
    named = ["--store", where] if kept.source == "option" else []
    _show(answer, workload, checked, store=named)
    if not answer.settings and not previous and number is None:
        before = look_up(store, msgspec.structs.replace(question, previous=True), seen=seen).answer
        if before is not None and before.settings and not before.unlike:
            form = [word for name, value in knobs for word in ("--knob", f"{name}={value}")]
            elsewhere = ["--for", place] if place is not None else []
            _show_before(before, ["tune", "best", str(workload), "--previous", *form, *elsewhere, *named])
    if context and not quiet:
        differs = ", ".join(f"{name} is {here}, not {there}" for name, (there, here) in context.items())
        click.echo(f"tune: usable, but measured elsewhere: {differs}; tune verify checks it", err=True)
    return 0


def _checked(question: Any, answer: Answer | None, workload: Path, python: str) -> Any:
    """The question with the program that the step lowers to here."""
    import msgspec

    from tuner.handoff.bundle import load_bundle
    from tuner.handoff.lowering import lowered_program
    from tuner.machine.inherited import inherited

    bundle = load_bundle(answer.bundle, cached=False) if answer is not None and answer.bundle else None
    control = bundle.manifest.control if bundle else None
    program = lowered_program(workload, control=control, python=python, environ=inherited())
    return msgspec.structs.replace(question, program=program)


def _same(answer: Answer, program: str) -> bool:
    return program in (answer.program, answer.first_program)


def _context(answer: Answer, seen: dict[str, str]) -> dict[str, tuple[str, str]]:
    context = answer.environment.context
    return {n: (there, seen[n]) for n, there in context.items() if n in seen and seen[n] != there}


def _show(answer: Answer, workload: Path, checked: bool, *, store: list[str]) -> None:
    """`store`: the words that named one on the command line, which the next command must name too."""
    from tuner.report.wording import ratio, setting

    gain = ratio(answer.estimate) if answer.estimate else "the default"
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(answer.time))
    click.echo(f"{workload.name} #{answer.number}: {answer.verdict.value}, {gain}; sealed {day} by run {answer.run}")
    by = "program" if checked else answer.by
    click.echo(f"found by {by}: {_BY[by]}")
    if answer.held or answer.argv:
        told = [f"--knob {name}={value}" for name, value in answer.held.items()]
        click.echo(f"tuned with {' '.join([*told, *(['--', answer.argv] if answer.argv else [])])}")
    for name, value in answer.settings.items():
        click.echo(f"  {setting(name, value)}")
    for name, value in answer.variables.items():
        click.echo(f"  {name}={value}")
    if answer.bundle is not None:
        click.echo(f"bundle {answer.bundle}")
        words = ["tune", "exec", str(workload), "--number", str(answer.number), *store]
        click.echo(f"use it: {shlex.join(words)} -- COMMAND")
    else:
        click.echo(answer.whereabouts)
    if answer.later:
        run, verdict = answer.later
        click.echo(f"run {run} came later and settled nothing ({verdict.value}): tune report {run}")


def _show_before(before: Answer, command: list[str]) -> None:
    """A default that a later run left hides what an earlier one gained, also where it had only less time to find it."""
    from tuner.report.wording import ratio

    gain = ratio(before.estimate) if before.estimate else "other settings"
    click.echo(f"the bundle before it has {gain}: {shlex.join(command)}")


def _document(answer: Answer, context: dict[str, tuple[str, str]], checked: bool) -> dict[str, Any]:
    """Differences are [there, here]; `interval` and `speedup` are null without a gain."""
    import math

    found = answer.estimate
    return {
        "schema": _SCHEMA,
        "run": answer.run,
        "number": answer.number,
        "by": "program" if checked else answer.by,
        "verdict": answer.verdict.value,
        "speedup": None if found is None else math.exp(found.gain),
        "interval": None if found is None else [math.exp(found.low), math.exp(found.high)],
        "settings": answer.settings,
        "later": None if answer.later is None else dict(zip(("run", "verdict"), answer.later, strict=True)),
        "held": answer.held,
        "argv": answer.argv,
        "env": answer.variables,
        "bundle": None if answer.bundle is None else str(answer.bundle),
        "program": answer.program,
        "sealed": answer.time,
        "environment": {"identity": answer.environment.identity, "context": answer.environment.context},
        "context_differs": {name: list(pair) for name, pair in context.items()},
    }
