"""Stage 7, confirm: the default and at most two finalists in fresh processes, in the form that will be emitted.

Only these samples decide the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from tuner.errors import SessionEnded, TunerError
from tuner.knobs import DEFAULT, Config, fingerprint
from tuner.measure import (
    LOOKS,
    USUAL_TURNS,
    ConfirmState,
    PairCost,
    Verdict,
    confirm,
    pair_of,
    plan_pairs,
    process_sd_with,
    resolution,
    turns_within,
    turns_worth,
)
from tuner.pipeline.alternate import Watched, alternate, end_all, start_all
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.costs import pair_cost, process_cost, seal_seconds
from tuner.pipeline.delivering import fills_cache, prepare, read_back, settle
from tuner.pipeline.demands import other_work, over_memory
from tuner.pipeline.gate import gated
from tuner.pipeline.judgement import gains_of, judged, levels_of
from tuner.pipeline.launches import launch
from tuner.pipeline.others import check_others, told, wrong_other
from tuner.pipeline.profiles import profile_living
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Compiled, Variant
from tuner.session import Session
from tuner.store.events import CandidateCompiled, PairsPlanned, PairTimed
from tuner.store.records import BaselineRecord, ConfirmRecord, Measured, MinimiseRecord, OtherFunction, ScreenRecord

__all__ = ["run_confirm"]

_HLO_DIGITS = 16
# Disturbed pairs that are timed again, in a whole run.
_EXTRA_PAIRS = 3
# Of the time, what is planned for: one pair in seven may have to be timed again.
_PLANNED_SHARE = 6 / 7
# Pairs after which the noise within and between them says how long the next ones should be.
_FIRST_CHOICE = 3


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
            objective=run.objective,
        )
    benches.close()  # the pairs need the device, and nothing may compile beside them
    finalists = [found.reduced]
    if found.runner_up is not None and found.runner_up.config != DEFAULT:
        if _begun(run, found.runner_up.config) or _affords(run, processes=3):
            finalists.append(found.runner_up)
        else:
            run.notice(f"no time to confirm a second finalist ({found.runner_up.config}) beside the first")
    return _Confirmation(run, finalists).run_all()


def _begun(run: Run, config: Config) -> bool:
    """True if an interrupted run has already timed pairs of `config`."""
    return any(isinstance(e, PairTimed) and e.config == config for e in run.events)


def _left_s(run: Run) -> float:
    """Seconds left for pairs, once the seal is paid."""
    cost = process_cost(run.record("baseline", BaselineRecord))
    return run.options.budget_s - run.budget.elapsed_s - seal_seconds(run, cost)


def _affords(run: Run, *, processes: int) -> bool:
    """True if what is left pays for as many pairs of so many processes as the first look needs."""
    cost = pair_cost(run, processes, process_cost(run.record("baseline", BaselineRecord)))
    return LOOKS[0] * cost.seconds(USUAL_TURNS) <= _left_s(run)


def _unconfirmed_verdict(run: Run) -> Verdict:
    """Nothing looked better. `same` where the best candidates' intervals exclude a gain of δ, else `unclear`; also
    where the time reached nothing of what there was to try."""
    highs = [t.estimate.high for c, t in run.trials.items() if c != DEFAULT and t.estimate is not None]
    unreached = any(s.status == "skipped" for s in run.record("screen", ScreenRecord).left)
    excluded = all(high < run.margin for high in highs) if highs else not unreached
    return Verdict.SAME if excluded else Verdict.UNCLEAR


class _Confirmation:
    """Pairs (or triples) of fresh processes, alive together and alternating."""

    def __init__(self, run: Run, finalists: Sequence[Measured]) -> None:
        self.run = run
        self.baseline = run.record("baseline", BaselineRecord)
        self.configs = [m.config for m in finalists]
        self.alive = list(self.configs)
        self.failures: dict[Config, Failure] = {}
        # By number: a pair that is timed again takes the place of the disturbed one.
        self.timed: dict[Config, dict[int, PairTimed]] = {c: {} for c in self.configs}
        self.made: dict[Config, Compiled] = {}  # by the processes that live at present
        self.traced_s = 0.0  # of the present pair's time, what profiles took
        self.redone = 0
        for event in run.events:  # what an interrupted run has already confirmed
            if isinstance(event, PairTimed) and event.config in self.timed:
                self._take(event)
        self.together = run.room_for(1 + len(self.configs))
        filling = sum(fills_cache(run, c) for c in self.configs)
        self.cost = self.planned_cost = pair_cost(
            run, 1 + len(self.configs), process_cost(self.baseline), filling=filling
        )
        self.spent_s: list[float] = []  # by the pairs of this invocation, less what their turns should have taken
        planned = [e for e in run.events if isinstance(e, PairsPlanned)]
        self.looks = planned[0].looks if planned else ()
        self.turns = planned[-1].turns if planned else 0
        if not planned:
            self._plan()

    @property
    def pairs(self) -> dict[Config, list[PairTimed]]:
        """The pairs that count, in order."""
        return {c: [row[i] for i in sorted(row)] for c, row in self.timed.items()}

    def run_all(self) -> ConfirmRecord:
        index = min(len(row) for row in self.timed.values())
        state = self._state()
        while self.alive and index < self.looks[-1] and not (index >= self.looks[0] and state.done):
            self.run.status("confirm", "a fresh pair of processes", done=index, total=state.next_look or self.looks[0])
            self._pair(index)
            index += 1
            state = self._state()
            if index == _FIRST_CHOICE or (index in self.looks and not state.done):
                self._choose_turns(index)
        others: dict[Config, tuple[OtherFunction, ...]] = {}
        while (record := self._judged()).chosen != DEFAULT and record.chosen not in others:
            others[record.chosen] = self._others(record.chosen)
        return told(record, others)

    def _judged(self) -> ConfirmRecord:
        return judged(
            self.run,
            self.pairs,
            failures=self.failures,
            looks=self.looks,
            together=self.together,
            redone=self.redone,
        )

    def _others(self, config: Config) -> tuple[OtherFunction, ...]:
        """The program's other functions under what would be emitted. A wrong result in one of them rules it out, unless
        changed results are allowed."""
        found = check_others(self.run, config)
        wrong = wrong_other(found)
        if wrong is not None and "numerics" not in self.run.options.allow:
            self._charge(config, wrong)
        return found

    def _state(self) -> ConfirmState:
        return confirm(gains_of(self.pairs, self.failures), margin=self.run.margin, looks=self.looks)

    def _take(self, event: PairTimed) -> None:
        row = self.timed[event.config]
        self.redone += event.index in row and event.config == self.configs[0]
        row[event.index] = event

    def _plan(self) -> None:
        """Settle, before the first pair, how often to look; and with how many turns to begin."""
        noise, process = self.baseline.noise, self.baseline.process_noise
        plan = plan_pairs(
            noise,
            process,
            cost=self.cost,
            seconds=_PLANNED_SHARE * _left_s(self.run),
            margin=self.run.margin,
            finalists=len(self.configs),
        )
        self.looks, self.turns = plan.looks, plan.turns
        self._planned(noise, process)

    def _choose_turns(self, done: int) -> None:
        """How many turns the further pairs have: by the noise within and between the pairs so far, which tells nothing
        of the gain, and by what the time that is left has room for, one pair more included that may have to be timed
        again."""
        found = levels_of(self.pairs)
        remaining = self.looks[-1] - done
        if found is None or remaining < 1:
            return
        process = process_sd_with(found, self.baseline.process_noise)
        worth = turns_worth(found.round, process, cost=self.cost, margin=self.run.margin)
        turns = turns_within(worth, self.cost.turns_in(_left_s(self.run) / (remaining + 1)))
        if turns != self.turns:
            self.turns = turns
            self._planned(found.round, process)

    def _planned(self, round_sd: float, process_sd: float) -> None:
        smallest = resolution(
            round_sd,
            process_sd,
            rounds=self.turns,
            pairs=self.looks[-1],
            looks=self.looks,
            finalists=len(self.configs),
        )
        self.run.emit(
            PairsPlanned(
                looks=self.looks, turns=self.turns, round_sd=round_sd, process_sd=process_sd, resolution=smallest
            )
        )

    def _pair(self, index: int) -> None:
        """One pair that counts. A disturbed one is timed again where that is allowed and the time is there, whatever
        it said; what is still disturbed then counts, marked."""
        while self._clocked(index):
            needed = 1 + max(0, self.looks[0] - index - 1)  # this pair again, and those up to the first look
            if self.redone >= _EXTRA_PAIRS or needed * self.cost.seconds(self.turns) > _left_s(self.run):
                return

    def _clocked(self, index: int) -> bool:
        """Time a pair, and take the cost of further ones from what it took; true if the machine disturbed it."""
        began, self.traced_s = self.run.budget.now(), 0.0
        disturbed = self._timed_disturbed(index)
        took_s = self.run.budget.now() - began - self.traced_s
        self.spent_s.append(took_s - self.turns * self.planned_cost.turn_s)
        self.cost = PairCost(setup_s=max(0.0, fmean(self.spent_s)), turn_s=self.planned_cost.turn_s)
        return disturbed

    def _timed_disturbed(self, index: int) -> bool:
        """Time one fresh process each for the default and every finalist, in random order; true if the machine
        disturbed it.

        They live together and alternate where the device has room, else each is timed alone.
        """
        ready = self._ready(index)
        self.alive = [c for c in self.alive if c not in self.failures]
        if not self.alive:
            return False
        arms = [*ready]
        self.run.rng.shuffle(arms)
        prints: dict[Config, str] = {}
        parts: list[Watched[Config]] = []
        groups = [arms] if self.together else [[c] for c in arms]
        trouble = ""
        for group in groups:
            sessions = {c: self._fresh(c, index, ready[c]) for c in group}
            try:
                parts.append(self._group(sessions, prints, gate=index == 0))
                if group is groups[-1]:
                    trouble = self._told(index, parts, prints)
                if index == self.looks[0] - 1:  # the first pair that may be the last
                    self._trace(sessions, index)
            finally:
                end_all(self.run, sessions)
        return bool(trouble and self.alive)

    def _told(self, index: int, parts: Sequence[Watched[Config]], prints: Mapping[Config, str]) -> str:
        """Keep what a pair's processes took; returns what disturbed them."""
        self.alive = [c for c in self.alive if c not in self.failures]
        rows = {c: row for part in parts for c, row in part.rows.items()}
        steps = {c: row for part in parts for c, row in part.steps.items()}
        trouble = next((part.disturbed for part in parts if part.disturbed), "")
        for config in self.alive:
            pair = pair_of(rows[config], rows[DEFAULT], together=self.together)
            self.run.emit(
                event := PairTimed(
                    index=index,
                    config=config,
                    log_ratio=pair.log_ratio,
                    control_ms=1e3 * median(rows[DEFAULT]),
                    finalist_ms=1e3 * median(rows[config]),
                    fingerprint=prints[config],
                    alive_together=self.together,
                    turns=pair.turns,
                    spread=pair.spread,
                    conditions=parts[-1].conditions,
                    disturbed=trouble,
                    control_fingerprint=prints[DEFAULT],
                    steps={
                        name: pair_of(
                            *([part[name] for part in steps[c]] for c in (config, DEFAULT)), together=self.together
                        ).log_ratio
                        for name in self.run.objective.weights
                    },
                )
            )
            self._take(event)
        return trouble

    def _group(self, sessions: dict[Config, Session], prints: dict[Config, str], *, gate: bool) -> Watched[Config]:
        """Start, compile one after another, check, time in alternation."""
        start_all(self.run, sessions, charge=self._charge)
        prints |= self._compile(sessions)
        if gate:
            self._gate(sessions)
        return alternate(
            self.run,
            {c: s for c, s in sessions.items() if c not in self.failures},
            stage="confirm",
            form=self.baseline.form,
            turns=self.turns,
            charge=self._charge,
        )

    def _trace(self, sessions: Mapping[Config, Session], index: int) -> None:
        """Profile the default and the finalist that is likely to be chosen, once: it costs neither a start nor a
        compile here. The pairs still to come have their time."""
        began = self.run.budget.now()
        sides = {DEFAULT} if self.run.profiled & set(self.configs) else {DEFAULT, self._leader()}
        left_s = _left_s(self.run) - (self.looks[-1] - index - 1) * self.cost.seconds(self.turns)
        living = {c: s for c, s in sessions.items() if c in sides and c not in self.failures}
        profile_living(self.run, living, self.made, left_s=left_s)
        self.traced_s += self.run.budget.now() - began

    def _leader(self) -> Config | None:
        """The finalist that is likely to be chosen, by the pairs so far."""
        gains = {c: fmean(-p.log_ratio for p in self.pairs[c]) for c in self.alive if self.pairs[c]}
        return max(gains, key=lambda c: gains[c], default=next(iter(self.alive), None))

    def _ready(self, index: int) -> dict[Config, Mapping[str, str | None]]:
        """Default and finalists with the variables that lead each process to a profile, or to what was made with it:
        another compile in each pair. A finalist without is out."""
        ready: dict[Config, Mapping[str, str | None]] = {DEFAULT: {}}
        for config in self.alive:
            cache = self.run.folder.scratch / f"guided-{index}-{config.key[:8]}"
            env = prepare(self.run, config, cache)
            if isinstance(env, Failure):
                self._charge(config, env)
            else:
                ready[config] = env
        return ready

    def _fresh(self, config: Config, index: int, env: Mapping[str, str | None]) -> Session:
        name = f"confirm-{index}-{'default' if config == DEFAULT else config.key[:8]}"
        return self.run.factory(launch(self.run, name, role="confirm", config=config, env=env))

    def _compile(self, sessions: dict[Config, Session]) -> dict[Config, str]:
        """Compile one after another; check that each compiles to what was measured in the session."""
        prints: dict[Config, str] = {}
        for config, session in sessions.items():
            if config in self.failures:
                continue
            began = self.run.budget.now()
            try:
                reply = session.compile([Variant(id=CONTROL)])
                result = reply.results[0]
                if not isinstance(result, Failure):
                    unguided = settle(self.run, config, session) or read_back(self.run, config, session, reply)
                    result = unguided or result
            except SessionEnded as ended:
                result = ended.failure
            if isinstance(result, Failure):
                self._charge(config, result)
                continue
            prints[config] = fingerprint(result.code, result.code_covers, config, self.run.space)
            self.made[config] = result
            self.run.emit(
                CandidateCompiled(
                    session=session.launch.log.stem,
                    config=config,
                    compiled=result,
                    fingerprint=prints[config],
                    share_s=self.run.budget.now() - began,
                )
            )
            if config != DEFAULT and (failure := over_memory(self.run, config, result)):
                self._charge(config, failure)
                continue
        for config in sessions:
            if config not in {DEFAULT, *self.failures} and self.run.loaded.platform == "cpu":
                self._check_lane(config, self.made[config])
        return prints

    def _check_lane(self, config: Config, made: Compiled) -> None:
        """The emitted form must compile to what a session timed. (On a GPU the optimised HLO carries autotuned choices,
        which differ between two processes of the default already: there only the times can tell. So it is where the
        default itself is another program in every process, which the run says.)"""
        timed, default = (self._timed_as(c) for c in (config, DEFAULT))
        if DEFAULT in self.made and self.made[DEFAULT].program != default.program:
            return
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

    def _timed_as(self, config: Config) -> Compiled:
        """What `config` compiled to first, in a session."""
        return next(e.compiled for e in self.run.events if isinstance(e, CandidateCompiled) and e.config == config)

    def _gate(self, sessions: dict[Config, Session]) -> None:
        """The numbers again, in the emitted form."""
        home = (sessions[DEFAULT], CONTROL) if DEFAULT in sessions else None
        for config, session in sessions.items():
            work = other_work(self.run, session.launch.log.stem, config)
            if config in self.failures or not self.run.folder.reference_of(work).exists():
                continue
            try:
                failure = gated(self.run, session, CONTROL, config, home=home, phase="confirm")
            except SessionEnded as ended:
                failure = ended.failure
            wrong = failure is not None and failure.kind is FailureClass.WRONG_RESULT
            allowed = wrong and config != DEFAULT and "numerics" in self.run.options.allow
            if failure is not None and not allowed:
                self._charge(config, failure)

    def _charge(self, config: Config, failure: Failure) -> None:
        """A finalist that fails is out; a default that fails in a fresh process ends the run."""
        if config == DEFAULT:
            raise TunerError(
                f"the default settings fail in a fresh process: {failure.message}",
                where=failure.phase,
                next=f"see {self.run.folder.logs}; the same command goes on from here",
            )
        self.failures[config] = failure
