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
from tuner.protocol.messages import OptionValue
from tuner.session.base import Launch
from tuner.session.noise import Wander
from tuner.session.settings import canonical_text

if TYPE_CHECKING:
    from tuner.session.fake import FakeSession

__all__ = ["FakeMachine", "Fault", "Settings"]

V = TypeVar("V")

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
    `inert`: names, or single settings, that leave the compiled code alone (they may still have effects).
    `option_ignored`, `environment_ignored`: names without any meaning in that form: the lanes differ.
    `unsupported`: names that exist in no form (neither does any with "no_such" in it); `option_only`, `flag_only`:
    in one. `option_types`: name → type, for names whose values are checked; the others are strings. `max_sessions`:
    how many fit on the device at once.

    Noise, as standard deviations of log time: `process_noise`, once a session; `compile_noise`, once a session and
    code; `round_noise`, each block; `machine_noise`, shared by all blocks of a round. The last two are heavy-tailed
    and correlate by `memory` from round to round. `drift`: log time gained a minute. `hang_s`: how long a hang lasts
    until it is cut.
    """

    def __init__(
        self,
        *,
        step_ms: float = 10.0,
        effects: Mapping[Settings, float] | None = None,
        failures: Mapping[Settings, Fault | FailureClass] | None = None,
        wrong: Mapping[Settings, float] | None = None,
        inert: Collection[str | tuple[str, str]] = (),
        option_ignored: Collection[str] = (),
        environment_ignored: Collection[str] = (),
        unsupported: Collection[str] = (),
        option_only: Collection[str] = (),
        flag_only: Collection[str] = (),
        option_types: Mapping[str, str] | None = None,
        process_noise: float = 0.0,
        compile_noise: float = 0.0,
        round_noise: float = 0.003,
        machine_noise: float = 0.01,
        memory: float = 0.2,
        drift: float = 0.0,
        start_s: float = 3.0,
        compile_s: float = 1.0,
        hang_s: float = 120.0,
        platform: str = "cpu",
        device_count: int = 1,
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
        self.process_noise = process_noise
        self.compile_noise = compile_noise
        self.round_noise = round_noise
        self.memory = memory
        self.drift = drift
        self.start_s = start_s
        self.compile_s = compile_s
        self.hang_s = hang_s
        self.platform = platform
        self.device_count = device_count
        self.max_sessions = max_sessions
        self.seed = seed
        self._effects = {_parts(k): v for k, v in (effects or {}).items()}
        self._wrong = {_parts(k): v for k, v in (wrong or {}).items()}
        self._failures = {_parts(k): v if isinstance(v, Fault) else Fault(kind=v) for k, v in (failures or {}).items()}
        self.sessions: list[FakeSession] = []
        self._now = 0.0
        self._clock_lock = threading.Lock()  # a run starts several sessions at once
        self._wander = Wander(random.Random(f"{seed}/machine"), sd=machine_noise, memory=memory)

    def factory(self, launch: Launch) -> FakeSession:
        """A new session on this machine; all of them are kept in `sessions`."""
        from tuner.session.fake import FakeSession  # a session knows its machine; only this call needs the reverse

        session = FakeSession(self, launch, seed=f"{self.seed}/{len(self.sessions)}/{launch.name}")
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
        with self._clock_lock:
            self._now += seconds

    def has_option(self, name: str) -> bool:
        return name not in self._no_options and _NO_SUCH not in name

    def has_flag(self, name: str) -> bool:
        return name not in self._no_flags and _NO_SUCH not in name

    def log_ratio(self, settings: Mapping[str, str]) -> float:
        """What `settings` do to the step's log time, without noise."""
        return sum(_matching(self._effects, settings))

    def slope_error(self, settings: Mapping[str, str]) -> float:
        """How wrong results are under `settings`."""
        return sum(_matching(self._wrong, settings))

    def fault(self, settings: Mapping[str, str], phase: str) -> Fault | None:
        """The first fault of `settings` in `phase`."""
        return next((f for f in _matching(self._failures, settings) if f.at == phase), None)

    def code(self, settings: Mapping[str, str]) -> str:
        """A hash of what the compiler makes under the settings that reach it."""
        shown = sorted(s for s in settings.items() if s[0] not in self.inert and s not in self.inert)
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]

    def shared_noise(self) -> float:
        """What all blocks of the next round share, log time."""
        return self._wander.next() + self.drift * self._now / 60.0

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
