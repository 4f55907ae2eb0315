"""What the report says of the program's other functions under the settings that are to be emitted."""

from __future__ import annotations

from tuner.report.view import RunView
from tuner.report.wording import bytes_text, clean, ratio, reason
from tuner.store.records import Finalist, OtherFunction

__all__ = ["checked", "said"]


def checked(view: RunView) -> Finalist | None:
    """The finalist whose other functions are to be told: the chosen one, else the last that was ruled out by them."""
    finalists = [f for f in (view.confirm.finalists if view.confirm else ()) if f.others]
    chosen = [f for f in finalists if view.confirm and f.config == view.confirm.chosen]
    return next(iter([*chosen, *reversed(finalists)]), None)


def said(other: OtherFunction) -> str:
    """One function in a phrase: its numbers, its speed, its memory where that changed."""
    if other.failure is not None:
        return f"fails, {other.failure.kind.value}: {reason(other.failure)}"
    if other.passed is None:
        return clean(other.reason)
    numbers = "same numbers" if other.passed else "other numbers"
    parts = [f"{numbers} ({clean(other.reason)})" if other.reason else numbers]
    if other.gain is not None:
        parts.append(ratio(other.gain))
    if other.default_peak_bytes is not None and other.peak_bytes is not None:
        before, after = bytes_text(other.default_peak_bytes), bytes_text(other.peak_bytes)
        parts += [f"peak memory {before} → {after}"] if before != after else []
    return ", ".join(parts)
