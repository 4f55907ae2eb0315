"""What ``tune compare --format json`` prints, schema tuner/compare/1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.measure.types import Estimate
from tuner.report.comparison import Against, Comparison, Mean
from tuner.report.document import interval_json, plain, speedup_json
from tuner.report.sides import Side

__all__ = ["comparison_document"]


def comparison_document(comparison: Comparison, *, slower: Sequence[Against] | None = None) -> dict[str, Any]:
    """Speed-ups with [low, high]; null for what can't be told. ``relative``: gain over its own default, as a ratio to
    the base's; ``tuned_time``, ``default_time`` come from absolute times, which drift may have moved. ``slower``:
    labels of those that failed the check, null if none was asked for."""
    return plain(
        {
            "schema": "tuner/compare/1",
            "sides": [_side(side) for side in comparison.sides],
            "groups": [
                {
                    "workload": group.workload,
                    "base": group.sides[0].label,
                    "against": [_against(entry) for entry in group.against],
                }
                for group in comparison.groups
            ],
            "means": [_mean(mean) for mean in comparison.means],
            "slower": None if slower is None else [entry.other.label for entry in slower],
        }
    )


def _ratio(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {"ratio": speedup_json(estimate), "interval": interval_json(estimate)}


def _side(side: Side) -> dict[str, Any]:
    return {
        "label": side.label,
        "name": side.name,
        "kind": side.kind,
        "workload": side.workload,
        "program": side.program,
        "environment": {"identity": side.identity, "context": side.context},
        "settings": side.settings,
        "held": side.held,
        "verdict": side.verdict,
        "gain": _ratio(side.gain),
        "measured": _ratio(side.measured),
        "pairs": side.pairs,
        "per": side.per,
        "control_ms": side.control_ms,
        "best_ms": side.best_ms,
    }


def _against(entry: Against) -> dict[str, Any]:
    return {
        "label": entry.other.label,
        "relative": _ratio(entry.gain),
        "tuned_time": _ratio(entry.time),
        "default_time": _ratio(entry.default),
        "same_program": entry.step,
        "same_run": entry.once,
        "environment_differs": entry.unlike,
        "context_differs": entry.circumstances,
    }


def _mean(mean: Mean) -> dict[str, Any]:
    return {
        "labels": mean.labels,
        "speedup": _ratio(mean.speedup),
        "relative": _ratio(mean.relative),
        "why_not": mean.why,
    }
