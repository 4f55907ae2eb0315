"""How results go to standard output: JSON, or text for the terminal that is there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["look", "print_json"]

_PLAIN_WIDTH = 100


def print_json(document: Mapping[str, Any]) -> None:
    """One document, indented, safe for any encoding."""
    import json

    click.echo(json.dumps(document, indent=2, allow_nan=False))


def look() -> tuple[int, bool]:
    """Width in columns, and whether colour is welcome on standard output (https://no-color.org)."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _PLAIN_WIDTH, False
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size().columns, color
