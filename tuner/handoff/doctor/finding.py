"""Finding: one line of the doctor's report."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Finding", "Level", "fail", "ok", "warn"]

Level = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`fail`: tuning, or what was tuned, will not work or mean nothing; `warn`: it will be worse than need be.

    `check`: what was looked at. `fix`: what to do; "" where nothing has to be done.
    """

    level: Level
    check: str
    what: str
    fix: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding(level="ok", check=check, what=what)


def warn(check: str, what: str, fix: str) -> Finding:
    return Finding(level="warn", check=check, what=what, fix=fix)


def fail(check: str, what: str, fix: str) -> Finding:
    return Finding(level="fail", check=check, what=what, fix=fix)
