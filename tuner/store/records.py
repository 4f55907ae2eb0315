"""What each stage of the pipeline found: one frozen record a stage, appended to the event log."""

from __future__ import annotations

import msgspec

from tuner.knobs.config import Config
from tuner.knobs.knob import Knob
from tuner.knobs.status import KnobStatus
from tuner.machine.environment import Environment
from tuner.measure.objective import BlockForm, Objective
from tuner.measure.types import Estimate, Levels, Tolerance, Verdict
from tuner.protocol.failure import Failure
from tuner.protocol.messages import CacheModule

__all__ = [
    "BaselineRecord",
    "ConfirmRecord",
    "Draws",
    "Effect",
    "Finalist",
    "Measured",
    "MinimiseRecord",
    "OtherFunction",
    "PresetsRecord",
    "ProbeRecord",
    "ReportRecord",
    "ScreenRecord",
    "SealRecord",
    "SealedCommand",
    "SearchRecord",
    "StageRecord",
    "Tolerance",
]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its gain over the home control, its session's offset included."""

    config: Config
    estimate: Estimate
    fingerprint: str
    trial: int
    label: str = ""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What one kept setting does by itself: the gain lost when only it is dropped from the winner."""

    name: str
    value: str
    estimate: Estimate


class ProbeRecord(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """`live`: names of the knobs that exist and apply here; `knobs`: these in full, as this machine takes them (name,
    lane), the workload's own included."""

    environment: Environment
    offered: tuple[str, ...]
    live: tuple[str, ...]
    knobs: tuple[Knob, ...]
    left: tuple[KnobStatus, ...]
    option_types: dict[str, str]
    notices: tuple[str, ...]


class BaselineRecord(msgspec.Struct, frozen=True, kw_only=True, tag="baseline"):
    """`objective`: what is made small; `control_ms` is its value for the control. `steps_per_block`: k, after `warm_up`
    discarded steps. `step_ms`: what one of them takes by the clock (0 in older logs: `control_ms`). `steps_discarded`:
    steps until the times were steady; `settled`: False if they never were.

    `noise`: standard deviation of one round's control-to-control log ratio; `step_noise`: of the log time of one step
    timed by itself (None where a block is one step); `level_noise`: of the control's own log time from block to block.
    `resolution`: smallest gain the budget can resolve, if processes differ by `process_noise` as in `process_pairs`
    earlier pairs (0: that is assumed). `tolerances`, `strict_tolerances`: see `limits`. `pair_s`: what a pair of fresh
    processes takes; `reserve_s`: what confirm and seal need. `skipped`: stages that the budget has no room for.
    `exploring_steps`: steps of a block while candidates are looked for, whose rounds have `exploring_noise` (0 in older
    logs: as many as elsewhere). `first_program`: the program of the very first call, "" where it is `program`.
    `reset_s`: what putting the state back takes before a block. `opening_steps`: what a round's first block discards
    besides, because it follows a pause.
    """

    program: str
    control_ms: float
    steps_per_block: int
    steps_discarded: int
    noise: float
    drift: float
    resolution: float
    start_s: float
    compile_s: float
    peak_bytes: int | None
    tolerances: tuple[Tolerance, ...]
    numerics_steps: int
    carried: tuple[str, ...]
    pair_s: float
    reserve_s: float
    skipped: tuple[str, ...]
    step_noise: float | None = None
    level_noise: float = 0.0
    settled: bool = True
    process_noise: float = 0.0
    process_pairs: int = 0
    strict_tolerances: tuple[Tolerance, ...] = ()
    objective: Objective = Objective()
    warm_up: int = 1
    step_ms: float = 0.0
    first_program: str = ""
    reset_s: float = 0.0
    exploring_steps: int = 0
    exploring_noise: float = 0.0
    opening_steps: int = 0

    def limits(self, *, strict: bool) -> tuple[Tolerance, ...]:
        """The numerics gate's limits; `strict`: for settings declared to trade accuracy (older logs have none)."""
        return (self.strict_tolerances if strict else ()) or self.tolerances

    @property
    def form(self) -> BlockForm:
        """How blocks are timed whose samples prove something."""
        return BlockForm(
            steps=self.steps_per_block,
            warm_up=self.warm_up,
            quantile=self.objective.quantile,
            opening=self.opening_steps,
        )

    @property
    def exploring(self) -> BlockForm:
        """How blocks are timed while candidates are looked for: no longer than it takes to tell them apart."""
        return msgspec.structs.replace(self.form, steps=self.exploring_steps or self.steps_per_block)

    @property
    def step_s(self) -> float:
        """Seconds of a step by the clock, whatever the objective makes of them."""
        return (self.step_ms or self.control_ms) / 1e3

    @property
    def block_s(self) -> float:
        """Seconds of a block by the clock, its discarded steps among them."""
        return self.form.all_steps * self.step_s

    def round_s(self, blocks: float) -> float:
        """Seconds of a round of so many blocks by the clock."""
        return blocks * self.block_s + self.opening_steps * self.step_s


class PresetsRecord(msgspec.Struct, frozen=True, kw_only=True, tag="presets"):
    measured: tuple[Measured, ...]


class ScreenRecord(msgspec.Struct, frozen=True, kw_only=True, tag="screen"):
    """`flips`: each live knob's values alone. `live`: name → values that stay in the space."""

    flips: tuple[Measured, ...]
    live: dict[str, tuple[str, ...]]
    left: tuple[KnobStatus, ...]


class SearchRecord(msgspec.Struct, frozen=True, kw_only=True, tag="search"):
    """`best`: the candidates that racing left, best first. `trials`: trials asked for in this stage."""

    best: tuple[Measured, ...]
    trials: int
    enumerated: bool


class MinimiseRecord(msgspec.Struct, frozen=True, kw_only=True, tag="minimise"):
    """`winner`: what the search found; `reduced`: what is left of it; `effects`,
    `winner_effects`: each setting's own effect in the one and in the other."""

    winner: Measured | None
    reduced: Measured | None
    runner_up: Measured | None
    dropped: dict[str, str]
    effects: tuple[Effect, ...]
    winner_effects: tuple[Effect, ...] = ()


class OtherFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Another jitted function of the program under a finalist's settings, in one pair of fresh processes.

    `passed`: its numbers are the default's; None if that could not be told, `reason` says why. `gain`: its own, from
    that one pair. `failure`: how it failed under the settings.
    """

    name: str
    passed: bool | None = None
    reason: str = ""
    gain: Estimate | None = None
    peak_bytes: int | None = None
    default_peak_bytes: int | None = None
    failure: Failure | None = None


class Finalist(msgspec.Struct, frozen=True, kw_only=True):
    """A config in the form that will be emitted, against the default, in fresh processes.

    `log_ratios`: one a pair of fresh processes, log t(finalist) − log t(default). `best_ms`, `control_ms`: values of
    the objective. `steps`: of a workload of several steps, each one's own gain, from the same pairs; no part of the
    verdict.
    """

    config: Config
    estimate: Estimate
    verdict: Verdict
    log_ratios: tuple[float, ...]
    best_ms: float
    control_ms: float
    failure: Failure | None = None
    steps: dict[str, Estimate] = {}
    others: tuple[OtherFunction, ...] = ()


class Draws(msgspec.Struct, frozen=True, kw_only=True):
    """What fresh processes made of one config: `ms`, a step in each; `programs`, how many different fingerprints there
    were; `spread`, the standard deviation of its log time from process to process, drift included."""

    config: Config
    ms: tuple[float, ...]
    programs: int
    spread: float


class ConfirmRecord(msgspec.Struct, frozen=True, kw_only=True, tag="confirm"):
    """`chosen`: what will be emitted, the default unless a finalist is `faster`. `verdict`: faster; same, where every
    finalist's interval excludes a gain of δ; unstable, where the machine allows no such claim; else unclear.

    `noise`: what the pairs themselves showed; `resolution`: the smallest gain that they could resolve, by that.
    `draws`: the default's and each finalist's. `unstable`: what was seen; a `faster` beside it is larger than all that.
    `redone`: disturbed pairs that were timed again; `disturbed`: pairs that count although they were disturbed.
    """

    finalists: tuple[Finalist, ...]
    chosen: Config
    verdict: Verdict
    estimate: Estimate | None
    control_ms: float
    best_ms: float
    pairs: int
    alive_together: bool
    noise: Levels | None = None
    turns: int = 0
    resolution: float | None = None
    draws: tuple[Draws, ...] = ()
    unstable: str = ""
    redone: int = 0
    disturbed: int = 0
    objective: Objective = Objective()


class SealedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Production's own command as it loaded the sealed cache: `code`, its exit status (None: it was ended when its time
    was over), `modules`, everything that it looked for there, of which `hits` of `requests` were found. `added`: what
    it put there the first time, beside the step as the tuner had sealed it. `cold_s`, `warm_s`: seconds of the whole
    command, the first time and the second."""

    command: str
    code: int | None
    requests: int
    hits: int
    added: int
    cold_s: float
    warm_s: float
    modules: tuple[CacheModule, ...] = ()


class SealRecord(msgspec.Struct, frozen=True, kw_only=True, tag="seal"):
    """`cache_requests`/`cache_hits`: JAX's own events in a second fresh process that loaded the sealed cache.

    `sealed`: the gain of this one executable, loaded from its cache in fresh processes, over a default compiled afresh
    in each of `sealed_pairs` pairs; None if it wasn't measured, `sealed_note` says why. `draws_ms`: a step of each of
    the executables that the sealed one was the best of, () if only one was made. `number`: the bundle's (0 in older
    logs: the name of its folder). `modules`: what that second process looked for in the cache, the modules that the
    workload compiles while it starts included. `command`: the same of production's own command, where one was named.
    """

    bundle: str
    environment: dict[str, str]
    cache_requests: int
    cache_hits: int
    first_step_cold_s: float
    first_step_warm_s: float
    notices: tuple[str, ...]
    sealed: Estimate | None = None
    sealed_ms: float | None = None
    sealed_pairs: int = 0
    sealed_note: str = ""
    draws_ms: tuple[float, ...] = ()
    number: int = 0
    modules: tuple[CacheModule, ...] = ()
    command: SealedCommand | None = None


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    files: dict[str, str]


StageRecord = (
    ProbeRecord
    | BaselineRecord
    | PresetsRecord
    | ScreenRecord
    | SearchRecord
    | MinimiseRecord
    | ConfirmRecord
    | SealRecord
    | ReportRecord
)
