"""Option sets that commands share, as decorators, and what the user gave of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from tuner.cli.invocation import Invocation
from tuner.cli.params import SWITCH, Assignment
from tuner.cli.settings import SETTINGS, Chosen, Setting, choose
from tuner.errors import UsageError

__all__ = ["KNOB_SETTINGS", "RUN_SETTINGS", "chosen", "form_of", "form_option", "json_option", "setting_options"]

KNOB_SETTINGS = ("space", "knob", "platform", "allow", "override", "python")
"""Settings that decide which knobs there are."""

RUN_SETTINGS = (
    "space",
    "budget",
    "trials",
    "min-gain",
    "objective",
    "max-memory",
    "first",
    "knob",
    "platform",
    "allow",
    "launch",
    "seal-with",
    "seal-time",
    "pgle",
    "install-path",
    "require-gain",
    "override",
    "python",
    "store",
    "seed",
)
"""Settings that decide what a run does."""

F = TypeVar("F", bound=Callable[..., Any])


def setting_options(*names: str) -> Callable[[F], F]:
    """Give a command the options of these settings, and --quiet and --debug. `chosen` tells what they are worth."""

    def decorate(command: F) -> F:
        for name in reversed((*names, "quiet", "debug")):
            command = _option(SETTINGS[name])(command)
        return command

    return decorate


form_option = click.option(
    "--knob",
    "knobs",
    type=Assignment(),
    multiple=True,
    help="A parameter of build() that the result was tuned with. Repeatable.  [none, if there is such a result]",
)


def form_of(knobs: tuple[tuple[str, str], ...]) -> dict[str, str] | None:
    """What `form_option` gave, for a question to the store."""
    return dict(knobs) or None


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")


def chosen(ctx: click.Context) -> dict[str, Chosen]:
    """Every setting for this invocation. Raises UsageError."""
    given: Mapping[str, Any] = ctx.meta.get(_GIVEN, {})
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", next="change to a folder that exists") from None
    settings = choose(given, os.environ, folder)
    invocation = ctx.ensure_object(Invocation)
    invocation.debug = invocation.debug or settings["debug"].value
    return settings


_GIVEN = "tuner.given"


def _option(setting: Setting) -> Callable[[F], F]:
    default = setting.unset if setting.default is None else setting.default
    switch = setting.type is SWITCH
    shown = "" if switch else f"  [{default}]"
    return click.option(
        setting.option,
        f"given_{setting.name.replace('-', '_')}",
        type=setting.type,
        is_flag=switch,
        multiple=setting.many,
        default=None,
        metavar=setting.metavar,
        help=f"{setting.help}{shown}",
        expose_value=False,
        is_eager=setting.name == "debug",
        callback=_keep,
    )


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Note an option that the user gave; click's own defaults are not among them."""
    if value is None or value == ():
        return
    name = (param.name or "").removeprefix("given_").replace("_", "-")
    ctx.meta.setdefault(_GIVEN, {})[name] = value
    if name == "debug":
        ctx.ensure_object(Invocation).debug = value
