"""`tune config`: every setting, what it is worth, and where that came from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tuner.cli.options import RUN_SETTINGS, chosen, json_option, setting_options
from tuner.cli.output import print_json
from tuner.cli.params import DURATION, FRACTION, MEMORY, duration_text, fraction_text, memory_text
from tuner.cli.settings import Chosen, find_file, stray_variables

__all__ = ["command"]

SCHEMA = "tuner/config/1"


@click.command("config")
@setting_options(*RUN_SETTINGS)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int:
    """Show every setting, its value and where it came from.

    An option counts before its TUNER_* variable, that before tuner.toml or [tool.tuner] in pyproject.toml (the first
    one found in this folder or above it), and that before the default.
    """
    settings = chosen(ctx)
    file = find_file(Path.cwd())
    strays = tuple(stray_variables(os.environ))
    if as_json:
        entries = [
            {"name": name, "value": one.value, "source": one.source, "where": one.where}
            for name, one in settings.items()
        ]
        place = str(file.path) if file else None
        print_json({"schema": SCHEMA, "file": place, "settings": entries, "ignored": strays})
        return 0
    rows = [(name, _shown(one), one.where or "default") for name, one in settings.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        click.echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    if file is None:
        click.echo("no tuner.toml and no [tool.tuner] in this folder or above it", err=True)
    for name in strays:
        click.echo(f"{name} is no setting of tune and is ignored", err=True)
    return 0


def _shown(one: Chosen) -> str:
    """A value as the option would be written."""
    value: Any = one.value
    if isinstance(value, dict):
        value = [f"{name}={text}" for name, text in value.items()]
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return f"({one.setting.unset})"
    if isinstance(value, (list, tuple)):
        return " ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if one.setting.type is DURATION:
        return duration_text(value)
    if one.setting.type is MEMORY:
        return memory_text(value)
    return fraction_text(value) if one.setting.type is FRACTION else str(value)
