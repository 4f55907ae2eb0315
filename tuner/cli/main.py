"""The console script `tune`: a group of commands, `run` the default, and the one place where errors are shown."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO

import click

import tuner
from tuner.cli.boundary import describe, show_trouble
from tuner.cli.invocation import Invocation
from tuner.errors import UsageError

__all__ = ["cli", "main"]

_GROUP_OPTIONS = ("--help", "-h", "--version", "--debug")
_ASKING = (signal.SIGTERM, signal.SIGHUP)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


_COMMANDS = {
    "best": "Show the best settings that are known for WORKLOAD here.",
    "compare": "Put runs, bundles and documents side by side.",
    "config": "Show every setting, its value and where it came from.",
    "doctor": "Check software, devices, machine and environment.",
    "exec": "Become COMMAND, under the best settings that are known.",
    "export": "Write the settings of a result for the program's starter.",
    "knobs": "List the knobs, which of them apply here, and why.",
    "pgle": "Take a PGLE profile of WORKLOAD, judge it, and keep it.",
    "profile": "Show where a step's time goes, and why.",
    "report": "Write a run's report again, as HTML and Markdown.",
    "run": "Tune WORKLOAD and prove the gain.",
    "show": "Show one TRIAL of a run by its number, or all that failed.",
    "verify": "Check that a bundle still holds here, and exit 3 if not.",
    "store": "List, mend, merge and clear what runs have left.",
}
"""What each command does. It is called `command` in the module of its own name, which is imported when it is asked for:
the help of all must not wait for the imports of each."""


# Imports make many objects that stay. By default looking through them for garbage is a twentieth of a short command.
_GARBAGE = 20_000


class Commands(click.Group):
    """The commands. `run` may be left out: ``tune FILE …`` is ``tune run FILE …``, options before FILE as well."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"tuner.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        _refuse_typographic_dashes(args)
        first = next((i for i, arg in enumerate(args) if arg != "--debug"), len(args) - 1)
        if args[first] not in _COMMANDS and args[first] not in _GROUP_OPTIONS:
            args = [*args[:first], "run", *args[first:]]
        return super().parse_args(ctx, args)


def _refuse_typographic_dashes(args: Sequence[str]) -> None:
    """An option copied from a text that made one dash of two would be taken for a file."""
    ours = args[: args.index("--")] if "--" in args else args
    for arg in ours:
        if arg[:1] and arg[0] in _DASHES:
            raise UsageError(
                f"{arg!r} begins with a typographic dash", next=f"write --{arg.lstrip(_DASHES + '-')}, with two hyphens"
            )


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"tune {tuner.__version__}")
        ctx.exit()


def _turn_on_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).debug = True


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@click.option(
    "--debug", is_flag=True, is_eager=True, expose_value=False, callback=_turn_on_debug, help="Show tracebacks."
)
def cli() -> None:
    """Find the settings under which a jitted JAX step runs fastest with unchanged results.

    `tune WORKLOAD` is short for `tune run WORKLOAD`.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one command line and return its exit code. `argv` is without the program's name; None takes sys.argv."""
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    invocation = Invocation(arguments=arguments, debug=os.environ.get("TUNER_DEBUG", "") not in ("", "0"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a result must not be lost to a terminal that lacks a letter
            stream.reconfigure(errors="replace")
    gc.set_threshold(_GARBAGE)
    with _asked_to_end():
        code = _served(arguments, invocation)
    return code if _flushed(sys.stdout) else code or 1


@contextlib.contextmanager
def _asked_to_end() -> Iterator[None]:
    """What a scheduler or a container sends before it kills, and what a lost terminal does, ends a command as Ctrl-C
    ends it: what was measured is kept, no process stays behind. The second time it ends at once; the other signal,
    which whoever ends a login session sends right behind the first, says nothing new. Where a signal is ignored
    already, as under nohup, it stays so."""

    def end(number: int, _: object) -> None:
        for each in taken:
            signal.signal(each, signal.SIG_DFL if each == number else signal.SIG_IGN)
        raise KeyboardInterrupt

    taken = []
    if threading.current_thread() is threading.main_thread():
        taken = [number for number in _ASKING if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _served(arguments: Sequence[str], invocation: Invocation) -> int:
    try:
        # Without click's own handling, main() returns what the command returned, or the code of --help and the like.
        code: Any = cli.main(list(arguments), prog_name="tune", obj=invocation, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        if invocation.debug:
            import traceback

            traceback.print_exception(error)
        trouble = describe(error)
        show_trouble(trouble)
        return trouble.exit_code
    return code if isinstance(code, int) else 0


def _flushed(stream: TextIO | None) -> bool:
    """Write out what `stream` holds; if it can't take it, send the rest nowhere, so that the exit stays quiet."""
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
        os.close(nowhere)
        return False
    return True
