"""Why a knob, or some of its values, left the space."""

from __future__ import annotations

import msgspec

__all__ = ["KnobStatus"]


class KnobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A knob that left the space, or lost values, and why.

    `status`: unsupported (no such option here) · inapplicable (its `when` doesn't hold) · pinned (inherited and not
    overridden) · risky (may hang the machine, and not overridden) · renamed (an alias is used) · inert (compiles to the
    control's program) · failed · wrong (numbers) · over_memory (beyond `--max-memory`) · slower (alone, by far) · held
    (by `--knob`) · skipped (budget).
    """

    name: str
    status: str
    reason: str
    values: tuple[str, ...] = ()
