"""Evaluate configs: compile, share samples of equal fingerprints, gate the numbers, race in shared rounds.

The one road by which presets, screen and search get their trials. Every trial ends as a `TrialFinished` event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tuner.errors import SessionEnded
from tuner.knobs import DEFAULT, Config, fingerprint, forbidden, recipe_of, split
from tuner.measure import Estimate, combine, estimate, race, tie_break
from tuner.pipeline.bench import CONTROL, Bench
from tuner.pipeline.benches import Benches, Timer
from tuner.pipeline.context import Run
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Compiled
from tuner.store.events import EffectHidden, TrialFinished
from tuner.store.records import BaselineRecord, Measured

__all__ = ["MIN_ROUNDS", "Plan", "evaluate", "measured", "time_arms"]

# A race is first looked at after so many rounds.
MIN_ROUNDS = 4
# Rounds that a suspect of the guard round gets on top of it.
_GUARD_ROUNDS = 8


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long to race. `seconds` for the whole batch; at least `min_rounds` whatever the clock says.

    `half_width`: an arm whose interval is narrower needs no more rounds (log scale). `futile`: stop arms that
    certainly don't beat the control by the margin. `guard`: give candidates that compile to the control's program one
    pooled round, which a clear deviation overrules (some settings act where no fingerprint shows it). `keep`: a handle
    that stays in every round as the reference of paired differences. `proof`: blocks as long as the confirmation's, for
    what nobody looks at again.
    """

    stage: str
    seconds: float
    min_rounds: int = MIN_ROUNDS
    max_rounds: int = 400
    half_width: float
    futile: bool = True
    guard: bool = False
    keep: str = ""
    proof: bool = False


def evaluate(
    run: Run, benches: Benches, configs: Iterable[Config], plan: Plan, *, labels: Mapping[Config, str] | None = None
) -> list[TrialFinished]:
    """Evaluate what was not yet evaluated, batched by session; returns the trial of every config asked for, in order.

    A combination that the space forbids gets no trial and is left out.
    """
    wanted = list(dict.fromkeys(c for c in configs if forbidden(run.held.join(c), run.space) is None))
    fresh = [c for c in wanted if c not in run.trials]
    groups: dict[Config, list[Config]] = {}
    for config in fresh:
        groups.setdefault(split(config, run.space)[0], []).append(config)
    # The home session first: it is alive already. Shares are by size, of the time that is left.
    began = run.budget.now()
    for index, (environment, members) in enumerate(sorted(groups.items(), key=lambda g: len(g[0]))):
        left = max(0.0, plan.seconds - (run.budget.now() - began))
        waiting = sum(len(m) + 1 for m in list(dict(sorted(groups.items(), key=lambda g: len(g[0]))).values())[index:])
        share = msgspec.structs.replace(plan, seconds=left * (len(members) + 1) / waiting)
        _Batch(run, benches, environment, members, share, labels or {}).run_all()
        run.publish()
    return [run.trials[c] for c in wanted if c in run.trials]


def measured(run: Run, trials: Iterable[TrialFinished]) -> list[Measured]:
    """The trials that have an estimate, best first; of those that tie (they share their samples), see `tie_break`."""
    found = [
        Measured(config=t.config, estimate=t.estimate, fingerprint=t.fingerprint, trial=t.number, label=t.label)
        for t in trials
        if t.estimate is not None
    ]
    return sorted(found, key=lambda m: (-m.estimate.gain, *tie_break(len(m.config), run.peaks.get(m.config))))


def time_arms(
    run: Run, bench: Timer, arms: Mapping[str, Config], plan: Plan
) -> tuple[dict[str, list[float]], dict[str, Failure]]:
    """Race `arms` (handle → config) in shared rounds within `plan`.

    Returns each handle's gains over the control, a value a round (NaN where it was not timed), and the
    failures. Rounds are aligned between handles, so that differences of two arms can be paired.
    """
    baseline = run.record("baseline", BaselineRecord)
    form = baseline.form if plan.proof else baseline.exploring
    gains: dict[str, list[float]] = {h: [] for h in arms}
    failures: dict[str, Failure] = {}
    alive = [h for h in arms if h not in (CONTROL, plan.keep)]
    pinned = [plan.keep] if plan.keep in arms and plan.keep != CONTROL else []
    if not alive:
        alive, pinned = pinned, []
    began = run.budget.now()
    rounds, next_look = 0, plan.min_rounds
    while alive and rounds < plan.max_rounds:
        if rounds >= plan.min_rounds and run.budget.now() - began > plan.seconds:
            break
        result, failed = bench.round(plan.stage, [*alive, *pinned], form)
        failures |= failed
        rounds += 1
        for handle, row in gains.items():
            row.append(bench.control_gain if handle == CONTROL else result.get(handle, math.nan))
        alive = [h for h in alive if h not in failures]
        if rounds >= next_look and alive:
            # The race may be asked as often as one likes, but asking costs more the longer it lasts.
            next_look = rounds + max(1, rounds // 8)
            state = race(
                {h: gains[h] for h in arms if h not in failures},
                margin=run.margin if plan.futile else None,
                min_rounds=plan.min_rounds,
            )
            alive = [h for h in alive if h in state.alive and not _narrow(gains[h], plan.half_width)]
        run.status(plan.stage, f"{len(alive)} of {len(arms)} candidates in the race", done=rounds)
    return gains, failures


def guard_round(run: Run, bench: Bench, configs: Sequence[Config], stage: str) -> list[Config]:
    """Which of `configs`, all of the control's program, are clearly faster or slower than the control.

    One pooled round for all; those that deviate by three standard deviations of a round get a few more.
    """
    if not configs:
        return []
    baseline = run.record("baseline", BaselineRecord)
    run.status(stage, f"guard round over {len(configs)} inert candidates")
    handles = {bench.handle(c): c for c in configs}
    first, failed = bench.round(stage, list(handles), baseline.exploring)
    limit = max(3 * (baseline.exploring_noise or baseline.noise), run.margin)
    suspects = [h for h, gain in first.items() if abs(gain) > limit] + list(failed)
    gains: dict[str, list[float]] = {h: [] for h in suspects}
    for _ in range(_GUARD_ROUNDS if suspects else 0):
        result, _ = bench.round(stage, suspects, baseline.exploring)
        for handle, gain in result.items():
            gains[handle].append(gain)
    clear = [h for h, row in gains.items() if h in failed or _deviates(row, run.margin)]
    return [handles[h] for h in clear]


def _deviates(gains: Sequence[float], margin: float) -> bool:
    return _clear(estimate(gains, level=0.999), margin)


def _clear(value: Estimate, margin: float) -> bool:
    return (value.low > 0 and value.gain > margin) or (value.high < 0 and value.gain < -margin)


def _narrow(gains: Sequence[float], half_width: float) -> bool:
    value = estimate([g for g in gains if not math.isnan(g)])
    return (value.high - value.low) / 2 <= half_width


def _in_order(configs: Sequence[Config]) -> list[list[Config]]:
    """Who compiles and is checked together, before the next: first all without a PGLE profile, then one after the
    other. On a GPU the first run of what was compiled before a trace takes longer after it, by up to two seconds."""
    plain = [c for c in configs if recipe_of(c) is None]
    guided = [[c] for c in configs if recipe_of(c) is not None]
    return [plain, *guided] if plain else guided


class _Batch:
    """The configs that share one session."""

    def __init__(
        self,
        run: Run,
        benches: Benches,
        environment: Config,
        configs: Sequence[Config],
        plan: Plan,
        labels: Mapping[Config, str],
    ) -> None:
        self.run = run
        self.benches = benches
        self.environment = environment
        self.configs = list(configs)
        self.plan = plan
        self.labels = labels
        self.fingerprints: dict[Config, str] = {}

    def run_all(self) -> None:
        """Take the batch through; if the session dies, it is reopened and the config that killed it is found."""
        try:
            bench = self.benches.at(self.environment)
        except SessionEnded as ended:
            for config in self.configs:
                self._failed(self.environment.key[:8], config, ended.failure)
            return
        try:
            self._attempt(bench, self._unfinished())
        except SessionEnded as ended:
            self._one_by_one(ended.failure)

    def _unfinished(self) -> list[Config]:
        return [c for c in self.configs if c not in self.run.trials]

    def _attempt(self, bench: Bench, configs: Sequence[Config]) -> None:
        arms: dict[str, Config] = {}
        seen: set[str] = set()
        for members in _in_order(configs):
            self.run.status(self.plan.stage, f"compiling {len(members)} candidates", total=len(configs))
            distinct = self._compile(bench, members, seen)
            if self.plan.guard:
                distinct += self._guard(bench, members)
            for index, config in enumerate(distinct):
                self.run.status(self.plan.stage, "checking the numbers", done=index, total=len(distinct))
                failure = bench.gate(config)
                if failure is not None and not self._admitted(config, failure):
                    self._failed(bench.name, config, failure)
                else:
                    arms[bench.handle(config)] = config
        gains, failures = time_arms(self.run, bench, arms, self.plan)
        for handle, config in arms.items():
            if handle in failures:
                self._failed(bench.name, config, failures[handle])
            else:
                self._timed(bench, config, gains[handle])
        self._share(bench, configs)
        bench.release(configs)

    def _compile(self, bench: Bench, configs: Sequence[Config], seen: set[str]) -> list[Config]:
        """Compile; returns one config a fingerprint that nobody has timed yet. `seen`: those of this batch so far."""
        distinct: list[Config] = []
        for config, result in bench.compile(configs).items():
            if isinstance(result, Failure):
                self._failed(bench.name, config, result)
                continue
            made = self._fingerprint(config, result)
            # A session's own setting is timed by its offset, whatever it compiled to: that is its guard.
            if config == bench.config or (made not in seen and self.run.sharing(made) is None):
                distinct.append(config)
            seen.add(made)
        return distinct

    def _guard(self, bench: Bench, configs: Sequence[Config]) -> list[Config]:
        """Those of the control's program that clearly run at another speed: what they do, no fingerprint shows."""
        same = [c for c in configs if c != bench.config and self.fingerprints.get(c) == bench.fingerprint]
        suspects = guard_round(self.run, bench, same, self.plan.stage)
        for config in suspects:
            self._hidden(bench, config)
        return suspects

    def _hidden(self, bench: Bench, config: Config) -> None:
        """No fingerprint shows what `config` does: from now on its values are part of it."""
        self.run.emit(EffectHidden(session=bench.name, config=config))
        self._fingerprint(config, bench.control)
        self.run.notice(f"{config} compiles to the control's program but runs at another speed: it stays")

    def _fingerprint(self, config: Config, compiled: Compiled) -> str:
        self.fingerprints[config] = fingerprint(compiled.code, compiled.code_covers, config, self.run.space)
        return self.fingerprints[config]

    def _admitted(self, config: Config, failure: Failure) -> bool:
        """`--allow numerics` admits a config that sets a knob declared to change numbers; it stays labelled."""
        if "numerics" not in self.run.options.allow:
            return False
        return self.run.space.risks(config.names, "numerics")

    def _one_by_one(self, failure: Failure) -> None:
        """The session died and took the batch along: try each config alone, so that the guilty one is named."""
        self.run.notice(
            f"a session ended while {self.plan.stage} ran ({failure.message}); finding out which setting did it"
        )
        for config in self._unfinished():
            try:
                self._attempt(self.benches.at(self.environment), [config])
            except SessionEnded as ended:
                self._failed("", config, ended.failure)

    def _timed(self, bench: Bench, config: Config, gains: Sequence[float]) -> None:
        if config == bench.config:
            value = bench.offset  # the session's own setting, alone
            same = self.fingerprints.get(config) == self.run.trials[DEFAULT].fingerprint
            if self.plan.guard and same and value is not None and _clear(value, self.run.margin):
                self._hidden(bench, config)
        else:
            value = combine(estimate([g for g in gains if not math.isnan(g)]), bench.offset)
        self._finish(bench.name, config, value)

    def _share(self, bench: Bench, configs: Sequence[Config]) -> None:
        """Give every config that compiled to a known fingerprint the samples of the one that was timed."""
        for config in configs:
            if config in self.run.trials or config not in self.fingerprints:
                continue
            twin = self.run.sharing(self.fingerprints[config])
            if twin is not None:
                self._finish(bench.name, config, twin.estimate, shared_with=twin.number)
                continue
            failed = next(
                (t for t in self.run.trials.values() if t.fingerprint == self.fingerprints[config] and t.failure), None
            )
            if failed is not None and failed.failure is not None:
                self._failed(bench.name, config, failed.failure)

    def _finish(self, session: str, config: Config, value: Estimate | None, *, shared_with: int = -1) -> None:
        self.run.emit(
            TrialFinished(
                number=self.run.trial_number(),
                stage=self.plan.stage,
                session=session,
                config=config,
                value=None if value is None else -value.gain,
                estimate=value,
                fingerprint=self.fingerprints.get(config, ""),
                shared_with=shared_with,
                label=self.labels.get(config, ""),
            )
        )

    def _failed(self, session: str, config: Config, failure: Failure) -> None:
        self.run.emit(
            TrialFinished(
                number=self.run.trial_number(),
                stage=self.plan.stage,
                session=session,
                config=config,
                value=None,
                estimate=None,
                fingerprint=self.fingerprints.get(config, ""),
                failure=failure,
                label=self.labels.get(config, ""),
            )
        )
