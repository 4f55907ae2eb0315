"""Whether a bundle still holds here: its files, flags, program, cache, numbers and gain, checked in fresh processes."""

from __future__ import annotations

import math
import shlex
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import SessionEnded, UsageError
from tuner.handoff.bundle import Bundle
from tuner.handoff.cache import isolated, loading
from tuner.handoff.contents import Control, Manifest
from tuner.handoff.doctor.finding import Finding, fail, ok, warn
from tuner.knobs import PROFILE_FLAG, XLA_FLAGS, Config, pins, processes
from tuner.machine import relevant
from tuner.machine.devices import open_devices
from tuner.machine.environment import environment_of, mismatches
from tuner.machine.host import read_host
from tuner.measure import Estimate, confirm, even_forms, judge, pair_of, second_chance
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, CacheModule, Loaded, NumericsReply, Variant
from tuner.protocol.xla_flags import parse
from tuner.session import Deadlines, GangSession, Launch, LocalSession, Session, SessionFactory

__all__ = ["FIELDS", "verify", "why_missed"]

_CONTROL = "control"
_PAIRS = (3, 6)
_TURNS, _WARM_UP = 8, 2
_NAMED = 3  # of the modules that were not found for the same reason

FIELDS: Mapping[str, str] = {
    "computation": "the program itself: the step, its name, its donated arguments, or a changed start-up module",
    "jax_lib version": "the version of jaxlib",
    "backend version": "the version of the device's plugin or driver library",
    "XLA flags": "the text of XLA_FLAGS, or a word --xla… on the command line",
    "compile_options": "compile options: compiler_options in jit, matmul precision, XLA caches in the cache folder",
    "accelerator_config": "the devices: their kind, or how many are visible",
    "compression": "whether the package zstandard is installed (it was the other way round where this was sealed)",
    "custom_hook": "a hook of the program's own",
}
"""jax's name for each part of a cache key, and what it depends on."""


def verify(
    bundle: Bundle,
    workload: Path,
    *,
    python: str,
    environ: Mapping[str, str],
    limit_s: float = 60.0,
    factory: SessionFactory | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Finding]:
    """What is found, one check after another; the gain is measured last, in pairs of fresh processes: three at least,
    and up to six while `limit_s` seconds last. Nothing is written into the bundle; where its processes run on several
    hosts, passing files lie beside it.

    Raises UsageError for a bundle that was sealed by a version that didn't record what this takes. `factory` and
    `clock` are for tests.
    """
    control = bundle.manifest.control
    if control is None:
        raise UsageError(
            "was sealed without what verifying takes", where=str(bundle.path), next="seal it anew: --fresh"
        )
    began = clock()
    # On several hosts all must see the folder, as they must see the bundle.
    beside = bundle.path.absolute().parent if control.launch else None
    with tempfile.TemporaryDirectory(prefix=".verify-", suffix=".part", dir=beside) as folder:
        check = _Check(bundle, control, workload, python, environ, Path(folder), factory)
        gains: list[float] = []
        with check.pair() as (default, tuned):
            here = yield from check.started(default, tuned)
            if here is None:
                return
            yield check.program(default, here)
            if placed := check.profile():
                yield placed
            yield check.cache(tuned)
            if isinstance(compiled := default.compile([Variant(id=_CONTROL)]).results[0], Failure):
                yield fail(
                    "numbers", f"the default doesn't compile: {compiled.message}", "see what changed in the program"
                )
                return
            numbers = check.numbers(default, tuned)
            yield numbers
            if bundle.manifest.settings and numbers.level != "fail":
                gains.append(check.gain(default, tuned))
        if gains:
            yield check.verdict(gains, lambda: clock() - began < limit_s)


class _Check:
    def __init__(
        self,
        bundle: Bundle,
        control: Control,
        workload: Path,
        python: str,
        environ: Mapping[str, str],
        folder: Path,
        factory: SessionFactory | None,
    ) -> None:
        self.bundle = bundle
        self.manifest: Manifest = bundle.manifest
        self.control = control
        self.workload = workload
        self.python = python
        self.folder = folder
        self.factory = factory or self._worker
        self.environ = environ
        self.count = 0
        self.work: dict[Session, float] = {}

    @contextmanager
    def pair(self) -> Iterator[tuple[Session, Session]]:
        """A process with the default and one with the bundle, not started yet."""
        tuned = dict(self.bundle.environment())
        if self.bundle.cache is not None:
            tuned |= loading(self.bundle.cache)
        sessions = [
            self._session("default", {}, self.control.env, self.control.knobs),
            self._session(
                "tuned", self.manifest.settings, tuned, {**self.control.knobs, **self.bundle.best.workload_knobs}
            ),
        ]
        try:
            yield sessions[0], sessions[1]
        finally:
            for session in sessions:
                session.close()

    def _worker(self, launch: Launch) -> Session:
        kind = GangSession if launch.launcher or launch.processes > 1 else LocalSession
        return kind(launch, environ=self.environ, deadlines=Deadlines())

    def _session(
        self,
        name: str,
        settings: Mapping[str, str],
        env: Mapping[str, str | None],
        knobs: Mapping[str, str | int | float | bool],
    ) -> Session:
        self.count += 1
        changes = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **isolated(), **env}
        launcher = tuple(shlex.split(self.control.launch))
        devices = int(self.manifest.environment.identity.get("device_count", "1"))
        outside = {n: v for n, v in {**relevant(self.environ), **_pins(self.environ)}.items() if n not in changes}
        return self.factory(
            Launch(
                name=name,
                role="confirm",
                workload=self.workload,
                log=self.folder / f"{self.count:03d}-{name}.log",
                python=self.python,
                env=changes,
                argv=self.control.argv,
                platform=self.control.platform,
                knobs=knobs,
                processes=1 if launcher else processes(Config.of({**self.manifest.held, **settings}), devices),
                launcher=launcher,
                pins=outside if launcher else {},
            )
        )

    def started(self, default: Session, tuned: Session) -> Generator[Finding, None, Loaded | None]:
        """Start both; returns what the default found, None if one of them doesn't start."""
        try:
            loaded = self._start(default)
        except SessionEnded as ended:
            yield fail("program", f"doesn't start: {ended.failure.message}", "see that it runs without the bundle")
            return None
        yield self._place(loaded)
        try:
            self._start(tuned)
        except SessionEnded as ended:
            yield fail("flags", ended.failure.message, "tune again: what was set is not taken any more")
            return None
        yield ok("flags", f"still taken: {', '.join(self.manifest.settings) or 'the default'}")
        return loaded

    def _start(self, session: Session) -> Loaded:
        loaded = session.start()
        self.work[session] = loaded.work or 1.0
        return loaded

    def _place(self, loaded: Loaded) -> Finding:
        reader = open_devices(self.environ)
        try:
            devices = () if loaded.platform == "cpu" else reader.devices()
        finally:
            reader.close()
        here = environment_of(loaded, devices, read_host())
        unlike = mismatches(self.manifest.environment, here.identity)
        if unlike:
            return warn("place", _differs(unlike), "if the rest holds, nothing; else tune here")
        there = self.manifest.environment.context
        context = {n: (v, here.context[n]) for n, v in there.items() if here.context.get(n, v) != v}
        return ok("place", f"the measured one; beside it {_differs(context)}" if context else "the measured one")

    def program(self, default: Session, loaded: Loaded) -> Finding:
        lowered = default.lower()
        if isinstance(lowered, Failure):
            return fail("program", f"can't be lowered: {lowered.message}", "see that it runs without the bundle")
        if lowered.program in (self.manifest.program, self.manifest.first_program):
            return ok("program", "the step lowers to what was tuned")
        if loaded.versions.get("jax") != self.manifest.environment.identity.get("jax"):
            return warn("program", "lowers to another text, as it may under another jax", "if the rest holds, nothing")
        return fail("program", "the step lowers to another program than was tuned", f"tune {self.workload}")

    def profile(self) -> Finding | None:
        """Whether the PGLE profile lies where the flags say; None if it isn't delivered as a file."""
        if self.manifest.pgle != "file":
            return None
        flags = {flag.name: flag.value for flag in parse(self.manifest.env.get(XLA_FLAGS, ""))}
        place = Path(flags.get(PROFILE_FLAG) or "")
        again = f"copy {self.bundle.profile} there"
        try:
            same = self.bundle.profile is not None and place.read_bytes() == self.bundle.profile.read_bytes()
        except OSError as error:
            what = (
                f"{place} can't be read ({error.strerror}): the compiler goes on without, and only a log line says so"
            )
            return fail("profile", what, again)
        if not same:
            return fail("profile", f"{place} is another profile than the bundle's", again)
        return ok("profile", f"lies at {place}")

    def cache(self, tuned: Session) -> Finding:
        """Compile the step under the bundle; everything must come from its cache."""
        reply = tuned.compile([Variant(id=_CONTROL)])
        if isinstance(result := reply.results[0], Failure):
            return fail("cache", f"the step doesn't compile: {result.message}", f"tune {self.workload}")
        if self.bundle.cache is None:
            return warn("cache", "none was sealed: production compiles the step itself", "see the notices of the run")
        missed = [module for module in reply.modules if not module.hit]
        if reply.modules and not missed:
            return ok("cache", f"{len(reply.modules)} of {len(reply.modules)} compiles are found in it")
        if not reply.modules:
            return fail("cache", "nothing was looked for in it", "see that the program leaves jax's cache switched on")
        why = why_missed(self.manifest.modules, missed)
        what = f"{len(missed)} of {len(reply.modules)} compiles aren't found in it: {why}"
        return fail("cache", what, f"make the difference good, or seal anew: tune {self.workload} --fresh")

    def numbers(self, default: Session, tuned: Session) -> Finding:
        """The tuned step's results against the default's, as the gate compares them: where the tuned step does other
        work, those of the default settings at that work."""
        if self.work[default] == self.work[tuned]:
            return self._compared(default, tuned)
        knobs = {**self.control.knobs, **self.bundle.best.workload_knobs}
        session = self._session("default-at-work", {}, self.control.env, knobs)
        try:
            self._start(session)
            if isinstance(made := session.compile([Variant(id=_CONTROL)]).results[0], Failure):
                raise SessionEnded(made)
            return self._compared(session, tuned)
        except SessionEnded as ended:
            return fail("numbers", f"can't be compared: {ended.failure.message}", f"tune {self.workload}")
        finally:
            session.close()

    def _compared(self, default: Session, tuned: Session) -> Finding:
        steps, reference = self.control.numerics_steps, self.folder / "reference.bin"
        saved = default.numerics(_CONTROL, steps=steps, reference=reference, save=True)
        default.round([Arm(id=_CONTROL, steps=1)])  # the file is written beside the work; timing waits for it
        reply = saved if isinstance(saved, Failure) else tuned.numerics(_CONTROL, steps=steps, reference=reference)
        if isinstance(reply, Failure):
            return fail("numbers", reply.message, f"tune {self.workload}")
        passed, reason = judge(reply, self.control.tolerances)
        if not passed and reply.check is None:
            passed, reason = self._second_chance(default, tuned, reply, reason)
        return ok("numbers", "as the default's") if passed else fail("numbers", reason, f"tune {self.workload}")

    def _second_chance(self, default: Session, tuned: Session, reply: NumericsReply, reason: str) -> tuple[bool, str]:
        """Different, but no farther from a high-precision reference?"""
        steps, reference = self.control.numerics_steps, self.folder / "precise.bin"
        saved = default.numerics(_CONTROL, steps=steps, reference=reference, save=True, precise=True)
        if isinstance(saved, Failure):
            return False, reason
        default.round([Arm(id=_CONTROL, steps=1)])
        replies = [s.numerics(_CONTROL, steps=steps, reference=reference, precise=True) for s in (default, tuned)]
        control, precise = replies
        if isinstance(control, Failure) or isinstance(precise, Failure):
            return False, reason
        return second_chance(reply, self.control.tolerances, precise=precise, control=control)

    def gain(self, default: Session, tuned: Session) -> float:
        """One pair's gain, from blocks in turns. Raises SessionEnded."""
        rows: dict[str, list[float]] = {"default": [], "tuned": []}
        if self.manifest.pgle == "auto":  # a step that isn't in the cache is traced and recompiled first
            tuned.round([Arm(id=_CONTROL, steps=int(self.manifest.env["JAX_PGLE_PROFILING_RUNS"]) + 2)])
        forms, step_s = dict.fromkeys(rows, self.control.form), dict[str, float]()
        for turn in range(_TURNS + _WARM_UP):
            if turn == _WARM_UP:
                forms = even_forms(self.control.form, step_s)
            order = [("default", default), ("tuned", tuned)]
            for name, session in order if turn % 2 == 0 else reversed(order):
                block = session.round([forms[name].arm(_CONTROL)])[0]
                if isinstance(block, Failure):
                    raise SessionEnded(block)
                step_s[name] = block.step_s
                if turn >= _WARM_UP:
                    rows[name].append(self.manifest.objective.value_s(block, work=self.work[session]))
        return -pair_of(rows["tuned"], rows["default"], together=True).log_ratio

    def verdict(self, gains: list[float], more: Callable[[], bool]) -> Finding:
        """The gain over pairs; the number of pairs is settled by the time, not by what they say."""
        try:
            while len(gains) < _PAIRS[0] or (len(gains) < _PAIRS[1] and more()):
                with self.pair() as (default, tuned):
                    for session in (default, tuned):
                        self._start(session)
                    for session in (default, tuned):
                        if isinstance(result := session.compile([Variant(id=_CONTROL)]).results[0], Failure):
                            raise SessionEnded(result)
                    gains.append(self.gain(default, tuned))
        except SessionEnded as ended:
            return fail("gain", f"can't be measured: {ended.failure.message}", "run it again on a quiet machine")
        found = confirm({"tuned": gains}, margin=self.control.margin, looks=(len(gains),)).estimates["tuned"]
        sealed = self.manifest.estimate
        was = f", sealed with {_ratio(sealed)}" if sealed else ""
        said = f"{_ratio(found)} in {len(gains)} pairs of fresh processes{was}"
        if found.high < self.control.margin:
            return fail("gain", f"gone: {said}", f"tune {self.workload}")
        if found.low <= 0:
            return warn("gain", f"can't be told: {said}", "give it more time (--time), or a quieter machine")
        if sealed and found.high < sealed.low:
            return warn("gain", f"smaller than it was: {said}", f"tune {self.workload} may find more")
        return ok("gain", said)


def _pins(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in pins(environ)}


def why_missed(sealed: Sequence[CacheModule], missed: Sequence[CacheModule]) -> str:
    """Why these were not found among what was `sealed`: for each, the parts of its key that differ from the nearest
    entry's. Those with the same reason are named together."""
    alike: dict[str, list[str]] = {}
    for module in missed:
        alike.setdefault(_why(sealed, module), []).append(module.module)
    return "; ".join(f"{_names(names)}: {why}" for why, names in alike.items())


def _why(sealed: Sequence[CacheModule], module: CacheModule) -> str:
    known = [one for one in sealed if one.module == module.module]
    if not known:
        return "not sealed under this name"
    if any(one.key == module.key for one in known):
        return "sealed, but the entry is gone or can't be read"
    nearest = min(known, key=lambda one: len(_fields(one, module)))
    parts = [f"another {name} ({FIELDS.get(name, 'unknown')})" for name in _fields(nearest, module)]
    return ", ".join(parts) or "another key"


def _names(modules: Sequence[str]) -> str:
    named = list(dict.fromkeys(modules))
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more


def _ratio(estimate: Estimate) -> str:
    return f"{estimate.speedup:.3g}x ({math.exp(estimate.low):.3g}–{math.exp(estimate.high):.3g})"


def _fields(a: CacheModule, b: CacheModule) -> list[str]:
    return [name for name, value in b.fields.items() if a.fields.get(name) != value]


def _differs(pairs: Mapping[str, tuple[str, str]]) -> str:
    return ", ".join(f"{name} is {here}, not {there}" for name, (there, here) in pairs.items())
