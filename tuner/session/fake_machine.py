"""FakeMachine: a made-up program on a made-up machine: what settings do to its time, results, code and survival."""

from __future__ import annotations

import hashlib
import json
import math
import random
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import OptionValue, Sketch
from tuner.session.base import Launch
from tuner.session.fake_profile import FakePgle
from tuner.session.noise import ORDINARY, NoiseModel, SharedNoise
from tuner.session.settings import canonical_text

if TYPE_CHECKING:
    from tuner.session.fake import FakeSession

__all__ = ["FakeMachine", "Fault", "Settings"]

V = TypeVar("V")

_REST_S = 0.25  # after a pause

# Stands in names that are made up so that no compiler has them.
_NO_SUCH = "no_such"

Settings = tuple[str, str] | frozenset[tuple[str, str]]
"""One setting (name, value), or several that act only together. Values are compared as canonical texts."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """How settings fail: as `kind`, in phase `at`.

    A kind that ends processes (crash, fatal, illegal_instruction, host_out_of_memory, timeout) ends the session;
    the others are data.
    """

    kind: FailureClass
    at: Literal["load", "compile", "round", "numerics"] = "compile"
    message: str = ""


class FakeMachine:
    """A program and a machine with a clock of its own. `factory` is a `SessionFactory`: it starts sessions here.

    A step under settings S takes ``step_ms * exp(sum of the effects of all parts of S)``, times noise. S is what
    `launch.env` sets (XLA_FLAGS, JAX's compilation variables, any other variable), `launch.knobs`, and what the
    candidate's variant sets; the variant wins. `launch.config` is not looked at: what is not rendered does nothing.

    `effects`: settings → log ratio, added where all of them are set. `failures`: settings → `Fault`, or just its class
    (in compile). `wrong`: settings → error of the regression slope of every output; NaN: not-a-number outputs.
    `rounding`: relative size of what is left between two compiles of the same step, and after a nudge of its inputs.
    `truth`: the slope that a high-precision reference would have, 0.0 the default's; None: it can't be had. `others`:
    other functions of the program by name, each as a machine that only these fields of count.
    `inert`: names, or single settings, that leave the compiled code alone (they may still have effects).
    `option_ignored`, `environment_ignored`: names without any meaning in that form: the lanes differ.
    `unsupported`: names that exist in no form (neither does any with "no_such" in it); `option_only`, `flag_only`:
    in one. `option_types`: name → type, for names whose values are checked; the others are strings. `max_sessions`:
    how many fit on the device at once.

    `weights`: of a workload of several steps, how often a unit of work runs each; each takes ``step_ms``, and
    `step_effects` (by step) act on one alone. `tails`: settings → log ratio of the slowest tenth of the steps to the
    others. `works`: settings → units of work that a step does, of which the last that is set counts.
    `peaks`: settings → bytes added to the step's peak memory of 1 MiB; `device_memory_bytes`: the device's.
    `collectives`: how many of each kind every program has. `sketch`: what the program is made of, if that is
    to be told; `name`: tells it from other machines' programs.
    `collectives`: how many of each kind every program has, `collective_bytes` of each in one computation. `pgle`: what
    comes of PGLE profiles; a candidate with one, in any form, has the setting ("pgle", "on").

    `noise`: what varies; sessions alive together share the machine's part of it in time. `hang_s`: how long a hang
    lasts until it is cut. `starts_beside`: how many processes made at one moment start at the same time. `rested`: log
    time that steps take less of in the first quarter of a second of each round, since it follows a pause.
    """

    def __init__(
        self,
        *,
        step_ms: float = 10.0,
        effects: Mapping[Settings, float] | None = None,
        failures: Mapping[Settings, Fault | FailureClass] | None = None,
        wrong: Mapping[Settings, float] | None = None,
        rounding: float = 1e-7,
        truth: float | None = 0.0,
        others: Mapping[str, FakeMachine] | None = None,
        inert: Collection[str | tuple[str, str]] = (),
        option_ignored: Collection[str] = (),
        environment_ignored: Collection[str] = (),
        unsupported: Collection[str] = (),
        option_only: Collection[str] = (),
        flag_only: Collection[str] = (),
        option_types: Mapping[str, str] | None = None,
        weights: Mapping[str, float] | None = None,
        step_effects: Mapping[str, Mapping[Settings, float]] | None = None,
        tails: Mapping[Settings, float] | None = None,
        works: Mapping[Settings, float] | None = None,
        peaks: Mapping[Settings, int] | None = None,
        device_memory_bytes: int | None = None,
        noise: NoiseModel = ORDINARY,
        start_s: float = 3.0,
        starts_beside: int = 1,
        compile_s: float = 1.0,
        hang_s: float = 120.0,
        rested: float = 0.0,
        platform: str = "cpu",
        device_count: int = 1,
        collectives: Mapping[str, int] | None = None,
        sketch: Sketch | None = None,
        name: str = "",
        collective_bytes: int = 1 << 24,
        pgle: FakePgle = "good",
        max_sessions: int | None = None,
        seed: int = 0,
    ) -> None:
        self.step_ms = step_ms
        self.inert = frozenset(inert)
        self.option_ignored = frozenset(option_ignored)
        self.environment_ignored = frozenset(environment_ignored)
        self._no_options = frozenset(unsupported) | frozenset(flag_only)
        self._no_flags = frozenset(unsupported) | frozenset(option_only)
        self.option_types = dict(option_types or {})
        self.noise = noise
        self.start_s = start_s
        self.starts_beside = starts_beside
        self.compile_s = compile_s
        self.hang_s = hang_s
        self.rested = rested
        self.platform = platform
        self.device_count = device_count
        self.collectives = dict(collectives or {})
        self.sketch = sketch
        self.name = name
        self.collective_bytes = collective_bytes
        self.pgle = pgle
        self.max_sessions = max_sessions
        self.seed = seed
        self.weights = dict(weights or {})
        self.device_memory_bytes = device_memory_bytes
        self._step_effects = {n: {_parts(k): v for k, v in e.items()} for n, e in (step_effects or {}).items()}
        self._tails = {_parts(k): v for k, v in (tails or {}).items()}
        self._works = {_parts(k): v for k, v in (works or {}).items()}
        self._peaks = {_parts(k): v for k, v in (peaks or {}).items()}
        self._effects = {_parts(k): v for k, v in (effects or {}).items()}
        self._wrong = {_parts(k): v for k, v in (wrong or {}).items()}
        self._failures = {_parts(k): v if isinstance(v, Fault) else Fault(kind=v) for k, v in (failures or {}).items()}
        self.sessions: list[FakeSession] = []
        self.rounding = rounding
        self.truth = truth
        self.others = dict(others or {})
        self._host: FakeMachine | None = None
        for other in self.others.values():
            other._host = self
        self._now = 0.0
        self._starting = (-1.0, 0)  # the moment at which the processes that start now were made, and how many did
        self._clock_lock = threading.Lock()  # a run starts several sessions at once
        self._shared = SharedNoise(random.Random(f"{seed}/machine"), noise)

    def factory(self, launch: Launch) -> FakeSession:
        """A new session on this machine; all of them are kept in `sessions`."""
        from tuner.session.fake import FakeSession  # a session knows its machine; only this call needs the reverse

        # By name: those that are made side by side come in any order.
        before = sum(session.launch.name == launch.name for session in self.sessions)
        session = FakeSession(self, launch, seed=f"{self.seed}/{before}/{launch.name}")
        self.sessions.append(session)
        return session

    @property
    def living(self) -> list[FakeSession]:
        """The sessions whose process is there."""
        return [s for s in self.sessions if s.alive]

    def now(self) -> float:
        """The machine's clock, seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if self._host is not None:
            self._host.advance(seconds)
        with self._clock_lock:
            self._now += seconds

    def begin(self, made_s: float) -> None:
        """Let the time pass that the start of a process takes which was made at `made_s`."""
        with self._clock_lock:
            moment, others = self._starting
            beside = moment == made_s and others < self.starts_beside
            self._starting = (made_s, others + 1 if beside else 1)
            self._now += 0.0 if beside else self.start_s

    def has_option(self, name: str) -> bool:
        return name not in self._no_options and _NO_SUCH not in name

    def has_flag(self, name: str) -> bool:
        return name not in self._no_flags and _NO_SUCH not in name

    def log_ratio(self, settings: Mapping[str, str], *, step: str = "") -> float:
        """What `settings` do to the step's log time, without noise. `step`: which one of several."""
        own = _matching(self._step_effects.get(step, {}), settings)
        return sum(_matching(self._effects, settings)) + sum(own)

    def tail(self, settings: Mapping[str, str]) -> float:
        """Log ratio of the slowest tenth of the steps to the others."""
        return sum(_matching(self._tails, settings))

    def work(self, settings: Mapping[str, str]) -> float | None:
        """Units of work that a step does, None if the program declares none."""
        return next(iter(reversed(_matching(self._works, settings))), None)

    def peak_bytes(self, settings: Mapping[str, str]) -> int:
        """What the compiler says that the step needs at its peak."""
        return (1 << 20) + sum(_matching(self._peaks, settings))

    def slope_error(self, settings: Mapping[str, str]) -> float:
        """How wrong results are under `settings`."""
        return sum(_matching(self._wrong, settings))

    def fault(self, settings: Mapping[str, str], phase: str) -> Fault | None:
        """The first fault of `settings` in `phase`."""
        return next((f for f in _matching(self._failures, settings) if f.at == phase), None)

    def code(self, settings: Mapping[str, str]) -> str:
        """A hash of what the compiler makes under the settings that reach it."""
        shown = sorted(s for s in settings.items() if s[0] not in self.inert and s not in self.inert)
        return hashlib.sha256((self.name + json.dumps(shown)).encode()).hexdigest()[:16]

    def drawn(self, code: str, draw: float) -> str:
        """`code` as a compile that drew this shows it: on a GPU the program carries what autotuning chose."""
        if self.platform == "cpu" or not self.noise.compile_sd:
            return code
        return hashlib.sha256(f"{code} {draw!r}".encode()).hexdigest()[:16]

    def shared_noise(self, seconds: float) -> float:
        """What the machine adds to the log time of `seconds` of work that begin now."""
        return self._shared.over(self._now, seconds)

    def unrest(self) -> float:
        """What a block's own noise is multiplied by now."""
        return self._shared.unrest()

    def rested_share(self, before_s: float, seconds: float) -> float:
        """What a block that follows a pause takes less of log time, `before_s` of discarded steps in front of it."""
        return self.rested * min(1.0, max(0.0, _REST_S - before_s) / seconds)

    def refuses_option(self, name: str, value: OptionValue) -> str:
        """The compiler's complaint about an option's value, as strict as it is; "" if it takes it."""
        kind = self.option_types.get(name, "string")
        fits = value in ("True", "False") or isinstance(value, bool) if kind == "bool" else _fits(kind, value)
        return "" if fits else f"While setting option {name}, '{value}' is not a valid {kind} value."

    def refuses_flag(self, name: str, text: str) -> str:
        """What XLA prints before it ends over a flag's value; "" if it takes it."""
        kind = self.option_types.get(name, "string")
        fits = text in ("true", "false", "1", "0") if kind == "bool" else _fits(kind, text)
        return "" if fits else f"Couldn't interpret value {text} for flag {name}."


def _parts(settings: Settings) -> frozenset[tuple[str, str]]:
    parts = settings if isinstance(settings, frozenset) else frozenset({settings})
    return frozenset((name, canonical_text(value)) for name, value in parts)


def _matching(table: Mapping[frozenset[tuple[str, str]], V], settings: Mapping[str, str]) -> list[V]:
    present = settings.items()
    return [value for parts, value in table.items() if parts <= present]


def _fits(kind: str, value: OptionValue) -> bool:
    parse: Callable[[str], float] | None = {"int32": int, "int64": int, "float": float}.get(kind)
    if parse is None:
        return True
    try:
        return not isinstance(value, bool) and math.isfinite(parse(str(value)))
    except ValueError:
        return False
