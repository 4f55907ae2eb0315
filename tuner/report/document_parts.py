"""The parts of a `RunDocument`, each with its own meaning."""

from __future__ import annotations

import msgspec

from tuner.measure.types import Verdict
from tuner.profile.types import StepProfile

__all__ = [
    "CandidatesPart",
    "CountsPart",
    "DrawsPart",
    "EffectPart",
    "EnvironmentPart",
    "FailurePart",
    "FinalistPart",
    "Interval",
    "LeftPart",
    "NextPart",
    "NoisePart",
    "OtherPart",
    "ProfilePart",
    "SealedPart",
    "TimePart",
    "UnfinishedPart",
]

Interval = tuple[float, float] | None


class EnvironmentPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`key` names the identity: the result holds only where that is equal. `context`: what else was the case."""

    key: str
    identity: dict[str, str]
    context: dict[str, str]


class EffectPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The speed-up lost when only this setting is left out, or that of one step alone, with its interval."""

    ratio: float | None
    interval: Interval


class OtherPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another function of the program under a finalist's settings. `same`: its numbers are the default's, null if that
    wasn't found out; `reason` says more. `failure`: the class, if it fails under the settings."""

    name: str
    same: bool | None
    reason: str
    speedup: float | None
    speedup_ci: Interval
    peak_bytes: int | None
    default_peak_bytes: int | None
    failure: str | None


class FinalistPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A config put to the proof. `ratios`: the speed-up in each pair of fresh processes. `steps`: of a workload of
    several steps, each one's own speed-up, by its name. `others`: the program's other functions, where this config was
    about to be emitted."""

    settings: dict[str, str]
    verdict: Verdict
    speedup: float | None
    speedup_ci: Interval
    ratios: list[float | None]
    failure: str | None
    steps: dict[str, EffectPart] = {}
    others: list[OtherPart] = []


class NoisePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Standard deviations of log time, level by level: of one step timed by itself, of one round's ratio to the control
    in one process, of one turn's ratio in a pair of fresh processes, and between such pairs beyond what their turns
    explain. `assumed`: what the plan took the last for. `drift`: change of the control's log time over the baseline.
    `rounds`, `disturbed`: all that were timed, and those among them that the machine disturbed; `pairs_redone`,
    `pairs_disturbed`: the same of pairs. `unstable`: what was seen of an unstable machine, "" for nothing.
    """

    step: float | None = None
    round: float | None = None
    turn: float | None = None
    process: float | None = None
    assumed: float | None = None
    drift: float | None = None
    rounds: int = 0
    disturbed: int = 0
    pairs_redone: int = 0
    pairs_disturbed: int = 0
    unstable: str = ""


class DrawsPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What fresh processes made of one config: ms in each, how many different programs, spread of log times."""

    settings: dict[str, str]
    ms: list[float]
    programs: int
    spread: float


class SealedPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gain of the one executable that was sealed, over defaults compiled afresh; null if it wasn't measured by
    itself, for the reason in `note`. `draws_ms`: the compiles that it is the best of."""

    speedup: float | None = None
    speedup_ci: Interval = None
    ms: float | None = None
    pairs: int = 0
    note: str = ""
    draws_ms: list[float] = []


class CandidatesPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`deduplicated`: trials that share another's samples. `failed`: class → candidates."""

    compiled: int
    deduplicated: int
    timed: int
    failed: dict[str, int]


class CountsPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`knobs`: those offered and live, and how many left for which reason; the names in `KNOBS` are always there."""

    knobs: dict[str, int]
    candidates: CandidatesPart


class LeftPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A knob that left, or lost `values` only, and why."""

    name: str
    status: str
    reason: str
    values: list[str]


class FailurePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate that failed. `failure` is the class; `trial` is null for a finalist that failed when confirmed."""

    settings: dict[str, str]
    failure: str
    phase: str
    message: str
    trial: int | None
    stage: str


class TimePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds by the clock: waiting for compiles, running timed steps, `starts`: starting and ending processes,
    `checks`: comparing numbers, taking profiles, all else."""

    total: float
    compile: float
    steps: float
    starts: float
    other: float
    checks: float = 0.0
    profiles: float = 0.0


class UnfinishedPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stage that the run is in, or ended in before its end."""

    stage: str
    seconds: float


class NextPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do next; `command` is null where there is nothing to type."""

    command: str | None
    purpose: str


class ProfilePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a step's time goes under `settings` ({}: the default). `profile`: as `tuner.profile.types` has it, null if
    it could not be had; `failure` is the class then."""

    settings: dict[str, str]
    profile: StepProfile | None
    failure: str | None
