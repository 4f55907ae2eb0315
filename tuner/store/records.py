"""What each stage of the pipeline found: one frozen record a stage, appended to the event log."""

from __future__ import annotations

import msgspec

from tuner.knobs.config import Config
from tuner.knobs.knob import Knob
from tuner.knobs.status import KnobStatus
from tuner.machine.environment import Environment
from tuner.measure.types import Estimate, Tolerance, Verdict
from tuner.protocol.failure import Failure

__all__ = [
    "BaselineRecord",
    "ConfirmRecord",
    "Effect",
    "Finalist",
    "Measured",
    "MinimiseRecord",
    "PresetsRecord",
    "ProbeRecord",
    "ReportRecord",
    "ScreenRecord",
    "SealRecord",
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
    """`steps_per_block`: k. `noise`: standard deviation of one round's control-to-control log ratio.

    `resolution`: smallest gain the budget can resolve. `pair_s`: what a pair of fresh
    processes takes; `reserve_s`: what confirm and seal need.
    `skipped`: stages that the budget has no room for. `steps_discarded`: steps until the times were steady.
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


class Finalist(msgspec.Struct, frozen=True, kw_only=True):
    """A config in the form that will be emitted, against the default, in fresh processes.

    `log_ratios`: one a pair of fresh processes, log t(finalist) − log t(default).
    """

    config: Config
    estimate: Estimate
    verdict: Verdict
    log_ratios: tuple[float, ...]
    best_ms: float
    control_ms: float
    failure: Failure | None = None


class ConfirmRecord(msgspec.Struct, frozen=True, kw_only=True, tag="confirm"):
    """`chosen`: what will be emitted, the default unless a finalist is `faster`. `verdict`: faster; same, where every
    finalist's interval excludes a gain of δ; else unclear."""

    finalists: tuple[Finalist, ...]
    chosen: Config
    verdict: Verdict
    estimate: Estimate | None
    control_ms: float
    best_ms: float
    pairs: int
    alive_together: bool


class SealRecord(msgspec.Struct, frozen=True, kw_only=True, tag="seal"):
    """`cache_requests`/`cache_hits`: JAX's own events in a second fresh process that loaded the sealed cache."""

    bundle: str
    environment: dict[str, str]
    cache_requests: int
    cache_hits: int
    first_step_cold_s: float
    first_step_warm_s: float
    notices: tuple[str, ...]


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
