"""Stage 7, confirm: the default and at most two finalists in fresh processes, in the form that will be emitted.

Only these samples decide the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from tuner.errors import SessionEnded, TunerError
from tuner.knobs import DEFAULT, Config, fingerprint
from tuner.measure import LOOKS, ConfirmState, Estimate, Verdict, confirm, judge
from tuner.pipeline.baseline import ALTERNATIONS, WARM_UP, pair_seconds, seal_seconds
from tuner.pipeline.bench import CONTROL, Benches
from tuner.pipeline.context import Run
from tuner.pipeline.launches import launch
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Compiled, Variant
from tuner.session import Session
from tuner.store.events import CandidateCompiled, NumericsCompared, PairTimed, RoundTimed, SessionClosed, SessionStarted
from tuner.store.records import BaselineRecord, ConfirmRecord, Finalist, Measured, MinimiseRecord

__all__ = ["run_confirm"]

_HLO_DIGITS = 16


def run_confirm(run: Run, benches: Benches) -> ConfirmRecord:
    """Confirm the reduced winner and the runner-up against the default; without a winner nothing is confirmed."""
    baseline = run.record("baseline", BaselineRecord)
    found = run.record("minimise", MinimiseRecord)
    if found.reduced is None:
        return ConfirmRecord(
            finalists=(),
            chosen=DEFAULT,
            verdict=_unconfirmed_verdict(run),
            estimate=None,
            control_ms=baseline.control_ms,
            best_ms=baseline.control_ms,
            pairs=0,
            alive_together=False,
        )
    benches.close()  # the pairs need the device, and nothing may compile beside them
    finalists = [found.reduced]
    if found.runner_up is not None and found.runner_up.config != DEFAULT:
        if _begun(run, found.runner_up.config) or _affordable_pairs(run, processes=3) >= LOOKS[0]:
            finalists.append(found.runner_up)
        else:
            run.notice(f"no time to confirm a second finalist ({found.runner_up.config}) beside the first")
    return _Confirmation(run, finalists).run_all()


def _begun(run: Run, config: Config) -> bool:
    """True if an interrupted run has already timed pairs of `config`."""
    return any(isinstance(e, PairTimed) and e.config == config for e in run.events)


def _affordable_pairs(run: Run, *, processes: int) -> int:
    """Pairs of so many processes that what is left of the budget pays for, once the seal is paid."""
    baseline = run.record("baseline", BaselineRecord)
    costs = {"start_s": baseline.start_s, "compile_s": baseline.compile_s}
    block_s = (baseline.steps_per_block + 1) * baseline.control_ms / 1e3
    left_s = run.options.budget_s - run.budget.elapsed_s - seal_seconds(**costs)
    return int(left_s / pair_seconds(run, processes, block_s=block_s, **costs))


def _unconfirmed_verdict(run: Run) -> Verdict:
    """Nothing looked better. `same` where the best candidates' intervals exclude a gain of δ, else `unclear`."""
    highs = [t.estimate.high for c, t in run.trials.items() if c != DEFAULT and t.estimate is not None]
    return Verdict.SAME if all(high < run.margin for high in highs) else Verdict.UNCLEAR


class _Confirmation:
    """Pairs (or triples) of fresh processes, alive together and alternating."""

    def __init__(self, run: Run, finalists: Sequence[Measured]) -> None:
        self.run = run
        self.measured = {m.config: m for m in finalists}
        self.alive = list(self.measured)
        self.failures: dict[Config, Failure] = {}
        self.pairs: dict[Config, list[PairTimed]] = {c: [] for c in self.measured}
        for event in run.events:  # what an interrupted run has already confirmed
            if isinstance(event, PairTimed) and event.config in self.pairs:
                self.pairs[event.config].append(event)
        self.together = run.room_for(1 + len(self.measured))
        # How often to look is settled before the first pair, by what the budget pays for.
        affordable = _affordable_pairs(run, processes=1 + len(self.measured))
        self.looks = tuple(n for n in LOOKS if n <= max(LOOKS[0], affordable))

    def run_all(self) -> ConfirmRecord:
        index = min((len(p) for p in self.pairs.values()), default=0)
        state = self._state()
        while self.alive and index < self.looks[-1] and not (index >= self.looks[0] and state.done):
            self.run.status("confirm", "a fresh pair of processes", done=index, total=state.next_look or self.looks[0])
            self._pair(index)
            index += 1
            state = self._state()
        verdicts = {c: state.verdicts.get(c.key, Verdict.UNCLEAR) for c in self.measured}
        finalists = tuple(
            self._finalist(c, state.estimates.get(c.key), verdicts[c])
            for c in self.measured
            if self.pairs[c] or c in self.failures
        )
        return self._record(finalists)

    def _state(self) -> ConfirmState:
        gains = {c.key: [-p.log_ratio for p in pairs] for c, pairs in self.pairs.items() if c not in self.failures}
        return confirm(gains, margin=self.run.margin, looks=self.looks)

    def _record(self, finalists: tuple[Finalist, ...]) -> ConfirmRecord:
        baseline = self.run.record("baseline", BaselineRecord)
        good = [f for f in finalists if f.verdict is Verdict.FASTER]
        # Ties go to fewer settings: a rival displaces a shorter config only if the same pairs show that it is faster.
        good.sort(key=lambda f: (len(f.config), -f.estimate.gain))
        best = good[0] if good else None
        for rival in good[1:]:
            if best is not None and self._faster_than(rival, best):
                best = rival
        shown = best or (finalists[0] if finalists else None)
        return ConfirmRecord(
            finalists=finalists,
            chosen=best.config if best else DEFAULT,
            verdict=Verdict.FASTER if best else self._no_gain(finalists),
            estimate=shown.estimate if shown else None,
            control_ms=shown.control_ms if shown else baseline.control_ms,
            best_ms=(best.best_ms if best else shown.control_ms if shown else baseline.control_ms),
            pairs=max((len(p) for p in self.pairs.values()), default=0),
            alive_together=self.together,
        )

    def _no_gain(self, finalists: Sequence[Finalist]) -> Verdict:
        """None is faster. `same` where that is certain: no finalist's interval reaches a gain of δ."""
        excluded = [f.failure is None and f.estimate.high < self.run.margin for f in finalists]
        return Verdict.SAME if excluded and all(excluded) else Verdict.UNCLEAR

    def _faster_than(self, rival: Finalist, best: Finalist) -> bool:
        """Two finalists that lived in the same pairs: the default between them cancels."""
        gains = [b - r for r, b in zip(rival.log_ratios, best.log_ratios, strict=False)]
        state = confirm({"rival": gains}, margin=self.run.margin, looks=self.looks)
        return state.verdicts["rival"] is Verdict.FASTER

    def _finalist(self, config: Config, estimate: Estimate | None, verdict: Verdict) -> Finalist:
        pairs = self.pairs[config]
        failure = self.failures.get(config)
        unknown = Estimate(gain=0.0, se=math.inf, low=-math.inf, high=math.inf, n=len(pairs))
        return Finalist(
            config=config,
            estimate=estimate or unknown,
            verdict=Verdict.UNCLEAR if failure else verdict,
            log_ratios=tuple(p.log_ratio for p in pairs),
            best_ms=median(p.finalist_ms for p in pairs) if pairs else math.nan,
            control_ms=median(p.control_ms for p in pairs) if pairs else math.nan,
            failure=failure,
        )

    def _pair(self, index: int) -> None:
        """One fresh process each for the default and every finalist, in random order.

        They live together and alternate where the device has room, else each is timed alone.
        """
        arms = [DEFAULT, *self.alive]
        self.run.rng.shuffle(arms)
        rows: dict[Config, list[float]] = {}
        prints: dict[Config, str] = {}
        for group in [arms] if self.together else [[c] for c in arms]:
            self._group({c: self._fresh(c, index) for c in group}, rows, prints, gate=index == 0)
        for config in [c for c in self.alive if c not in self.failures]:
            self.run.emit(
                event := PairTimed(
                    index=index,
                    config=config,
                    log_ratio=self._log_ratio(rows[config], rows[DEFAULT]),
                    control_ms=1e3 * median(rows[DEFAULT]),
                    finalist_ms=1e3 * median(rows[config]),
                    fingerprint=prints[config],
                    alive_together=self.together,
                )
            )
            self.pairs[config].append(event)
        self.alive = [c for c in self.alive if c not in self.failures]

    def _log_ratio(self, finalist: list[float], default: list[float]) -> float:
        """Paired by turn where both lived together, so that drift cancels; else of the medians."""
        if self.together:
            return median(math.log(a / b) for a, b in zip(finalist, default, strict=True))
        return math.log(median(finalist) / median(default))

    def _group(
        self, sessions: dict[Config, Session], rows: dict[Config, list[float]], prints: dict[Config, str], *, gate: bool
    ) -> None:
        """Start, compile one after another, check, time in alternation, end."""
        try:
            self._start(sessions)
            prints |= self._compile(sessions)
            if gate:
                self._gate(sessions)
            rows |= self._alternate({c: s for c, s in sessions.items() if c not in self.failures})
        finally:
            for session in sessions.values():
                ended = session.ended
                session.close()
                self.run.emit(SessionClosed(session=session.launch.log.stem, failure=ended))

    def _fresh(self, config: Config, index: int) -> Session:
        name = f"confirm-{index}-{'default' if config == DEFAULT else config.key[:8]}"
        return self.run.factory(launch(self.run, name, role="confirm", config=config))

    def _start(self, sessions: dict[Config, Session]) -> None:
        """Start all at once: imports and state building overlap, and nothing is timed meanwhile."""
        began = self.run.budget.now()
        with ThreadPoolExecutor(len(sessions)) as pool:
            started = {c: pool.submit(s.start) for c, s in sessions.items()}
        took_s = self.run.budget.now() - began
        for config, future in started.items():
            try:
                loaded = future.result()
            except SessionEnded as ended:
                self._charge(config, ended.failure)
                continue
            session = sessions[config]
            self.run.emit(
                SessionStarted(
                    session=session.launch.log.stem,
                    role="confirm",
                    config=config,
                    env=dict(session.launch.env),
                    loaded=loaded,
                    start_s=took_s / len(sessions),
                )
            )

    def _compile(self, sessions: dict[Config, Session]) -> dict[Config, str]:
        """Compile one after another; check that each compiles to what was measured in the session."""
        prints: dict[Config, str] = {}
        for config, session in sessions.items():
            if config in self.failures:
                continue
            began = self.run.budget.now()
            try:
                result = session.compile([Variant(id=CONTROL)]).results[0]
            except SessionEnded as ended:
                result = ended.failure
            if isinstance(result, Failure):
                self._charge(config, result)
                continue
            prints[config] = fingerprint(result.code, result.code_covers, config, self.run.space)
            self.run.emit(
                CandidateCompiled(
                    session=session.launch.log.stem,
                    config=config,
                    compiled=result,
                    fingerprint=prints[config],
                    share_s=self.run.budget.now() - began,
                )
            )
            if config != DEFAULT and self.run.loaded.platform == "cpu":
                self._check_lane(config, result)
        return prints

    def _check_lane(self, config: Config, made: Compiled) -> None:
        """The emitted form must compile to what a session timed. (On a GPU the optimised HLO carries autotuned choices,
        which differ between two processes of the default already: there only the times can tell.)"""
        timed = next(e.compiled for e in self.run.events if isinstance(e, CandidateCompiled) and e.config == config)
        # The first half of the hash is the HLO; the machine code behind it can't always be read.
        digits = None if timed.code_covers == made.code_covers else _HLO_DIGITS
        if timed.code[:digits] != made.code[:digits]:
            self._charge(
                config,
                Failure(
                    kind=FailureClass.LANE_MISMATCH,
                    phase="confirm",
                    message=f"the environment form of {config} compiles to other code ({made.code[:8]}) than what was "
                    f"timed ({timed.code[:8]}): an env-file can't carry this gain",
                ),
            )

    def _gate(self, sessions: dict[Config, Session]) -> None:
        """The numbers again, in the emitted form."""
        baseline = self.run.record("baseline", BaselineRecord)
        for config, session in sessions.items():
            if config in self.failures or not self.run.folder.reference.exists():
                continue
            reply = session.numerics(CONTROL, steps=baseline.numerics_steps, reference=self.run.folder.reference)
            if isinstance(reply, Failure):
                self._charge(config, reply)
                continue
            passed, reason = judge(reply, baseline.tolerances)
            self.run.emit(
                NumericsCompared(
                    session=session.launch.log.stem,
                    config=config,
                    purpose="gate",
                    reply=reply,
                    passed=passed,
                    reason=reason,
                )
            )
            if not passed and not (config != DEFAULT and "numerics" in self.run.options.allow):
                self._charge(config, Failure(kind=FailureClass.WRONG_RESULT, phase="confirm", message=reason))

    def _alternate(self, sessions: dict[Config, Session]) -> dict[Config, list[float]]:
        """Seconds a step of each, one block an alternation; the order turns round every time."""
        steps = self.run.record("baseline", BaselineRecord).steps_per_block
        rows: dict[Config, list[float]] = {c: [] for c in sessions}
        order = list(sessions)
        for turn in range(ALTERNATIONS + WARM_UP):
            for config in order if turn % 2 == 0 else reversed(order):
                if config in self.failures:
                    continue
                try:
                    entry = sessions[config].round([Arm(id=CONTROL, steps=steps)])[0]
                except SessionEnded as ended:
                    entry = ended.failure
                if isinstance(entry, Failure):
                    self._charge(config, entry)
                    continue
                self._logged(sessions[config], entry)
                if turn >= WARM_UP:
                    rows[config].append(entry.seconds / entry.steps)
        return rows

    def _logged(self, session: Session, block: Block) -> None:
        self.run.emit(RoundTimed(session=session.launch.log.stem, stage="confirm", control=CONTROL, blocks=(block,)))

    def _charge(self, config: Config, failure: Failure) -> None:
        """A finalist that fails is out; a default that fails in a fresh process ends the run."""
        if config == DEFAULT:
            raise TunerError(
                f"the default settings fail in a fresh process: {failure.message}",
                where=failure.phase,
                next=f"see {self.run.folder.logs}; the same command goes on from here",
            )
        self.failures[config] = failure
