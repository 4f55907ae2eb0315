"""Search spaces for runs on made-up machines, as the TOML that a user would write."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["knob", "space"]


def knob(
    name: str,
    *,
    carrier: str = "xla_flag",
    type: str = "bool",
    values: Sequence[str] = ("unset", "true"),
    lane: str = "option",
    acts_on: str = "hlo",
    risk: str = "none",
) -> str:
    """A ``[[knob]]``: a flag to switch on, unless said otherwise."""
    offered = ", ".join(f'"{value}"' for value in values)
    return f"""
[[knob]]
name = "{name}"
carrier = "{carrier}"
type = "{type}"
values = [{offered}]
lane = "{lane}"
acts_on = "{acts_on}"
risk = "{risk}"
why = "made up"
source = "test"
"""


def space(*entries: str) -> str:
    """A whole file of knobs and presets."""
    return "version = 1\n" + "".join(entries)
