"""How results go out: JSON, text for the terminal that is there, or a file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tuner.errors import UsageError

__all__ = ["look", "print_json", "write_out"]

_PLAIN_WIDTH = 100


def print_json(document: Mapping[str, Any]) -> None:
    """One document, indented, safe for any encoding."""
    import json

    click.echo(json.dumps(document, indent=2, allow_nan=False))


def look() -> tuple[int, bool]:
    """Width in columns, and whether colour is welcome on standard output (https://no-color.org).

    Elsewhere than on a terminal the width is what COLUMNS says, if somebody exported it.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        said = os.environ.get("COLUMNS", "")
        return (int(said) if said.isdecimal() and int(said) > 0 else _PLAIN_WIDTH), False
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size().columns, color


def write_out(path: Path, data: bytes) -> None:
    """Write what ``--out`` names whole or not at all: whoever loads it at this moment gets the old one or the new one.

    Raises UsageError if it can't be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise UsageError(
            f"can't be written: {error.strerror or error}", where=str(path), next="give another --out"
        ) from error
    finally:
        part.unlink(missing_ok=True)
