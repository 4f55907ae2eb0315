"""Which knobs exist here, which of them apply, and why: what ``tune knobs`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tuner.knobs.knob import UNSET, Knob, When
from tuner.knobs.status import KnobStatus
from tuner.report.document import plain
from tuner.report.layout import Page
from tuner.report.wording import clean, count

__all__ = ["APPLIES", "KnobRow", "knob_rows", "knobs_document", "render_knobs"]

APPLIES = "applies"
"""The status of a knob that is still in the space."""


class KnobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A knob and what became of it. `status`: "applies" or why it left; `lost`: value → why it isn't tried.

    `option_type`: what the compiler says of the option, None if it wasn't asked or has none of that name.
    """

    knob: Knob
    status: str
    reason: str
    lost: dict[str, str]
    option_type: str | None

    @property
    def values(self) -> tuple[str, ...]:
        """The values that are tried; none of a knob that left."""
        if self.status != APPLIES:
            return ()
        return tuple(value for value in self.knob.values if value not in self.lost)


def knob_rows(
    knobs: Sequence[Knob], statuses: Sequence[KnobStatus], *, types: Mapping[str, str] | None = None
) -> tuple[KnobRow, ...]:
    """One row a knob, in the order given. `statuses` may name a knob more than once. `types`: the compiler's."""
    return tuple(_row(knob, statuses, types or {}) for knob in knobs)


def _row(knob: Knob, every: Sequence[KnobStatus], types: Mapping[str, str]) -> KnobRow:
    names = (knob.name, *knob.aliases)  # a knob that goes by an alias here loses values under that name
    statuses = [entry for entry in every if entry.name in names]
    status, reason = APPLIES, ""
    lost: dict[str, str] = {}
    for entry in statuses:
        if entry.values:
            lost.update(dict.fromkeys(entry.values, f"{entry.status}: {entry.reason}"))
        elif entry.status == "renamed":
            reason = entry.reason
        else:
            status, reason = entry.status, entry.reason
    if status == APPLIES and lost and all(value in lost for value in knob.values if value != UNSET):
        status, reason = statuses[-1].status, "none of its values can be tried"
    option_type = next((types[name] for name in names if name in types), None)
    return KnobRow(knob=knob, status=status, reason=reason, lost=lost, option_type=option_type)


def _grouped(rows: Sequence[KnobRow]) -> dict[str, list[KnobRow]]:
    groups: dict[str, list[KnobRow]] = {}
    for row in rows:
        groups.setdefault(row.knob.group or "other", []).append(row)
    return groups


def _value(value: str) -> str:
    return value or "(empty)"


def render_knobs(
    knobs: Sequence[Knob],
    statuses: Sequence[KnobStatus],
    *,
    types: Mapping[str, str] | None = None,
    width: int = 100,
    color: bool = False,
) -> str:
    """Every knob by group: its values, how it is set, whether it applies here, and why it is worth a try."""
    rows = knob_rows(knobs, statuses, types=types)
    page = Page(width)
    gone = Counter(row.status for row in rows if row.status != APPLIES)
    apply = len(rows) - gone.total()
    left = "".join(f", {number} {status}" for status, number in gone.most_common())
    page.prose(f"{count(len(rows), 'knob')}: {apply} apply here{left}", style="bold")
    for group, members in _grouped(rows).items():
        applying = sum(row.status == APPLIES for row in members)
        page.heading(group, f"{applying} of {len(members)} apply")
        for row in members:
            _knob(page, row)
    return page.text(color=color)


def _knob(page: Page, row: KnobRow) -> None:
    """All about a knob that applies; of one that doesn't, why."""
    knob, here = row.knob, row.status == APPLIES
    page.rows([(f"{row.status:<12}", knob.name)], styles=("green" if here else "yellow", "bold" if here else ""))
    facts = [("note" if here else "reason", clean(row.reason))] if row.reason else []
    if here:
        facts += _facts(row)
    facts += [("without", f"{_value(value)}, {clean(why)}") for value, why in row.lost.items()]
    page.rows(facts, indent=16 if page.width >= 70 else 4, styles=("dim", ""))


def _facts(row: KnobRow) -> list[tuple[str, str]]:
    knob = row.knob
    option = f", {row.option_type} for the compiler" if row.option_type and row.option_type != knob.type else ""
    risk = f", risks {knob.risk}" if knob.risk != "none" else ""
    how = f"{knob.carrier}, {knob.type}{option}, {knob.lane} lane, acts on {knob.acts_on}{risk}, tier {knob.tier}"
    facts = [("values", ", ".join(map(_value, row.values))), ("how", how)]
    if conditions := _conditions(knob):
        facts.append(("when", conditions))
    return [*facts, ("why", knob.why)]


def _conditions(knob: Knob) -> str:
    when: When = knob.when
    parts = [
        when.platform or "",
        f"at least {count(when.min_devices, 'device')}" if when.min_devices else "",
        f"compute capability {when.capability} or later" if when.capability else "",
        f"jax {when.jax}" if when.jax else "",
        *(f"with {name}={value}" for name, value in knob.requires.items()),
    ]
    return ", ".join(filter(None, parts))


def knobs_document(
    knobs: Sequence[Knob], statuses: Sequence[KnobStatus], *, types: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What ``tune knobs --json`` prints, schema tuner/knobs/1. `values` are those tried, `lost` those that aren't."""
    rows = knob_rows(knobs, statuses, types=types)
    return plain(
        {
            "schema": "tuner/knobs/1",
            "counts": Counter(row.status for row in rows),
            "knobs": [
                {
                    **msgspec.to_builtins(row.knob),
                    "status": row.status,
                    "reason": clean(row.reason),
                    "option_type": row.option_type,
                    "declared": row.knob.values,
                    "values": row.values,
                    "lost": {value: clean(why) for value, why in row.lost.items()},
                }
                for row in rows
            ],
        }
    )
