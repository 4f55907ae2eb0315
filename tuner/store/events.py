"""The event log's entries: one tagged JSON object a line, ``{"kind", "v", "seq", "time", …}``.

Everything else the tool keeps (SQL index, Optuna study, reports) can be rebuilt from them.
"""

from __future__ import annotations

import msgspec

from tuner.knobs.config import Config
from tuner.measure.types import Estimate
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Block, Compiled, Loaded, NumericsReply
from tuner.store.records import StageRecord

__all__ = [
    "VERSION",
    "AnyEvent",
    "CandidateCompiled",
    "EffectHidden",
    "Interruption",
    "Notice",
    "NumericsCompared",
    "OffsetMeasured",
    "PairTimed",
    "RoundTimed",
    "RunFinished",
    "RunStarted",
    "SessionClosed",
    "SessionStarted",
    "StageFinished",
    "TrialFinished",
]

VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """`seq` counts from 0 without gaps; `time` is seconds since the epoch. Both are set on append."""

    v: int = VERSION
    seq: int = -1
    time: float = 0.0


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """`identity`: what the run's id was hashed from. `options`: those that change meaning."""

    run: str
    workload: str
    command: tuple[str, ...]
    identity: dict[str, str]
    options: dict[str, str]
    inherited: dict[str, str]
    tuner: str


class SessionStarted(Event, frozen=True, kw_only=True, tag="session_started"):
    session: str
    role: str
    config: Config
    env: dict[str, str | None]
    loaded: Loaded
    start_s: float


class SessionClosed(Event, frozen=True, kw_only=True, tag="session_closed"):
    session: str
    failure: Failure | None = None


class CandidateCompiled(Event, frozen=True, kw_only=True, tag="candidate_compiled"):
    """`fingerprint`: `compiled.code` and the values of every knob that acts on more than it shows. `share_s`: seconds
    that the run waited for it; candidates that compiled side by side share theirs equally. None in older logs."""

    session: str
    config: Config
    compiled: Compiled
    fingerprint: str
    share_s: float | None = None


class NumericsCompared(Event, frozen=True, kw_only=True, tag="numerics_compared"):
    """`purpose`: gate · null (benign changes that set the tolerance). `passed` None for the null set."""

    session: str
    config: Config
    purpose: str
    reply: NumericsReply
    passed: bool | None = None
    reason: str = ""


class EffectHidden(Event, frozen=True, kw_only=True, tag="effect_hidden"):
    """A guard round saw `config` run at another speed than the control whose program it compiles to. From here on the
    values of its knobs count in fingerprints."""

    session: str
    config: Config


class RoundTimed(Event, frozen=True, kw_only=True, tag="round_timed"):
    """One pass over arms in random order; `control` is the control's handle. `conditions`:
    machine readings. An arm that failed has no block here; its trial says why."""

    session: str
    stage: str
    control: str
    blocks: tuple[Block, ...]
    conditions: dict[str, float] = {}
    disturbed: str = ""


class OffsetMeasured(Event, frozen=True, kw_only=True, tag="offset_measured"):
    """log t(control in `config`'s session) − log t(control at home), as a gain."""

    session: str
    config: Config
    estimate: Estimate


class TrialFinished(Event, frozen=True, kw_only=True, tag="trial_finished"):
    """`value`: log ratio to the home control (negative is faster), None if it failed.

    `shared_with`: the earlier trial whose samples this one shares (same fingerprint), or -1.
    """

    number: int
    stage: str
    session: str
    config: Config
    value: float | None
    estimate: Estimate | None
    fingerprint: str = ""
    failure: Failure | None = None
    shared_with: int = -1
    label: str = ""


class PairTimed(Event, frozen=True, kw_only=True, tag="pair_timed"):
    """One confirmation pair: a fresh default and fresh finalists, alternating. `log_ratio` is finalist to default."""

    index: int
    config: Config
    log_ratio: float
    control_ms: float
    finalist_ms: float
    fingerprint: str
    alive_together: bool


class StageFinished(Event, frozen=True, kw_only=True, tag="stage_finished"):
    stage: str
    seconds: float
    record: StageRecord


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """Something the user should know; also shown at the end."""

    text: str


class Interruption(Event, frozen=True, kw_only=True, tag="interruption"):
    stage: str


class RunFinished(Event, frozen=True, kw_only=True, tag="run_finished"):
    exit_code: int


AnyEvent = (
    RunStarted
    | SessionStarted
    | SessionClosed
    | CandidateCompiled
    | NumericsCompared
    | EffectHidden
    | RoundTimed
    | OffsetMeasured
    | TrialFinished
    | PairTimed
    | StageFinished
    | Notice
    | Interruption
    | RunFinished
)
