"""FakeSession: a session on a `FakeMachine`: whole runs in milliseconds, without jax."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.errors import SessionEnded
from tuner.knobs.layout import LAYOUT, PER_DEVICE
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import (
    Arm,
    Block,
    CeilingsReply,
    Compiled,
    CompileReply,
    LeafStats,
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
from tuner.session.fake_cache import FakeCache
from tuner.session.fake_machine import FakeMachine, Fault
from tuner.session.fake_profile import fake_profile
from tuner.session.fake_trace import FAKE_HLO, fake_trace
from tuner.session.lifecycle import Lifecycle
from tuner.session.noise import OwnNoise, process_effect
from tuner.session.settings import canonical_text, environment_settings, variant_settings

__all__ = ["FakeSession"]

# Failures after which there is no process left, and the signal that ended it.
_DEADLY = {
    FailureClass.HOST_OUT_OF_MEMORY: "SIGKILL",
    FailureClass.CRASH: "SIGABRT",
    FailureClass.ILLEGAL_INSTRUCTION: "SIGILL",
    FailureClass.FATAL: None,
    FailureClass.TIMEOUT: None,
}
# Time and thread as XLA's log lines carry them.
_AT = "0101 00:00:00.000000       1"
_LEAVES = ("[0]['params']", "[1]")
# The quantile from which on steps are among the slow ones.
_FAR = 0.9
# A block's first step in steps: caches are cold, and the call path wakes up.
_FIRST = 1.5


class _Candidate(msgspec.Struct, frozen=True):
    settings: dict[str, str]
    code: str
    bias: float
    own: OwnNoise


class FakeSession:
    """A `Session` on a `FakeMachine`; made by its `factory`."""

    def __init__(self, machine: FakeMachine, launch: Launch, *, seed: str) -> None:
        self._machine = machine
        self._launch = launch
        self._life = Lifecycle(launch.name)
        self._rng = random.Random(seed)
        self._bias = process_effect(self._rng, machine.noise)
        self._code_bias: dict[str, float] = {}
        self._candidates: dict[str, _Candidate] = {}
        self._flags, self._variables = environment_settings(launch.env)
        self._program = {name: canonical_text(value) for name, value in launch.knobs.items()}
        self._layout = {LAYOUT: PER_DEVICE} if launch.processes > 1 else {}
        self._others: dict[str, FakeSession] = {}
        self._made_s = machine.now()
        self.alive = False

    @property
    def launch(self) -> Launch:
        return self._launch

    @property
    def ended(self) -> Failure | None:
        return self._life.ended

    def start(self) -> Loaded:
        self._life.begin()
        machine = self._machine
        machine.begin(self._made_s)
        if failure := self._refused_flags():  # before anything is put on the device
            raise self._die(failure)
        if machine.max_sessions is not None and len(machine.living) >= machine.max_sessions:
            message = "RESOURCE_EXHAUSTED: Out of memory: another process holds the device"
            raise self._die(Failure(kind=FailureClass.OUT_OF_MEMORY, phase="load", message=message))
        self.alive = True
        if fault := machine.fault(self._settings(), "load"):
            raise self._die(_failure(fault))
        return self._loaded()

    def probe(self, names: Sequence[str], values: Mapping[str, Sequence[OptionValue]] | None = None) -> ProbeReply:
        self._life.require()
        machine = self._machine
        machine.advance(0.002 * len(names))
        types = {n: machine.option_types.get(n, "string") if machine.has_option(n) else None for n in names}
        bad: dict[str, dict[str, str]] = {}
        for name, candidates in (values or {}).items():
            for value in candidates:
                if complaint := machine.refuses_option(name, value):
                    bad.setdefault(name, {})[str(value)] = complaint
        return ProbeReply(types=types, bad_values=bad)

    def lower(self) -> Lowered | Failure:
        self._life.require()
        self._machine.advance(0.05 * self._machine.compile_s)
        return Lowered(program=self._machine.code(self._program))

    def compile(self, variants: Sequence[Variant], *, threads: int = 1, function: str = "") -> CompileReply:
        self._life.require()
        if function:
            return self._other(function).compile(variants, threads=threads)
        cache = FakeCache(self._launch.env)
        if cache.folder is None:
            self._machine.advance(self._machine.compile_s * math.ceil(len(variants) / threads))
        results = tuple(self._compile(v, cache) for v in variants)
        self._machine.advance(self._machine.compile_s * (cache.requests - cache.hits))
        return CompileReply(
            results=results, cache_requests=cache.requests, cache_hits=cache.hits, modules=tuple(cache.modules)
        )

    def round(self, arms: Sequence[Arm], *, reset: bool = True, function: str = "") -> tuple[Block | Failure, ...]:
        self._life.require()
        if function:
            return self._other(function).round(arms, reset=reset)
        return tuple(self._block(arm, rested=index == 0) for index, arm in enumerate(arms))

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
            return self._other(function).numerics(
                handle, steps=steps, reference=reference, save=save, nudge=nudge, nudge_size=nudge_size, precise=precise
            )
        candidate = self._candidates.get(handle)
        if candidate is None:
            return _unknown(handle, "numerics")
        if fault := self._machine.fault(candidate.settings, "numerics"):
            return self._data_or_die(fault)
        self._machine.advance((steps + 1) * self._seconds(candidate))
        error = self._machine.slope_error(candidate.settings)
        if save and precise:
            return self._save_precise(reference)
        if save:
            work = self._machine.work(self._settings())
            reference.write_text(json.dumps({"code": candidate.code, "slope": error, "precision": "", "work": work}))
            return NumericsReply(leaves=())
        try:
            saved = json.loads(reference.read_text())
        except OSError as trouble:
            return Failure(kind=FailureClass.RUNTIME, phase="numerics", message=f"no reference: {trouble}")
        if saved.get("work") != self._machine.work(self._settings()) and not precise:
            error += 1.0  # results of other inputs
        same = saved["code"] == candidate.code and not nudge
        rounding = 0.0 if same else self._machine.rounding * (1.0 + self._rng.random())
        return NumericsReply(
            leaves=tuple(
                _leaf(path, steps=n, slope=error - saved["slope"], rounding=rounding * math.sqrt(n))
                for n in dict.fromkeys((1, steps))
                for path in _LEAVES
            ),
            precision=saved["precision"],
        )

    def _save_precise(self, reference: Path) -> NumericsReply | Failure:
        truth = self._machine.truth
        if truth is None:
            message = "the step can't be run more precisely (float64: it is made up)"
            return Failure(kind=FailureClass.RUNTIME, phase="numerics", message=message)
        reference.write_text(json.dumps({"code": "", "slope": truth, "precision": "float64"}))
        return NumericsReply(leaves=(), precision="float64")

    def pgle(self, variant: Variant, *, runs: int = 3, percentile: int = 90) -> PgleReply | Failure:
        self._life.require()
        self._machine.advance(self._machine.compile_s + runs * self._machine.step_ms / 1000)
        kept = self._candidates.get(variant.id)
        result = self._compile(variant)
        self._candidates.pop(variant.id, None)  # the profiled executable is not kept
        if kept is not None:
            self._candidates[variant.id] = kept
        if isinstance(result, Failure):
            return result
        return fake_profile(self._machine.pgle, runs=runs, step_s=self._machine.step_ms / 1000)

    def profile(self, request: Profile) -> ProfileReply | Failure:
        self._life.require()
        candidate = self._candidates.get(request.id)
        if candidate is None:
            return _unknown(request.id, "profile")
        step_s, folder = self._seconds(candidate), Path(request.folder)
        seconds = request.steps * step_s
        self._machine.advance(seconds)
        trace = folder / "plugins" / "profile" / request.id / "fake.xplane.pb"
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_bytes(b"")  # a valid trace without events
        hlo = folder / "jit_step.hlo.txt"
        hlo.write_text(FAKE_HLO)
        labels, lines = fake_trace(self._machine.platform, steps=request.steps, step_s=step_s)
        return ProfileReply(
            xplane=str(trace),
            seconds=seconds,
            plain_s=step_s if request.block else 0.0,
            under_s=step_s if request.block else 0.0,
            dispatch_s=0.04 * step_s if request.block else 0.0,
            hlo={"jit_step": str(hlo)},
            labels=labels,
            lines=lines,
        )

    def ceilings(self) -> CeilingsReply | Failure:
        self._life.require()
        self._machine.advance(1.0)
        return CeilingsReply(flops_per_s={"f32": 1e12, "bf16": 1e13}, bytes_per_s=1e12)

    def release(self, handles: Sequence[str]) -> int:
        self._life.require()
        for handle in handles:
            self._candidates.pop(handle, None)
        return len(self._candidates)

    def close(self) -> None:
        self._life.close()
        self.alive = False

    def _other(self, function: str) -> FakeSession:
        """Another function of the program, in this process: a session on the machine that stands for it."""
        if function not in self._others:
            other = FakeSession(self._machine.others[function], self._launch, seed=f"{self._rng.random()}/{function}")
            other._life.begin()
            self._others[function] = other
        return self._others[function]

    # -- inside the worker -----------------------------------------------------------------------------------------

    def _settings(self, variant: Variant | None = None) -> dict[str, str]:
        """What acts on the step: what this process and `variant` set, less what has no meaning in its form."""
        machine = self._machine
        inherited = {**self._variables, **self._flags}
        chosen = variant_settings(variant) if variant else {}
        return {
            **{n: v for n, v in inherited.items() if n not in machine.environment_ignored},
            **self._program,
            **self._layout,
            **{n: v for n, v in chosen.items() if n not in machine.option_ignored},
        }

    def _refused_flags(self) -> Failure | None:
        """How XLA ends over XLA_FLAGS: at the first value that it can't read, else over all unknown names."""
        machine = self._machine
        options = {n: v for n, v in self._flags.items() if not n.startswith("jax_")}
        if bad := next((c for n, v in options.items() if (c := machine.refuses_flag(n, v))), None):
            message = f"E{_AT} command_line_flags.cc:93] {bad}"
            return Failure(kind=FailureClass.BAD_VALUE, phase="load", message=message, exit_code=1)
        if unknown := [f"--{n}={v}" for n, v in options.items() if not machine.has_flag(n)]:
            flags = "flag" if len(unknown) == 1 else "flags"
            message = f"{_AT} parse_flags_from_env.cc:234] Unknown {flags} in XLA_FLAGS: {' '.join(unknown)}"
            return Failure(kind=FailureClass.UNSUPPORTED, phase="load", message=f"F{message}", exit_code=1)
        return None

    def _compile(self, variant: Variant, cache: FakeCache | None = None) -> Compiled | Failure:
        machine = self._machine
        self._candidates.pop(variant.id, None)
        for name, value in variant.compiler_options.items():
            if not machine.has_option(name):
                message = f"No such compile option: '{name}'"
                return Failure(kind=FailureClass.UNSUPPORTED, phase="compile", message=message)
            if complaint := machine.refuses_option(name, value):
                return Failure(kind=FailureClass.BAD_VALUE, phase="compile", message=complaint)
        settings = self._settings(variant)
        if fault := machine.fault(settings, "compile"):
            return self._data_or_die(fault)
        code = self._code(settings)
        if cache and cache.expects_guided and cache.has(guided := self._code({**settings, "pgle": "on"})):
            settings, code = {**settings, "pgle": "on"}, guided
        elif settings.get("pgle") == "on" and machine.pgle != "silent":
            self._print("I gpu_hlo_schedule.cc] Using PGLE profile from fdo_profile (binary)")
        if code not in self._code_bias:
            drawn = machine.noise.compile_sd * self._rng.gauss(0.0, 1.0)
            self._code_bias[code] = cache.kept(code, drawn) if cache else drawn
        self._candidates[variant.id] = _Candidate(
            settings=settings,
            code=code,
            bias=self._code_bias[code],
            own=OwnNoise(self._rng, machine.noise),
        )
        return Compiled(
            id=variant.id,
            program=machine.code(self._program),
            code=machine.drawn(code, self._code_bias[code]),
            code_covers="hlo+codegen" if machine.platform == "cpu" else "hlo",
            lower_s=0.05 * machine.compile_s,
            compile_s=machine.compile_s,
            peak_bytes=machine.peak_bytes(settings),
            collectives=machine.collectives,
            sketch=None if len(self._candidates) > 1 else machine.sketch,
            collective_bytes=dict.fromkeys(machine.collectives, machine.collective_bytes),
        )

    def _code(self, settings: Mapping[str, str]) -> str:
        return self._machine.code({n: v for n, v in settings.items() if n not in self._variables})

    def _print(self, line: str) -> None:
        """Into the log, where all that a worker prints goes."""
        self._launch.log.parent.mkdir(parents=True, exist_ok=True)
        with self._launch.log.open("a") as file:
            file.write(f"{line}\n")

    def _seconds(self, candidate: _Candidate, *, step: str = "") -> float:
        """One step's time without noise of a block or of the machine. `step`: which one of several."""
        log_time = self._machine.log_ratio(candidate.settings, step=step) + self._bias + candidate.bias
        return self._machine.step_ms / 1000 * math.exp(log_time)

    def _block(self, arm: Arm, *, rested: bool) -> Block | Failure:
        candidate = self._candidates.get(arm.id)
        if candidate is None:
            return _unknown(arm.id, "round")
        if fault := self._machine.fault(candidate.settings, "round"):
            return self._data_or_die(fault)
        weights = self._machine.weights
        quiet = {name: self._seconds(candidate, step=name) for name in weights or ("",)}
        share = {n: w / max(weights.values()) if arm.quantile is None else 1.0 for n, w in weights.items()}
        counts = {name: max(1, round(arm.steps * share.get(name, 1.0))) for name in quiet}
        discarded = arm.warm_up - 1 + _FIRST
        opening_s = sum(round(arm.opening * share.get(n, 1.0)) * s for n, s in quiet.items())
        quiet_first_s = opening_s + discarded * sum(quiet.values())
        shared = self._machine.shared_noise(quiet_first_s + sum(counts[n] * s for n, s in quiet.items()))
        timed_s = sum(counts[n] * s for n, s in quiet.items())
        factor = math.exp(shared + self._machine.unrest() * candidate.own.next(timed_s))
        if rested:
            factor *= math.exp(-self._machine.rested_share(quiet_first_s, timed_s))
        seconds = factor * timed_s
        first_s = factor * quiet_first_s
        self._machine.advance(first_s + seconds)
        if arm.quantile is not None and arm.quantile > _FAR:
            factor *= math.exp(self._machine.tail(candidate.settings))
        told = {name: factor * s for name, s in quiet.items()}
        plain = arm.quantile is None and not weights
        return Block(
            id=arm.id,
            steps=arm.steps,
            seconds=seconds,
            first_s=first_s,
            value_s=None if plain else sum(weights.get(n, 1.0) * s for n, s in told.items()),
            parts=told if weights else {},
        )

    def _data_or_die(self, fault: Fault) -> Failure:
        failure = _failure(fault)
        if fault.kind is FailureClass.TIMEOUT:
            self._machine.advance(self._machine.hang_s)
        if fault.kind in _DEADLY:
            raise self._die(failure)
        return failure

    def _die(self, failure: Failure) -> SessionEnded:
        self.alive = False
        return self._life.end(failure)

    def _loaded(self) -> Loaded:
        machine, launch = self._machine, self._launch
        flags = launch.env.get("XLA_FLAGS") or ""
        return Loaded(
            source="build",
            step_name="step",
            platform=launch.platform or machine.platform,
            device_kind="fake",
            device_count=machine.device_count,
            process_count=launch.processes,
            versions={"python": "3.11.0", "jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.0.0", "zstandard": "no"},
            devices=("fake",) * machine.device_count,
            xla_flags=flags,
            xla_flags_after=flags,
            environ_changed={},
            knobs_declared={},
            carried=(f"{_LEAVES[0]} <- {_LEAVES[0]}",),
            inputs=(f"{_LEAVES[0]}: float32[1024]",),
            input_bytes=4096,
            device_memory_bytes=machine.device_memory_bytes,
            has_check=False,
            work=machine.work(self._settings()),
            import_s=0.5 * machine.start_s,
            init_s=0.2 * machine.start_s,
            build_s=0.3 * machine.start_s,
            weights=machine.weights,
            others=tuple(machine.others),
        )


def _failure(fault: Fault) -> Failure:
    return Failure(
        kind=fault.kind,
        phase=fault.at,
        message=fault.message or f"the settings were made to fail as {fault.kind} in {fault.at}",
        exit_code=1 if fault.kind is FailureClass.FATAL else None,
        signal=_DEADLY.get(fault.kind),
    )


def _unknown(handle: str, phase: str) -> Failure:
    return Failure(kind=FailureClass.PROTOCOL, phase=phase, message=f"no candidate {handle!r}: compile it first")


def _leaf(path: str, *, steps: int, slope: float, rounding: float) -> LeafStats:
    """`slope` NaN: the outputs hold not-a-numbers where the reference has none, and nothing finite to compare."""
    masks_equal = not math.isnan(slope)
    slope = abs(slope) if masks_equal else 0.0
    return LeafStats(
        path=path,
        dtype="float32",
        size=1024,
        steps=steps,
        l2=slope + rounding,
        slope=slope + 0.1 * rounding,
        masks_equal=masks_equal,
    )
