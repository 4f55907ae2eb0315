"""Replay and ReplaySession: a recorded run answers in place of a machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tuner.knobs.config import Config
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import (
    Arm,
    Block,
    CeilingsReply,
    Compiled,
    CompileReply,
    Loaded,
    Lowered,
    NumericsReply,
    OptionValue,
    PgleReply,
    ProbeReply,
    Profile,
    ProfileReply,
    Variant,
)
from tuner.session.base import Launch
from tuner.session.lifecycle import Lifecycle
from tuner.session.recording import Label, RecordedRound, RecordedRun, Recording
from tuner.session.settings import canonical_text, variant_settings
from tuner.store.events import AnyEvent

__all__ = ["Replay", "ReplaySession"]

V = TypeVar("V")

_NO_FUNCTIONS = "what was measured of other functions than the step is not replayed"


class Replay:
    """A recorded run as a machine: `factory` is a `SessionFactory`, `now` a clock that recorded times advance.

    A launch is answered by the recorded session of the same name and environment-lane config, else by one with that
    config, drawn by `seed`. What this session lacks is looked up in the others of its config, then in all: a config
    keeps its meaning in whichever lane it was measured. What was never recorded is a `Failure` that says so.
    """

    def __init__(self, events: Iterable[AnyEvent], *, seed: int = 0) -> None:
        self.recorded = RecordedRun(events)
        self.labels = self.recorded.labels()
        self.configs = {config.key: config for config in self.recorded.configs()}
        self._seed = seed
        self._made = 0
        self._now = 0.0

    def factory(self, launch: Launch) -> ReplaySession:
        """A session that answers as the recorded one did."""
        self._made += 1
        return ReplaySession(self, launch, rng=random.Random(f"{self._seed}/{self._made}/{launch.name}"))

    def now(self) -> float:
        """Seconds that the recorded calls took, all sessions together."""
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def recording(self, launch: Launch, rng: random.Random) -> Recording | None:
        """The recorded session that answers `launch`."""
        fitting = {name: r for name, r in self.recorded.sessions.items() if r.config == launch.config}
        for name in (launch.log.stem, launch.name):
            if name in fitting:
                return fitting[name]
        same_role = [r for r in fitting.values() if r.started.role == launch.role]
        choice = same_role or list(fitting.values())
        return rng.choice(choice) if choice else None


class ReplaySession:
    """A `Session` that answers from a recording; made by `Replay.factory`.

    A variant stands for the recorded config whose key is the variant's id; else for the one whose settings beyond the
    session's own equal the variant's, in canonical texts. Rounds are whole recorded rounds, drawn with replacement, so
    that the correlation of an arm with the control of its round stays. An arm that the drawn round lacks is put in by
    its ratio to what both rounds have.
    """

    def __init__(self, replay: Replay, launch: Launch, *, rng: random.Random) -> None:
        self._replay = replay
        self._run = replay.recorded
        self._launch = launch
        self._rng = rng
        self._life = Lifecycle(launch.name)
        self._candidates: dict[str, Config] = {}

    @property
    def launch(self) -> Launch:
        return self._launch

    @property
    def ended(self) -> Failure | None:
        return self._life.ended

    def start(self) -> Loaded:
        self._life.begin()
        own = self._replay.recording(self._launch, self._rng)
        if own is None:
            raise self._life.end(_unrecorded(f"no session with {self._launch.config} was recorded", "load"))
        self._own = own
        self._tiers = self._run.tiers(own)
        self._replay.advance(own.started.start_s)
        return own.started.loaded

    def probe(self, names: Sequence[str], values: Mapping[str, Sequence[OptionValue]] | None = None) -> ProbeReply:
        """Types as the recorded probe found them; refused values are not in the log."""
        self._life.require()
        return ProbeReply(types={name: self._run.option_types.get(name) for name in names})

    def lower(self) -> Lowered | Failure:
        self._life.require()
        for compiled in self._own.compiled.values():
            return Lowered(program=compiled.first_program or compiled.program)
        return _unrecorded("nothing was compiled in the recorded session", "lower")

    def compile(self, variants: Sequence[Variant], *, threads: int = 1, function: str = "") -> CompileReply:
        self._life.require()
        if function:
            return CompileReply(results=tuple(_unrecorded(_NO_FUNCTIONS, "compile") for _ in variants))
        return CompileReply(results=tuple(self._compile(v) for v in variants))

    def round(self, arms: Sequence[Arm], *, reset: bool = True, function: str = "") -> tuple[Block | Failure, ...]:
        self._life.require()
        if function:
            return tuple(_unrecorded(_NO_FUNCTIONS, "round") for _ in arms)
        labels = [self._label(arm.id) for arm in arms]
        base = self._draw({label for label in labels if not isinstance(label, Failure)})
        used: dict[Label, int] = {}
        return tuple(self._block(arm, label, base, used) for arm, label in zip(arms, labels, strict=True))

    def numerics(
        self,
        handle: str,
        *,
        steps: int,
        reference: Path,
        save: bool = False,
        nudge: int = 0,
        nudge_size: float = 1.0,
        precise: bool = False,
        function: str = "",
    ) -> NumericsReply | Failure:
        self._life.require()
        if function:
            return _unrecorded(_NO_FUNCTIONS, "numerics")
        config = self._candidates.get(handle)
        if config is None:
            return _unrecorded(f"no candidate {handle!r}: compile it first", "numerics")
        if precise:
            return self._precise(config, save=save)
        if save:
            return NumericsReply(leaves=())
        nulls = self._find(lambda r: r.nulls) or []
        if nudge:
            replies = (self._find(lambda r: r.coarse) if nudge_size != 1 else None) or nulls[1:] or nulls
        else:
            replies = self._find(lambda r: r.gates.get(config)) or (nulls[:1] if config == self._own.config else [])
        if not replies and (failure := self._run.failures.get((config, "numerics"))):
            return self._data_or_end(failure)
        if not replies:
            return _unrecorded(f"no comparison of {config} was recorded", "numerics")
        return self._rng.choice(replies)

    def pgle(self, variant: Variant, *, runs: int = 3, percentile: int = 90) -> PgleReply | Failure:
        self._life.require()
        return _unrecorded("PGLE profiles are not in the event log", "pgle")

    def profile(self, request: Profile) -> ProfileReply | Failure:
        self._life.require()
        return _unrecorded("traces are not in the event log", "profile")

    def ceilings(self) -> CeilingsReply | Failure:
        self._life.require()
        return _unrecorded("ceilings are not in the event log", "ceilings")

    def release(self, handles: Sequence[str]) -> int:
        self._life.require()
        for handle in handles:
            self._candidates.pop(handle, None)
        return len(self._candidates)

    def close(self) -> None:
        self._life.close()

    def _precise(self, config: Config, *, save: bool) -> NumericsReply | Failure:
        """What the high-precision reference was, and how far from it `config` was; the control's own is beside it."""
        recorded = self._find(lambda r: r.references)
        made = recorded[-1] if recorded else None
        if made is None or made.control is None:
            failure = made.failure if made else None
            return failure or _unrecorded("no high-precision reference was recorded", "numerics")
        if save:
            return NumericsReply(leaves=(), precision=made.control.precision)
        replies = self._find(lambda r: r.precise.get(config)) or ([made.control] if config == self._own.config else [])
        if not replies:
            return _unrecorded(f"no comparison of {config} with a high-precision reference was recorded", "numerics")
        return self._rng.choice(replies)

    # -- looking things up -----------------------------------------------------------------------------------------

    def _find(self, look: Callable[[Recording], V | None]) -> V | None:
        """What `look` finds in the nearest recording that has it."""
        for tier in self._tiers:
            for recording in tier:
                if found := look(recording):
                    return found
        return None

    def _compile(self, variant: Variant) -> Compiled | Failure:
        self._candidates.pop(variant.id, None)
        config = self._config(variant)
        if config is None:
            settings = ", ".join(f"{n}={v}" for n, v in sorted(variant_settings(variant).items()))
            return _unrecorded(f"no compile of {settings or 'the default'} was recorded", "compile")
        if failure := self._run.failures.get((config, "compile")):
            return self._data_or_end(failure)
        compiled = self._find(lambda r: r.compiled.get(config))
        if compiled is None:
            return _unrecorded(f"no compile of {config} was recorded", "compile")
        self._replay.advance(compiled.lower_s + compiled.compile_s)
        self._candidates[variant.id] = config
        return replace(compiled, id=variant.id)

    def _config(self, variant: Variant) -> Config | None:
        """The recorded config that `variant` stands for in this session."""
        wanted = variant_settings(variant)
        if not wanted:
            return self._own.config
        if variant.id in self._replay.configs:
            return self._replay.configs[variant.id]
        own = self._own.config.as_dict()
        for config in self._replay.configs.values():
            rest = {n: canonical_text(v) for n, v in config.settings if own.get(n) != v}
            if rest == wanted and own.items() <= config.as_dict().items():
                return config
        return None

    def _label(self, handle: str) -> Label | Failure:
        """Whose recorded blocks answer for `handle`; or why none do."""
        config = self._candidates.get(handle)
        if config is None:
            return _unrecorded(f"no candidate {handle!r}: compile it first", "round")
        if failure := self._run.failures.get((config, "round")):
            return self._data_or_end(failure)
        if handle in self._replay.labels:
            return handle  # a twin of the control has blocks of its own
        return config if config in self._replay.labels else _unrecorded(f"no round with {config} was recorded", "round")

    def _draw(self, labels: set[Label]) -> RecordedRound:
        """A recorded round of the nearest recordings that have any of `labels`, one of those with most of them."""
        for tier in self._tiers:
            covers = [(len(labels & one.keys()), one) for recording in tier for one in recording.rounds]
            most = max((n for n, _ in covers), default=0)
            if most:
                return self._rng.choice([one for n, one in covers if n == most])
        return {}

    def _block(self, arm: Arm, label: Label | Failure, base: RecordedRound, used: dict[Label, int]) -> Block | Failure:
        if isinstance(label, Failure):
            return label
        if label in base:
            block = base[label][used.get(label, 0) % len(base[label])]
            used[label] = used.get(label, 0) + 1
        else:
            block = self._elsewhere(label, base)
        seconds = arm.steps * block.seconds / block.steps
        self._replay.advance(block.first_s + seconds)
        return replace(block, id=arm.id, steps=arm.steps, seconds=seconds)

    def _elsewhere(self, label: Label, base: RecordedRound) -> Block:
        """A block of an arm that `base` lacks, by its ratio to what another round shares with `base`."""
        rounds = self._find(lambda r: [one for one in r.rounds if label in one]) or []
        shared = [one for one in rounds if one.keys() & base.keys()]
        other = self._rng.choice(shared or rounds)
        block = self._rng.choice(other[label])
        common = next((c for c in (self._own.config, *other) if c in other and c in base), None)
        scale = 1.0 if common is None else _step_s(base[common]) / _step_s(other[common])
        return replace(
            block,
            seconds=block.seconds * scale,
            first_s=block.first_s * scale,
            value_s=None if block.value_s is None else block.value_s * scale,
            parts={name: seconds * scale for name, seconds in block.parts.items()},
        )

    def _data_or_end(self, failure: Failure) -> Failure:
        """The failure as data; raises SessionEnded if it ended the recorded session."""
        if failure in self._run.endings:
            raise self._life.end(failure)
        return failure


def _step_s(blocks: Sequence[Block]) -> float:
    return sum(b.step_s for b in blocks) / len(blocks)


def _unrecorded(message: str, phase: str) -> Failure:
    return Failure(kind=FailureClass.PROTOCOL, phase=phase, message=message)
