"""Where a report's numbers come from: machine, software, options, raw files, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from tuner.report.blocks import Block, Code, Commands, Fold, Link, Prose, Section, Table
from tuner.report.commands import show_command
from tuner.report.view import RunView
from tuner.store.events import AnyEvent, SessionStarted

__all__ = ["provenance_section"]

_UNSET = ("", "None")
"""Options that nobody gave."""
_RAW = {
    "events": "every block that was timed, every compile, every failure: one JSON object a line",
    "table": "one row a trial",
    "logs": "everything that the processes printed, a file each",
    "report": "this report",
    "summary": "this report for a pull request or a note",
}


def provenance_section(
    view: RunView, events: Sequence[AnyEvent], files: Mapping[str, str], *, linked: Callable[[str], Link]
) -> Section:
    """`linked` makes a link of a path."""
    blocks: list[Block] = []
    if view.command:
        blocks += [Prose(text="The same command goes on with this run, or repeats it with --fresh:")]
        blocks += [Commands(lines=(shlex.join(view.command),))]
    started = f"{datetime.fromtimestamp(events[0].time, tz=UTC):%Y-%m-%d %H:%M:%S} UTC" if events else ""
    program = view.baseline.program if view.baseline else ""
    key = view.probe.environment.key if view.probe else ""
    facts = [("started", started), ("tuner", view.tuner), ("program", program), ("environment", key)]
    rows = tuple((name, Code(text)) for name, text in facts if text)
    if rows:
        blocks.append(Table(caption="This run", head=("what", "value"), rows=rows))
    if view.probe:
        environment = view.probe.environment
        caption = "A result holds only where these are equal"
        blocks.append(_named(caption, environment.identity))
        blocks.append(Fold(summary="Circumstances", blocks=(_named("What else was the case", environment.context),)))
    versions = next((e.loaded.versions for e in events if isinstance(e, SessionStarted)), {})
    for summary, caption, named in (
        ("Versions in the worker", "Packages that the step ran under", versions),
        ("Options", "Options that change what a run means", {n: v for n, v in view.options.items() if v not in _UNSET}),
        ("Inherited environment", "Variables that were set and bear on speed", view.inherited),
    ):
        if named:
            blocks.append(Fold(summary=summary, blocks=(_named(caption, named),)))
    return Section(name="provenance", title="Where this comes from", blocks=(*blocks, *_raw(view, files, linked)))


def _named(caption: str, named: Mapping[str, str]) -> Table:
    return Table(caption=caption, head=("name", "value"), rows=tuple((Code(n), Code(v)) for n, v in named.items()))


def _raw(view: RunView, files: Mapping[str, str], linked: Callable[[str], Link]) -> list[Block]:
    """Links to the raw data, and how to look into it."""
    rows = tuple((linked(files[name]), told) for name, told in _RAW.items() if files.get(name))
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(caption="Raw data", head=("file", "holds"), rows=rows))
    if view.trials:
        number = str((view.best_trial or view.trials[-1]).number)
        blocks += [
            Prose(text="One trial whole: its program, its numerics, its log. And all that failed."),
            Commands(
                lines=tuple(show_command(what, run=view.run, command=view.command) for what in (number, "--failed"))
            ),
        ]
    return blocks
