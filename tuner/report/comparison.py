"""Comparison: sides grouped by workload, each against the first of its group, and means over workloads.

Two runs were not interleaved: what the machine did differently on the two occasions is in every absolute time. A ratio
to the control that ran beside it is free of that, so the comparison rests on *gains over each run's own default*.
Times are told beside them, with a warning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from tuner.errors import UsageError
from tuner.measure.across import geometric_mean, relative, time_gain
from tuner.measure.types import Estimate, Verdict
from tuner.report.sides import UNCHANGED, Side

__all__ = ["Against", "Comparison", "Group", "Mean", "compare", "differences", "slower"]


_SAME = 1e-6  # of a time, to what forms of one result round it


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """One side against its group's base; gains are positive where `other` does better.

    `gain`: of its settings over its own default, relative to that of the base (None: one of them has none).
    `time`: of its step with what it emits, `default`: of its default step, both from absolute times (None: unknown, or
    another objective). `unlike`, `circumstances`: identity and context that differ, name → (base, other). `step`: False
    if the two are known to be different programs. `once`: both are of one run, so one and the same measurement.
    """

    base: Side
    other: Side
    gain: Estimate | None
    time: Estimate | None
    default: Estimate | None
    unlike: dict[str, tuple[str, str]]
    circumstances: dict[str, tuple[str, str]]
    step: bool
    once: bool = False

    @property
    def undecided(self) -> tuple[Side, ...]:
        """The sides that keep the defaults because their gain could not be told, and not because there is none."""
        return tuple(side for side in (self.base, self.other) if side.verdict in (Verdict.UNCLEAR, Verdict.UNSTABLE))


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The sides of one workload, in the order given; the first is the base."""

    workload: str
    sides: tuple[Side, ...]
    against: tuple[Against, ...]


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """Over all workloads, for the sides at `place` of every group (0: the bases).

    `speedup`: mean gain over their own defaults. `relative`: mean relative gain against the bases, None for place 0.
    Either is None where it can't be told, and `why` says why.
    """

    place: int
    labels: tuple[str, ...]
    speedup: Estimate | None
    relative: Estimate | None
    why: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`settings_only`: sides without any measurement (env-files), whose settings alone are compared."""

    groups: tuple[Group, ...]
    means: tuple[Mean, ...]
    settings_only: tuple[Side, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        return (*(side for group in self.groups for side in group.sides), *self.settings_only)

    @property
    def against(self) -> tuple[Against, ...]:
        return tuple(entry for group in self.groups for entry in group.against)


def compare(sides: Sequence[Side]) -> Comparison:
    """Group `sides` by workload and compare each with the first of its group.

    Means are taken where there are several workloads with equally many sides each: the first ones of all groups belong
    together, the second ones, and so on. Sides that belong together but were measured in different environments are
    not averaged. Raises UsageError for fewer than two sides.
    """
    if len(sides) < 2:
        raise UsageError("there is nothing to compare with", next="name at least two runs, bundles or documents")
    measured = [side for side in _labelled(sides) if side.kind != "env-file"]
    names = dict.fromkeys(side.workload for side in measured)
    groups = tuple(_group(name, [side for side in measured if side.workload == name]) for name in names)
    rest = tuple(side for side in _labelled(sides) if side.kind == "env-file")
    return Comparison(groups=groups, means=_means(groups), settings_only=rest)


def slower(comparison: Comparison, limit: float, *, by_time: bool = False) -> list[Against]:
    """Those that are slower than their base by more than `limit` (0.01: 1 %) with the whole interval.

    Judged by relative gains, or by absolute step times. Each comparison errs with half of what its level leaves
    (2.5 %). Raises UsageError where there is nothing to judge by: a check that can't be made must neither pass nor
    fail. A side that is unclear or unstable keeps the defaults without knowing what could be gained.
    """
    bound = math.log1p(limit)
    found = []
    for entry in comparison.against:
        if entry.once:
            raise UsageError(
                f"is the same run as {entry.base.label}: nothing was measured twice",
                where=entry.other.label,
                next="give the run that it is to be held against",
            )
        estimate = entry.time if by_time else entry.gain
        if estimate is None or not math.isfinite(estimate.high) or (entry.undecided and not by_time):
            what = "two step times a side" if by_time else "a verdict faster or same on each side"
            raise UsageError(
                f"can't be checked against {entry.base.label}: that takes {what}",
                where=entry.other.label,
                next="run it to its end, with a larger --budget where it is unclear, or leave it out",
            )
        if estimate.high < -bound:
            found.append(entry)
    if not comparison.against:
        raise UsageError("no two of these are of the same workload", next="name two runs of one workload")
    return found


def _labelled(sides: Sequence[Side]) -> list[Side]:
    """Labels that tell the sides apart: of equal ones, the name that the user gave, else with a number."""
    labels = [side.label for side in sides]
    named = [side.name if labels.count(side.label) > 1 else side.label for side in sides]
    unique = [f"{label} ({i + 1})" if named.count(label) > 1 else label for i, label in enumerate(named)]
    return [msgspec.structs.replace(side, label=label) for side, label in zip(sides, unique, strict=True)]


def _group(workload: str, sides: Sequence[Side]) -> Group:
    base = sides[0]
    return Group(workload=workload, sides=tuple(sides), against=tuple(_against(base, side) for side in sides[1:]))


def _against(base: Side, other: Side) -> Against:
    alike, once = base.per == other.per, _once(base, other)
    gain = relative(base.gain, other.gain) if base.gain and other.gain and alike else None
    time = _time(base.best_pairs, other.best_pairs, (base.best_ms, other.best_ms)) if alike else None
    default = _time(base.control_pairs, other.control_pairs, (base.control_ms, other.control_ms)) if alike else None
    # One measurement has no error against itself.
    gain, time, default = (UNCHANGED if once and known else known for known in (gain, time, default))
    return Against(
        base=base,
        other=other,
        gain=gain,
        time=time,
        default=default,
        once=once,
        unlike=differences(base.identity, other.identity) if base.identity and other.identity else {},
        circumstances=differences(base.context, other.context) if base.context and other.context else {},
        step=not (base.program and other.program) or base.program == other.program,
    )


def _once(base: Side, other: Side) -> bool:
    """Of one run, in whatever form: the same id and times. With --fresh a run keeps its id, and measures anew."""
    times = (base.control_ms, other.control_ms), (base.best_ms, other.best_ms)
    alike = all(a == b or (a and b and math.isclose(a, b, rel_tol=_SAME)) for a, b in times)
    return bool(base.run) and base.run == other.run and alike


def _time(base: Sequence[float], other: Sequence[float], single: tuple[float | None, float | None]) -> Estimate | None:
    """From one time a process where these are known, else from the two figures alone, without an interval."""
    if base and other:
        return time_gain(base, other)
    if single[0] is None or single[1] is None:
        return None
    return time_gain([single[0]], [single[1]])


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What differs, name → (in `a`, in `b`); "" where it is missing."""
    names = dict.fromkeys((*a, *b))
    return {name: (a.get(name, ""), b.get(name, "")) for name in names if a.get(name, "") != b.get(name, "")}


def _means(groups: Sequence[Group]) -> tuple[Mean, ...]:
    sizes = {len(group.sides) for group in groups}
    if len(groups) < 2 or len(sizes) != 1:
        return ()
    means = []
    for place in range(sizes.pop()):
        sides = [group.sides[place] for group in groups]
        gains = [side.gain for side in sides]
        relatives = [group.against[place - 1].gain for group in groups] if place else []
        why = _why_no_mean(sides, [group.sides[0] for group in groups])
        means.append(
            Mean(
                place=place,
                labels=tuple(side.label for side in sides),
                speedup=_mean(gains) if not why else None,
                relative=_mean(relatives) if place and not why else None,
                why=why,
            )
        )
    return tuple(means)


def _why_no_mean(sides: Sequence[Side], bases: Sequence[Side]) -> str:
    lacking = [side.label for side in (*sides, *bases) if side.gain is None]
    if lacking:
        return f"{lacking[0]} has no verdict"
    for row in (sides, bases):
        if len({side.per for side in row}) > 1:
            return "they were measured with different objectives"
        unlike = next((d for side in row[1:] if (d := differences(row[0].identity, side.identity))), {})
        if unlike:
            return f"they were measured in different environments: {', '.join(unlike)}"
    return ""


def _mean(estimates: Sequence[Estimate | None]) -> Estimate | None:
    known = [estimate for estimate in estimates if estimate is not None]
    return geometric_mean(known) if known and len(known) == len(estimates) else None
