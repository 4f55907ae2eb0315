"""The console script `tune`: a group of commands, `run` the default, and the one place where errors are shown."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

import tuner
from tuner.cli.boundary import describe, show_trouble
from tuner.cli.config import config
from tuner.cli.exec import exec_
from tuner.cli.export import export
from tuner.cli.knobs import knobs
from tuner.cli.options import Invocation
from tuner.cli.run import run
from tuner.cli.show import show
from tuner.errors import UsageError

__all__ = ["cli", "main"]

_GROUP_OPTIONS = ("--help", "-h", "--version", "--debug")
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


class DefaultRun(click.Group):
    """A group whose command may be left out: ``tune FILE …`` is ``tune run FILE …``, options before FILE as well."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        _refuse_typographic_dashes(args)
        first = next((i for i, arg in enumerate(args) if arg != "--debug"), len(args) - 1)
        if args[first] not in self.commands and args[first] not in _GROUP_OPTIONS:
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


@click.group(cls=DefaultRun, context_settings={"help_option_names": ["-h", "--help"]})
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


for _command in (run, show, export, exec_, knobs, config):
    cli.add_command(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one command line and return its exit code. `argv` is without the program's name; None takes sys.argv."""
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    invocation = Invocation(arguments=arguments, debug=os.environ.get("TUNER_DEBUG", "") not in ("", "0"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a result must not be lost to a terminal that lacks a letter
            stream.reconfigure(errors="replace")
    code = _served(arguments, invocation)
    return code if _flushed(sys.stdout) else code or 1


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
