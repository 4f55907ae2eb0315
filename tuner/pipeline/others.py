"""The program's other functions under the winner: XLA_FLAGS act on the whole process, not on the step alone.

One fresh process with the default settings, one with the winner's: what each function needs, how fast it is, and
whether its numbers are the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.errors import SessionEnded
from tuner.knobs import DEFAULT, Config
from tuner.measure import Estimate, Limits, estimate, judge, pair_of, second_chance, steps_per_block
from tuner.pipeline.alternate import end_all, start_all
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.context import Run
from tuner.pipeline.delivering import prepare, settle
from tuner.pipeline.demands import other_work
from tuner.pipeline.gate import is_strict
from tuner.pipeline.launches import launch
from tuner.pipeline.nulls import benign_variants, limits_of
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Compiled, NumericsReply, Variant
from tuner.session import Session
from tuner.store.events import NumericsCompared, RoundTimed
from tuner.store.records import ConfirmRecord, OtherFunction

__all__ = ["check_others", "told", "wrong_other"]

# All functions together may take this share of the budget, at most so many seconds; the rest is told as not checked.
_SHARE, _MOST_S = 0.1, 120.0
# Compiles of one function: its own twice, benign ones, and one in high precision.
_COMPILES = 5
_BLOCK_S = 0.05
_TURNS, _WARM_UP = 10, 2


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What one function is under the default settings. `precise`: how far its results are from a high-precision
    reference, None where that can't be had. `steps`: calls a block."""

    compiled: Compiled
    limits: Limits
    precise: NumericsReply | None
    steps: int


def check_others(run: Run, config: Config) -> tuple[OtherFunction, ...]:
    """How the program's other functions fare under `config`, in the form that will be emitted.

    Functions that fail under the default settings, or for which no time is left, are told as not checked.
    """
    names = run.loaded.others
    if not names:
        return ()
    run.status("confirm", f"checking the program's other functions: {', '.join(names)}")
    found = _Others(run, config).check_all(names)
    _notices(run, found)
    return found


def wrong_other(found: Sequence[OtherFunction]) -> Failure | None:
    """A failure that names the first function whose numbers are wrong; None if there is none."""
    wrong = next((other for other in found if other.passed is False), None)
    if wrong is None:
        return None
    message = f"another function of the program, {wrong.name}, computes other results under it: {wrong.reason}"
    return Failure(kind=FailureClass.WRONG_RESULT, phase="others", message=message)


def told(record: ConfirmRecord, found: Mapping[Config, tuple[OtherFunction, ...]]) -> ConfirmRecord:
    """`record` with what was found about each finalist's other functions."""
    finalists = [msgspec.structs.replace(f, others=found.get(f.config, ())) for f in record.finalists]
    return msgspec.structs.replace(record, finalists=tuple(finalists))


def _notices(run: Run, found: Sequence[OtherFunction]) -> None:
    """What the user must know of functions that fail or become slower: the settings act on them all the same."""
    for other in found:
        if other.failure is not None:
            run.notice(f"{other.name} fails under the chosen settings ({other.failure.kind}: {other.failure.message})")
        elif other.gain is not None and other.gain.high < -run.margin:
            slower = f"{100 * math.expm1(-other.gain.gain):.2g} % slower"
            run.notice(
                f"{other.name} becomes {slower} under the chosen settings, which act on the whole process; where "
                "best.json has compile options, they can be given to the step alone"
            )


class _Others:
    def __init__(self, run: Run, config: Config) -> None:
        self.run = run
        self.config = config
        self.together = run.room_for(2)
        self.spent_s = 0.0
        self.limit_s = min(_MOST_S, _SHARE * run.options.budget_s)
        self.known: dict[str, _Known | str] = {}
        self.found: dict[str, OtherFunction] = {}
        self.rows: dict[Config, dict[str, list[float]]] = {DEFAULT: {}, config: {}}

    def check_all(self, names: tuple[str, ...]) -> tuple[OtherFunction, ...]:
        """Both processes alive together where the device has room, else the default's first."""
        arms = [DEFAULT, self.config]
        for group in [arms] if self.together else [[c] for c in arms]:
            self._group(group, names)
        return tuple(self._result(name) for name in names)

    def _group(self, configs: list[Config], names: tuple[str, ...]) -> None:
        """The numbers of all functions, then the speed of those that run: numbers matter more, should time be short."""
        cache = self.run.folder.scratch / "guided-others"
        ready = {c: prepare(self.run, c, cache) for c in configs}
        sessions = {c: self._fresh(c, env) for c, env in ready.items() if not isinstance(env, Failure)}
        if not sessions:
            return
        dead: set[Config] = set()
        try:
            start_all(self.run, sessions, charge=lambda config, _failure: dead.add(config))
            living = {c: s for c, s in sessions.items() if c not in dead}
            for work in (self._numbers, self._speed):
                for index, name in enumerate(names):
                    began = self.run.budget.now()
                    if self.spent_s < self.limit_s:
                        work(name, living, self.run.folder.scratch / f"other-{index}.bin")
                    self.spent_s += self.run.budget.now() - began
        finally:
            end_all(self.run, sessions)

    def _fresh(self, config: Config, env: Mapping[str, str | None]) -> Session:
        name = f"others-{'default' if config == DEFAULT else config.key[:8]}"
        return self.run.factory(launch(self.run, name, role="confirm", config=config, env=env))

    def _numbers(self, name: str, sessions: Mapping[Config, Session], reference: Path) -> None:
        """One function's results and memory in the processes that are alive."""
        if DEFAULT in sessions:
            self.known[name] = self._guarded(lambda: self._learn(sessions[DEFAULT], name, reference))
        known = self.known.get(name)
        if isinstance(known, _Known) and self.config in sessions and sessions[self.config].ended is None:
            work = other_work(self.run, sessions[self.config].launch.log.stem, self.config)
            if work != DEFAULT:
                self.found[name] = OtherFunction(name=name, reason=f"not checked: {work} may make another one of it")
            else:
                self.found[name] = self._compare(sessions, name, known, reference)

    def _speed(self, name: str, sessions: Mapping[Config, Session], _reference: Path) -> None:
        """One function's time, a block of each process in turn; the order turns round every time."""
        known, found = self.known.get(name), self.found.get(name)
        if not isinstance(known, _Known) or (found is not None and found.passed is None):
            return
        usable = {c: s for c, s in sessions.items() if s.ended is None and (c == DEFAULT or found is not None)}
        self._time(name, usable, known.steps)

    def _guarded(self, learn: Callable[[], _Known | Failure]) -> _Known | str:
        try:
            known = learn()
        except SessionEnded as ended:
            known = ended.failure
        return known.message if isinstance(known, Failure) else known

    def _learn(self, session: Session, name: str, reference: Path) -> _Known | Failure:
        """Compile it, save its results as the reference, measure its null set, and how long it takes."""
        control = session.compile([Variant(id=CONTROL)], function=name).results[0]
        if isinstance(control, Failure):
            return control
        affordable = _COMPILES * control.compile_s < self.limit_s
        benign = benign_variants(self.run) if affordable else []
        made = session.compile(benign, function=name).results if benign else ()
        saved = session.numerics(CONTROL, steps=1, reference=reference, save=True, function=name)
        if isinstance(saved, Failure):
            return saved
        handles = [v.id for v, result in zip(benign, made, strict=True) if not isinstance(result, Failure)]
        ask = functools.partial(session.numerics, steps=1, reference=reference, function=name)
        limits = limits_of(ask, handles, note=functools.partial(self._note, session, DEFAULT, name))
        if isinstance(limits, Failure):
            return limits
        # Where this process will not live beside the other, the second chance has to be prepared now.
        precise = None if self.together else self._precise(session, name, reference)
        first = session.round([Arm(id=CONTROL, steps=1)], function=name)[0]
        if isinstance(first, Failure):
            return first
        return _Known(
            compiled=control,
            limits=limits,
            precise=precise,
            steps=steps_per_block(first.seconds, target_s=_BLOCK_S),
        )

    def _precise(self, session: Session, name: str, reference: Path) -> NumericsReply | None:
        """How far its results by default are from a high-precision reference, which is made here; None without one."""
        ask = functools.partial(
            session.numerics, CONTROL, steps=1, reference=_precise_of(reference), precise=True, function=name
        )
        try:
            reply = ask(save=True)
            reply = reply if isinstance(reply, Failure) else ask()
        except SessionEnded:  # by the attempt: it is no fault of the settings
            return None
        return reply if isinstance(reply, NumericsReply) else None

    def _compare(self, sessions: Mapping[Config, Session], name: str, known: _Known, reference: Path) -> OtherFunction:
        """Its memory and its numbers under the winner."""
        session = sessions[self.config]
        peak = known.compiled.peak_bytes
        try:
            made = session.compile([Variant(id=CONTROL)], function=name).results[0]
            if isinstance(made, Failure):
                return OtherFunction(name=name, failure=made, default_peak_bytes=peak)
            if failed := settle(self.run, self.config, session, function=name):
                return OtherFunction(name=name, failure=failed, default_peak_bytes=peak, peak_bytes=made.peak_bytes)
            reply = session.numerics(CONTROL, steps=1, reference=reference, function=name)
            if isinstance(reply, Failure):
                return OtherFunction(name=name, failure=reply, default_peak_bytes=peak, peak_bytes=made.peak_bytes)
            limits = known.limits.strict if is_strict(self.run, self.config) else known.limits.usual
            passed, reason = judge(reply, limits)
            precise = None
            control = known.precise
            if not passed and control is None and DEFAULT in sessions:
                control = self._precise(sessions[DEFAULT], name, reference)
            if not passed and control is not None:
                file = _precise_of(reference)
                answer = session.numerics(CONTROL, steps=1, reference=file, precise=True, function=name)
                if isinstance(answer, NumericsReply):
                    precise = answer
                    passed, more = second_chance(reply, limits, precise=answer, control=control)
                    reason = more if passed else f"{reason}; {more}"
        except SessionEnded as ended:
            return OtherFunction(name=name, failure=ended.failure, default_peak_bytes=peak)
        self._note(session, self.config, name, "gate", reply, passed=passed, reason=reason, precise=precise)
        return OtherFunction(
            name=name, passed=passed, reason=reason, peak_bytes=made.peak_bytes, default_peak_bytes=peak
        )

    def _note(
        self,
        session: Session,
        config: Config,
        function: str,
        purpose: str,
        reply: NumericsReply,
        *,
        passed: bool | None = None,
        reason: str = "",
        precise: NumericsReply | None = None,
    ) -> None:
        self.run.emit(
            NumericsCompared(
                session=session.launch.log.stem,
                config=config,
                purpose=purpose,
                reply=reply,
                passed=passed,
                reason=reason,
                precise=precise,
                function=function,
                strict=is_strict(self.run, config),
            )
        )

    def _time(self, name: str, sessions: Mapping[Config, Session], steps: int) -> None:
        rows: dict[Config, list[float]] = {c: [] for c in sessions}
        for turn in range(_TURNS + _WARM_UP):
            for config in sessions if turn % 2 == 0 else reversed(list(sessions)):
                session = sessions[config]
                try:
                    entry = session.round([Arm(id=CONTROL, steps=steps)], function=name)[0]
                except SessionEnded as ended:
                    entry = ended.failure
                if isinstance(entry, Failure):
                    if config != DEFAULT:
                        self.found[name] = msgspec.structs.replace(self.found[name], failure=entry)
                    return
                block = RoundTimed(
                    session=session.launch.log.stem,
                    stage="confirm",
                    control=CONTROL,
                    blocks=(entry,),
                    function=name,
                )
                self.run.emit(block)
                if turn >= _WARM_UP:
                    rows[config].append(entry.step_s)
        for config, row in rows.items():
            self.rows[config][name] = row

    def _result(self, name: str) -> OtherFunction:
        known = self.known.get(name)
        if isinstance(known, str):
            return OtherFunction(name=name, reason=f"not checked: under the default settings it fails ({known})")
        if name not in self.found:
            late = known is None or self.spent_s >= self.limit_s
            why = "no time was left" if late else "the process with the settings was gone"
            return OtherFunction(name=name, reason=f"not checked: {why}")
        rows = [self.rows[config].get(name, []) for config in (self.config, DEFAULT)]
        return msgspec.structs.replace(self.found[name], gain=_gain(*rows, together=self.together))


def _gain(row: list[float], default: list[float], *, together: bool) -> Estimate | None:
    """By turns where both lived together; else of the medians, with no interval that could be told."""
    if not row or not default:
        return None
    if together:
        return estimate([-math.log(a / b) for a, b in zip(row, default, strict=True)])
    gain = -pair_of(row, default, together=False).log_ratio
    return Estimate(gain=gain, se=math.inf, low=-math.inf, high=math.inf, n=1)


def _precise_of(reference: Path) -> Path:
    return reference.with_name(f"{reference.stem}-precise{reference.suffix}")
