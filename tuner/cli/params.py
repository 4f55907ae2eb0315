"""What options, variables and settings files may hold (durations, fractions, NAME=VALUE, …), as click types."""

from __future__ import annotations

import math
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import click

__all__ = [
    "ASSIGNMENT",
    "COUNT",
    "DURATION",
    "FRACTION",
    "INTEGER",
    "INTERPRETER",
    "MEMORY",
    "STORE",
    "SWITCH",
    "TEXT",
    "VARIABLE",
    "Assignment",
    "Count",
    "Duration",
    "Fraction",
    "Interpreter",
    "Memory",
    "ParamType",
    "Store",
    "Variable",
    "duration_text",
    "fraction_text",
    "memory_text",
]

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # generic only in newer click
    ParamType = click.ParamType

SWITCH = click.BOOL
TEXT = click.STRING
INTEGER = click.INT

_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
# Compiled on first use: most commands take none of them.
_PLAIN = rf"(?:{_NUMBER})"
_CLOCK = rf"(?:({_NUMBER})h)?\s*(?:({_NUMBER})m(?:in)?)?\s*(?:({_NUMBER})s)?"
_SIZE = rf"({_NUMBER})\s*(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?"
_UNITS = {
    "b": 1,
    **{f"{p}ib": 1024**n for n, p in enumerate("kmgt", 1)},
    **{f"{p}b": 1000**n for n, p in enumerate("kmgt", 1)},
}
_KNOB_NAME = r"[A-Za-z_][\w.\-]*"
_VARIABLE_NAME = r"[A-Za-z_]\w*"


class Count(ParamType):
    """A whole number of at least `low`, and at most `high` if that is given."""

    name = "N"

    def __init__(self, low: int = 1, high: int | None = None) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip()
        if not text.isdecimal() or int(text) < self.low or (self.high is not None and int(text) > self.high):
            meant = f"of at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
            self.fail(f"{str(value)!r} is not a whole number {meant}", param, ctx)
        return int(text)


class Duration(ParamType):
    """A length of time, in seconds: "90s", "10m", "1h30m", or "600" (seconds). Greater than zero."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower()
        if re.fullmatch(_PLAIN, text):
            seconds = float(text)
        elif text and (parts := re.fullmatch(_CLOCK, text)):
            hours, minutes, rest = (float(part) if part else 0.0 for part in parts.groups())
            seconds = hours * 3600 + minutes * 60 + rest
        else:
            self.fail(f"{str(value)!r} is not a duration; write 90s, 10m, 1h30m, or a number of seconds", param, ctx)
        if seconds <= 0:
            self.fail(f"{str(value)!r} leaves no time; write 90s, 10m, 1h30m, or a number of seconds", param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{str(value)!r} is too long", param, ctx)
        return seconds


class Fraction(ParamType):
    """A share between 0 and 1: "0.5%" or "0.005". A bare number of 0.5 and more is refused: it could mean either."""

    name = "fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        percent = text.endswith("%")
        share = number / 100 if percent else number
        if not math.isfinite(share):
            self.fail(f"{str(value)!r} is not a fraction; write 0.5% or 0.005", param, ctx)
        if share <= 0:
            self.fail(f"{str(value)!r} is not above zero; write 0.5% or 0.005", param, ctx)
        if not percent and share >= 0.5:
            self.fail(f"{str(value)!r} could mean {number:g}% or {number * 100:g}%; write the % sign", param, ctx)
        if share >= 1:
            self.fail(f"{str(value)!r} is not below 100%", param, ctx)
        return share


class Memory(ParamType):
    """A size: bytes as an int ("80GiB", "500MB"), or as a float a share of the device's memory ("90%")."""

    name = "memory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        text = str(value).strip()
        if re.fullmatch(_PLAIN, text.removesuffix("%").strip()) and text.endswith("%"):
            share = float(text.removesuffix("%")) / 100
            if not 0 < share <= 1:
                self.fail(f"{str(value)!r} is not above 0% and at most 100%", param, ctx)
            return share
        size = re.fullmatch(_SIZE, text, re.IGNORECASE)
        if size is None:
            self.fail(f"{str(value)!r} is not a size; write 80GiB, 500MB, a number of bytes, or 90%", param, ctx)
        number, unit = size.groups()
        if unit is None and "." in number:
            self.fail(f"{str(value)!r} is no whole number of bytes; write 80GiB, or 90%", param, ctx)
        count = int(float(number) * _UNITS[(unit or "b").lower()])
        if count < 1:
            self.fail(f"{str(value)!r} leaves no memory; write 80GiB, 500MB, a number of bytes, or 90%", param, ctx)
        return count


class Assignment(ParamType):
    """NAME=VALUE → (name, value). The value is kept to the letter, may be empty; a flag's leading "--" goes."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):  # click converts a converted value again
            return value
        name, equals, setting = str(value).removeprefix("--").partition("=")
        if not equals:
            self.fail(f"{value!r} has no value; write {name or 'NAME'}=VALUE", param, ctx)
        if not re.fullmatch(_KNOB_NAME, name):
            self.fail(f"{name!r} can't be the name of a knob; write NAME=VALUE", param, ctx)
        return name, setting


class Variable(ParamType):
    """The name of an environment variable, without a value."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(_VARIABLE_NAME, str(value)):
            name = str(value).partition("=")[0]
            hint = f"; write {name}" if re.fullmatch(_VARIABLE_NAME, name) else ""
            self.fail(f"{str(value)!r} is not the name of a variable{hint}", param, ctx)
        return str(value)


class Interpreter(ParamType):
    """A Python interpreter: a path, or a name on PATH. Links are kept, since a virtual environment is one."""

    name = "PATH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = os.path.expanduser(str(value))
        if os.path.isdir(text):
            self.fail(f"{str(value)!r} is a folder; give the interpreter in it, e.g. {text}/bin/python", param, ctx)
        found = shutil.which(text)
        if found is None:
            there = "is not executable" if os.path.exists(text) else "is not there"
            self.fail(f"the interpreter {str(value)!r} {there}", param, ctx)
        return os.path.abspath(found)


class Store(ParamType):
    """Where runs are kept: a folder, or a database URL."""

    name = "URL|DIR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text:
            self.fail("an empty text names no folder", param, ctx)
        if "://" in text:
            return text
        folder = os.path.expanduser(text)
        if os.path.exists(folder) and not os.path.isdir(folder):
            self.fail(f"{text!r} is a file; a store is a folder or a database URL", param, ctx)
        return folder


COUNT = Count()
DURATION = Duration()
FRACTION = Fraction()
ASSIGNMENT = Assignment()
VARIABLE = Variable()
INTERPRETER = Interpreter()
MEMORY = Memory()
STORE = Store()


def duration_text(seconds: float) -> str:
    """`seconds` as `Duration` reads them: "1h30m", "10m", "90s" → "1m30s"."""
    whole, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(whole), 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts) or "0s"


def fraction_text(share: float) -> str:
    """`share` in percent, as `Fraction` reads it: 0.005 → "0.5%"."""
    return f"{share * 100:g}%"


def memory_text(limit: float) -> str:
    """`limit` as `Memory` reads it: 0.9 → "90%", bytes in the largest unit that divides them."""
    if isinstance(limit, float):
        return f"{limit * 100:g}%"
    names = ("", "KiB", "MiB", "GiB", "TiB")
    size, place = int(limit), 0
    while size % 1024 == 0 and place < len(names) - 1:
        size, place = size // 1024, place + 1
    return f"{size}{names[place]}"
