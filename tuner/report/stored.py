"""What a store holds, as tables for the terminal and as documents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.report.layout import Page
from tuner.report.wording import clean, count, setting

__all__ = ["SCHEMA", "render_rows", "render_things", "stored_document"]

SCHEMA = "tuner/store/1"

Row = Mapping[str, Any]

_SHORT = 12


def render_rows(kind: str, rows: Sequence[Row], *, width: int = 100, color: bool = False) -> str:
    """One kind of thing, a line each; keys are shown by how they begin."""
    page = Page(width)
    page.rows([_COLUMNS[kind](row) for row in rows], indent=0, wrap=False)
    page.blank()
    page.prose(count(len(rows), _ONE[kind], kind if kind != "keys" else "cache keys"), style="dim")
    return page.text(color=color)


def render_things(things: Mapping[str, Sequence[Row]], *, width: int = 100, color: bool = False) -> str:
    """All about something, kind by kind, with every field."""
    page = Page(width)
    for kind, rows in things.items():
        if rows:
            page.heading(
                kind if kind != "keys" else "cache keys", "raw samples are in the log" if kind == "runs" else ""
            )
        for row in rows:
            if kind == "keys":
                page.line(row["key"], indent=2)
                continue
            page.blank()
            page.rows([(name, _said(name, value)) for name, value in row.items()], wrap=False)
    return page.text(color=color)


def stored_document(things: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """The rows by kind. Times are seconds since the epoch, gains −log of a time ratio."""
    return {"schema": SCHEMA, **{kind: [dict(row) for row in rows] for kind, rows in things.items()}}


def _run(row: Row) -> tuple[str, ...]:
    state = row["verdict"] or ("unfinished" if row["exit_code"] is None else "no verdict")
    return _day(row["started"]), row["run"], row["workload"] or "", state, count(row["trials"], "trial")


def _bundle(row: Row) -> tuple[str, ...]:
    said = f"#{row['number']}"
    return _day(row["time"]), f"{row['workload']} {said}", row["run"], _gain(row), _settings(row["settings"])


def _verdict(row: Row) -> tuple[str, ...]:
    mark = "chosen" if row["chosen"] else ""
    return _day(row["time"]), row["run"], row["verdict"], _gain(row), mark, _settings(row["settings"])


def _program(row: Row) -> tuple[str, ...]:
    return row["program"][:_SHORT], row["workload"] or "", count(row["runs"], "run")


def _environment(row: Row) -> tuple[str, ...]:
    identity = ", ".join(f"{name} {value}" for name, value in sorted(row["identity"].items()))
    return row["environment"], count(row["runs"], "run"), identity


def _key(row: Row) -> tuple[str, ...]:
    return row["run"], f"#{row['number']}", row["key"]


_COLUMNS: Mapping[str, Callable[[Row], tuple[str, ...]]] = {
    "runs": _run,
    "bundles": _bundle,
    "verdicts": _verdict,
    "programs": _program,
    "environments": _environment,
    "keys": _key,
}
_ONE = {
    "runs": "run",
    "bundles": "bundle",
    "verdicts": "verdict",
    "programs": "program",
    "environments": "environment",
    "keys": "cache key",
}


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _gain(row: Row) -> str:
    if not all(row[name] is not None and math.isfinite(row[name]) for name in ("gain", "low", "high")):
        return row["verdict"] or ""
    return f"{math.exp(row['gain']):.3g}x ({math.exp(row['low']):.3g}–{math.exp(row['high']):.3g})"


def _settings(settings: Any) -> str:
    return " ".join(setting(name, value) for name, value in settings or ()) or "default"


def _said(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in ("started", "finished", "time"):
        return _day(value)
    if name == "settings":
        return _settings(value)
    if name in ("gain", "low", "high") and math.isfinite(value):
        return f"{math.exp(value):.3g}x"
    if name in ("control_ms", "best_ms"):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{n}={v}" for n, v in sorted(value.items()))
    return clean(str(value))
