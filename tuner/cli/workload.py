"""What commands that take a workload share: its own arguments after ``--``, and the user's wishes as `RunOptions`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.invocation import Invocation
from tuner.cli.settings import Chosen
from tuner.cli.suggest import did_you_mean
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.pipeline.options import RunOptions

__all__ = ["WorkloadCommand", "arguments_of", "check_not_a_command", "run_options"]

_ARGV = "tuner.argv"


class WorkloadCommand(click.Command):
    """A command that leaves everything after ``--`` to the workload, and takes one argument before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[_ARGV] = tuple(args[cut + 1 :])
        ctx.allow_extra_args = True  # to say below what they are, where click would only count them
        rest = super().parse_args(ctx, args[:cut])
        if rest and not ctx.resilient_parsing:
            check_not_a_command(ctx, ctx.params["workload"])
            usage = f"{ctx.command_path} {shlex.join([str(ctx.params['workload']), '--', *rest])}"
            raise UsageError(
                f"{rest[0]!r} is one argument too many", next=f"put the workload's own arguments after --: {usage}"
            )
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENT...]"]


def arguments_of(ctx: click.Context) -> tuple[str, ...]:
    """What stands after ``--``."""
    words: tuple[str, ...] = ctx.meta[_ARGV]
    return words


def check_not_a_command(ctx: click.Context, workload: Path) -> None:
    """A word that is no file may be a mistyped command. Raises UsageError with the one that was probably meant."""
    group = ctx.find_root().command
    if isinstance(group, click.Group) and not workload.suffix and not workload.exists():
        meant = did_you_mean(str(workload), group.list_commands(ctx))
        if meant:
            raise UsageError(
                f"no such file or command; did you mean `tune {meant}`?", where=str(workload), next="tune --help"
            )


def run_options(
    ctx: click.Context, workload: Path, settings: Mapping[str, Chosen], *, fresh: bool = False
) -> RunOptions:
    """What the user asks, as the pipeline takes it. `command` goes on with the run, so it leaves out --fresh."""
    from tuner.pipeline.options import RunOptions

    return RunOptions(
        workload=workload,
        argv=arguments_of(ctx),
        spaces=settings["space"].value,
        budget_s=settings["budget"].value,
        trials=settings["trials"].value,
        min_gain=settings["min-gain"].value,
        objective=settings["objective"].value,
        max_memory=settings["max-memory"].value,
        first=settings["first"].value,
        hold=settings["knob"].value,
        platform=settings["platform"].value,
        allow=frozenset(settings["allow"].value),
        launch=settings["launch"].value or "",
        seal_with=settings["seal-with"].value or "",
        seal_s=settings["seal-time"].value,
        pgle=settings["pgle"].value,
        install_path=settings["install-path"].value or "",
        require_gain=settings["require-gain"].value,
        override=settings["override"].value,
        python=settings["python"].value,
        store=settings["store"].value,
        fresh=fresh,
        seed=settings["seed"].value,
        command=_going_on(ctx.ensure_object(Invocation).arguments),
    )


def _going_on(arguments: tuple[str, ...]) -> tuple[str, ...]:
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    return ("tune", *(word for word in arguments[:cut] if word != "--fresh"), *arguments[cut:])
