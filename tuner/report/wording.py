"""Numbers, settings and foreign text as people read them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # words must not wait for what they are about
    from tuner.knobs.config import Config
    from tuner.measure.objective import Objective
    from tuner.measure.types import Estimate
    from tuner.protocol.failure import Failure

__all__ = [
    "bytes_text",
    "change",
    "change_ms",
    "clean",
    "clock",
    "count",
    "duration",
    "ended",
    "flags",
    "interval",
    "milliseconds",
    "percent",
    "ratio",
    "reason",
    "sentence",
    "setting",
    "settings",
    "si_text",
    "some",
    "speedup",
    "value",
]

_RATE = "units of work a second"
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """`text` from a program's log or error, without escape sequences and control characters; tabs become spaces."""
    return _CONTROL.sub("", _ESCAPE.sub("", text)).expandtabs(4)


def sentence(text: str) -> str:
    """`text` as a sentence begins; the rest keeps its own capitals (units, names)."""
    return text[:1].upper() + text[1:]


def speedup(gain: float) -> float:
    """exp(gain), infinite where that is too large for a float."""
    try:
        return math.exp(gain)
    except OverflowError:
        return math.inf


def interval(estimate: Estimate) -> tuple[float, float] | None:
    """The interval as speed-up ratios (low, high); None if a bound is not finite."""
    low, high = speedup(estimate.low), speedup(estimate.high)
    if math.isfinite(estimate.low) and math.isfinite(low) and math.isfinite(high):
        return low, high
    return None


def ratio(estimate: Estimate) -> str:
    """A speed-up with its interval: ``1.43x (1.40–1.46)``; a third decimal where two would hide what it says."""
    best, bounds = speedup(estimate.gain), interval(estimate)
    if not math.isfinite(best):
        return "not computable"
    if bounds is None:
        return f"{best:.2f}x (no interval)"
    low, high = bounds
    fine = high - low < 0.04 or min(abs(low - 1), abs(high - 1)) < 0.005
    digits = 3 if fine else 2
    return f"{best:.{digits}f}x ({low:.{digits}f}–{high:.{digits}f})"


def _significant(value: float, digits: int) -> str:
    if not math.isfinite(value) or value == 0:
        return str(value) if value else "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def milliseconds(value: float) -> str:
    """Three significant digits: ``16.2 ms``."""
    return f"{_significant(value, 3)} ms"


def change_ms(before: float, after: float) -> str:
    """``16.2 → 11.3 ms``, with as many digits as it takes to tell the two apart, at most five."""
    return f"{_told_apart(before, after)} ms"


def value(ms: float, objective: Objective) -> str:
    """A value of the objective: ``16.2 ms a step``, ``16.2 ms a step at p99``, ``61700 units of work a second``."""
    if objective.name == "throughput" and ms > 0:
        return f"{_significant(1e3 / ms, 3)} {_RATE}"
    return f"{milliseconds(ms)} {objective.per}"


def change(before_ms: float, after_ms: float, objective: Objective) -> str:
    """``16.2 → 11.3 ms a step``; of throughput ``61700 → 88500 units of work a second``."""
    if objective.name == "throughput" and before_ms > 0 and after_ms > 0:
        return f"{_told_apart(1e3 / before_ms, 1e3 / after_ms)} {_RATE}"
    return f"{change_ms(before_ms, after_ms)} {objective.per}"


def _told_apart(before: float, after: float) -> str:
    """``16.2 → 11.3``, with as many digits as it takes to tell the two apart, from three to five."""
    for digits in (3, 4, 5):
        texts = _significant(before, digits), _significant(after, digits)
        if texts[0] != texts[1]:
            break
    return " → ".join(texts)


def duration(seconds: float) -> str:
    """``2.1 s``, ``83 s``, ``12 min 5 s``, ``2 h 5 min``."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def clock(seconds: float) -> str:
    """``1:23`` or ``1:02:03``, for a display that changes."""
    whole = max(0, int(seconds))
    minutes = f"{whole // 60 % 60:02d}:{whole % 60:02d}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else minutes


def percent(fraction: float) -> str:
    """``0.6 %`` from 0.006; two significant digits below 10 %, three above."""
    if not math.isfinite(fraction):
        return "unknown"
    text = _significant(fraction * 100, 2 if abs(fraction) < 0.1 else 3)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def bytes_text(size: int) -> str:
    """``1.5 GiB``."""
    value, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{size} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 knob``, ``3 knobs``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def ended(failure: Failure) -> str:
    """How the process ended, for instance ``SIGSEGV, rank 1, step 7``; "" if it lived on."""
    code = f"exit code {failure.exit_code}" if failure.exit_code is not None else ""
    rank = f"rank {failure.rank}" if failure.rank or failure.steps is not None else ""
    step = "" if failure.steps is None else f"step {failure.steps}"
    return ", ".join(filter(None, (failure.signal, code, rank, step)))


def reason(failure: Failure) -> str:
    """Why it failed: its message, else how and where the process ended."""
    return clean(failure.message) or " in ".join(filter(None, (ended(failure), failure.phase)))


def setting(name: str, value: str) -> str:
    """One setting as it is written: ``--xla_…=value`` for a flag, ``name=value`` for the rest.

    An empty value is a value of its own and is said so.
    """
    text = f"--{name}={value}" if name.startswith("xla_") else f"{name}={value}"
    return text if value else f"{text} (empty)"


def settings(config: Config) -> str:
    """All settings of a config on one line; "default" if there are none."""
    return " ".join(setting(name, value) for name, value in config.settings) or "default"


def flags(config: Config) -> tuple[str, ...]:
    """The config as lines for a shell: one ``XLA_FLAGS='…'`` for all flags, then each other setting."""
    xla = [f"--{name}={value}" for name, value in config.settings if name.startswith("xla_")]
    rest = [f"{name}={shlex.quote(value)}" for name, value in config.settings if not name.startswith("xla_")]
    return (*([f"XLA_FLAGS={shlex.quote(' '.join(xla))}"] if xla else []), *rest)


def some(names: Iterable[str], limit: int) -> str:
    """The first `limit` names and how many more there are."""
    every = list(names)
    more = [f"and {len(every) - limit} more"] if len(every) > limit else []
    return ", ".join(every[:limit] + more)


def si_text(value: float) -> str:
    """Three digits, and the letter of the power of a thousand with a space before it."""
    for factor, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * factor:  # what three digits round up to it
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} "
