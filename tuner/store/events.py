"""The event log's entries: one tagged JSON object a line, ``{"kind", "v", "seq", "time", …}``.

Everything else the tool keeps (SQL index, Optuna study, reports) can be rebuilt from them.
"""

from __future__ import annotations

import msgspec

from tuner.knobs.config import Config
from tuner.measure.types import Estimate
from tuner.profile.guided import ProfileFacts
from tuner.profile.types import StepProfile
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Block, Compiled, Loaded, NumericsReply
from tuner.store.neighbour import Neighbour
from tuner.store.records import StageRecord

__all__ = [
    "VERSION",
    "AnyEvent",
    "CandidateCompiled",
    "EffectHidden",
    "Interruption",
    "NcclRead",
    "Notice",
    "NumericsCompared",
    "OffsetMeasured",
    "PairTimed",
    "PairsPlanned",
    "PreciseReference",
    "ProfileJudged",
    "Profiled",
    "Resumed",
    "RoundTimed",
    "RunFinished",
    "RunStarted",
    "SessionClosed",
    "SessionStarted",
    "StageFinished",
    "TrialFinished",
    "WarmStart",
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


class Resumed(Event, frozen=True, kw_only=True, tag="resumed"):
    """Another invocation goes on with the run, however the one before ended: what lies between is no time of the run.
    Missing in older logs."""


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
    that the run waited for it; candidates that compiled side by side share theirs equally, with those of the ones that
    failed beside them. None in older logs."""

    session: str
    config: Config
    compiled: Compiled
    fingerprint: str
    share_s: float | None = None


class NumericsCompared(Event, frozen=True, kw_only=True, tag="numerics_compared"):
    """`purpose`: gate · null (benign changes that set the tolerance) · coarse (inputs moved further, for integers).
    `passed` None for the null set. `reason`: why not, or how, if it took the second chance; `precise`: the same results
    against the high-precision reference, where that was asked. `function`: another function than the step. `strict`:
    held to the limits of settings that are declared to trade accuracy.
    """

    session: str
    config: Config
    purpose: str
    reply: NumericsReply
    passed: bool | None = None
    reason: str = ""
    precise: NumericsReply | None = None
    function: str = ""
    strict: bool = False


class PreciseReference(Event, frozen=True, kw_only=True, tag="precise_reference"):
    """A high-precision reference was asked for. `control`: how far from it the control's own results are; None if it
    could not be had, `failure` says why."""

    session: str
    control: NumericsReply | None
    failure: Failure | None = None


class EffectHidden(Event, frozen=True, kw_only=True, tag="effect_hidden"):
    """A guard round saw `config` run at another speed than the control whose program it compiles to. From here on the
    values of its knobs count in fingerprints."""

    session: str
    config: Config


class RoundTimed(Event, frozen=True, kw_only=True, tag="round_timed"):
    """One pass over arms in random order; `control` is the control's handle. `conditions`:
    machine readings. An arm that failed has no block here; its trial says why. `function`: another function of the
    program than the step."""

    session: str
    stage: str
    control: str
    blocks: tuple[Block, ...]
    conditions: dict[str, float] = {}
    disturbed: str = ""
    function: str = ""


class NcclRead(Event, frozen=True, kw_only=True, tag="nccl_read"):
    """What NCCL said in the log of `session`, whose environment setting is `config`: `ran`, algorithm and protocol by
    operation and size ("AllReduce 1024" → "RING LL"); `asked`: where that is not what was asked for."""

    session: str
    config: Config
    channels: int | None
    ran: dict[str, str]
    asked: tuple[str, ...] = ()


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


class WarmStart(Event, frozen=True, kw_only=True, tag="warm_start"):
    """Programs like this one that the store knows a gain for, nearest first: what was best for them is tried first,
    and measured like everything else. () if it knows none."""

    neighbours: tuple[Neighbour, ...]


class PairsPlanned(Event, frozen=True, kw_only=True, tag="pairs_planned"):
    """How the confirmation goes on from here: numbers of pairs at which it is looked at, settled by the first of these
    events, and turns in each further pair, chosen by spreads alone. `round_sd`, `process_sd`: those spreads;
    `resolution`: the smallest gain that this resolves."""

    looks: tuple[int, ...]
    turns: int
    round_sd: float
    process_sd: float
    resolution: float


class PairTimed(Event, frozen=True, kw_only=True, tag="pair_timed"):
    """One confirmation pair: a fresh default and fresh finalists, alternating. `log_ratio` is finalist to default.

    `turns`: blocks of each behind it; `spread`: standard deviation of one turn's log ratio. `conditions`: machine
    readings over the pair; `disturbed`: what disturbed it, "" if nothing. Of several pairs of one index (a disturbed
    one is timed again) the last counts. `control_fingerprint`: the default's, in this pair's process. `steps`: of a
    workload of several steps, each one's own log ratio. `control_ms`, `finalist_ms`: values of the objective.
    """

    index: int
    config: Config
    log_ratio: float
    control_ms: float
    finalist_ms: float
    fingerprint: str
    alive_together: bool
    turns: int = 0
    spread: float = 0.0
    conditions: dict[str, float] = {}
    disturbed: str = ""
    control_fingerprint: str = ""
    steps: dict[str, float] = {}


class Profiled(Event, frozen=True, kw_only=True, tag="profiled"):
    """Where a step's time goes under `config`, in a process of its own in which nothing was timed any more. `profile`
    None: it could not be had, `failure` says why."""

    session: str
    config: Config
    profile: StepProfile | None
    failure: Failure | None = None


class ProfileJudged(Event, frozen=True, kw_only=True, tag="profile_judged"):
    """A PGLE profile was taken under `config` without its own setting, `runs` steps at `percentile`, and judged.
    `facts` None: it could not be had. `cause`: why it isn't used, "" if it is. `said`: whether the compiler said that
    it was handed a profile; `changed`: whether it made something else than without."""

    session: str
    config: Config
    runs: int
    percentile: int
    facts: ProfileFacts | None
    cause: str = ""
    said: bool = False
    changed: bool = False


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
    | Resumed
    | SessionStarted
    | SessionClosed
    | CandidateCompiled
    | NumericsCompared
    | PreciseReference
    | EffectHidden
    | RoundTimed
    | OffsetMeasured
    | NcclRead
    | TrialFinished
    | WarmStart
    | PairTimed
    | PairsPlanned
    | Profiled
    | ProfileJudged
    | StageFinished
    | Notice
    | Interruption
    | RunFinished
)
