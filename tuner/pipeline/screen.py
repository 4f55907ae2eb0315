"""Stage 4, screen: flip each knob alone, tier by tier; what is inert, fails or is wrong leaves the space."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from tuner.knobs import DEFAULT, TIERS, UNSET, Config, Knob, KnobStatus
from tuner.pipeline.benches import Benches
from tuner.pipeline.combine import best_flips, combinations, flip
from tuner.pipeline.context import Run
from tuner.pipeline.costs import least_reserve
from tuner.pipeline.evaluate import Plan, evaluate, measured
from tuner.pipeline.warm import likely_knobs
from tuner.protocol.failure import FailureClass
from tuner.store.events import TrialFinished
from tuner.store.records import BaselineRecord, ScreenRecord

__all__ = ["run_screen"]

# A value that alone costs more than this is not worth combining (log scale).
_HOPELESS = 0.05
# What a knob's status is called that leaves for such a failure; "failed" for the others.
_STATUSES = {FailureClass.WRONG_RESULT: "wrong", FailureClass.OVER_MEMORY: "over_memory"}
# Of the time that is left, what a tier may take while others wait behind it; what it doesn't use is theirs.
_TIER_SHARE = 0.6
# How many are compiled before the clock is looked at again, where compiling is dear.
_CHUNK = 12


def run_screen(run: Run, benches: Benches) -> ScreenRecord:
    """Measure each live knob's values alone, tier after tier while the share of the budget lasts; before all others
    those of the groups that the user puts first, then those that made programs like this one faster.

    Of a tier first the values of the option lane, together, then a session a value. What was never timed alone is worth
    more than combinations of what was: all but the last tier may take the search's share as well, but for the few
    combinations of settings that have each gained the margin. While none has there is little to combine or to reduce:
    what the tiers postponed gets that time.
    """
    knobs = run.live
    screened = _Screened(run, benches)
    share = run.budget.share_s("screen")
    until_s = run.budget.now() + share
    spare_s = run.budget.share_s("screen", "search") - share
    likely = likely_knobs(run)
    tiers = _in_order(list(knobs.values()), run.options.first, likely)
    for index, members in enumerate(tiers):
        left_s = until_s - run.budget.now()
        share_s = max(0.0, left_s if index == len(tiers) - 1 else _TIER_SHARE * left_s)
        named = members[0].group in run.options.first or members[0].name in likely
        unlikely = members[0].tier == TIERS[-1] and not named
        # Where an earlier tier took more than the screen's own share, the spare time is what is left of both.
        more_s = 0.0 if unlikely else max(0.0, spare_s - screened.combining_s + min(0.0, left_s))
        screened.tier(members, share_s, spare_s=more_s, first=index == 0)
    screened.rest([k for members in tiers for k in members])
    live, left = _sort_out(run, knobs, {t.config: t for t in screened.trials})
    left += [
        KnobStatus(
            name=knob.name,
            status="skipped",
            reason=f"the budget has no room for it; knobs are tried by tier, this one in {knob.tier} of {TIERS[-1]}",
            values=tuple(values),
        )
        for knob in knobs.values()
        if (values := [c.get(knob.name) for c in _flips(knob) if c in screened.postponed])
    ]
    return ScreenRecord(flips=tuple(measured(run, screened.trials)), live=live, left=tuple(left))


def _in_order(knobs: Sequence[Knob], first: Sequence[str], likely: Collection[str]) -> list[list[Knob]]:
    """Knobs of the groups `first`, a group after the other, then those whose names are `likely`, then the others by
    tier, in turns what acts on communication and what doesn't; nothing empty."""
    groups = [[k for k in knobs if k.group == group] for group in dict.fromkeys(first)]
    rest = [k for k in knobs if k.group not in first]
    promising = [k for k in rest if k.name in likely]
    tiers = (_in_turns([k for k in rest if k.tier == tier and k.name not in likely]) for tier in TIERS)
    return [members for members in (*groups, promising, *tiers) if members]


def _in_turns(knobs: Sequence[Knob]) -> list[Knob]:
    """In turns one for programs that communicate and one for all programs, each kind in its order: where the time ends
    within a tier, both were tried."""
    talking = [k for k in knobs if k.when.collectives is not None]
    others = [k for k in knobs if k.when.collectives is None]
    return [k for pair in itertools.zip_longest(talking, others) for k in pair if k is not None]


class _Screened:
    """The flips that were tried and those that the time didn't reach."""

    def __init__(self, run: Run, benches: Benches) -> None:
        self.run = run
        self.benches = benches
        self.began = run.budget.now()
        self.known = len(run.trials)
        self.trials: list[TrialFinished] = []
        self.postponed: set[Config] = set()

    @property
    def pace_s(self) -> float:
        """What a flip took, of those that were tried since this began (an interrupted run's took nothing now); 0 before
        the first."""
        tried = len(self.run.trials) - self.known
        return (self.run.budget.now() - self.began) / tried if tried else 0.0

    @property
    def combining_s(self) -> float:
        """What combinations of the settings that have gained the margin would take."""
        least = dict.fromkeys(self.run.live, self.run.margin)
        return len(combinations(best_flips(self.run, self.run.live, least))) * self.pace_s

    def tier(self, knobs: Sequence[Knob], share_s: float, *, spare_s: float, first: bool) -> None:
        """Try the flips of one tier, in such depth that they take `share_s`; if that isn't enough to begin with all,
        `spare_s` more. The first batch of the first tier is always tried."""
        until_s = self.run.budget.now() + share_s + spare_s
        option = [c for k in knobs if k.lane == "option" for c in _flips(k)]
        environment = [c for k in knobs if k.lane == "environment" for c in _flips(k)]
        sessions_s = min(0.6 * max(0.0, share_s), len(environment) * _session_s(self.run)) if option else 0.0
        self._option(option, share_s - sessions_s, spare_s=spare_s, first=first)
        for config in environment:
            left_s = until_s - self.run.budget.now()
            if config not in self.run.trials and not _affordable(self.run, left_s):
                self.postponed.add(config)
            else:
                self.trials += evaluate(self.run, self.benches, [config], _plan(self.run, left_s))

    def _option(self, flips: Sequence[Config], share_s: float, *, spare_s: float, first: bool) -> None:
        until_s = self.run.budget.now() + share_s
        chunks = _chunks(self.run, flips, share_s, threads=self.benches.home().threads, pace_s=self.pace_s)
        for index, chunk in enumerate(chunks):
            left_s = until_s - self.run.budget.now()
            # A batch that would end more than half outside the share isn't begun; what was tried before an
            # interruption takes nothing.
            fresh = sum(c not in self.run.trials for c in chunk)
            if not (first and index == 0) and fresh * self.pace_s / 2 > left_s + spare_s:
                self.postponed.update(c for later in chunks[index:] for c in later)
                return
            self.trials += evaluate(
                self.run, self.benches, chunk, _plan(self.run, max(0.0, left_s) / (len(chunks) - index))
            )

    def rest(self, knobs: Sequence[Knob]) -> None:
        """Try what was postponed, in this order, until something gains the margin, or only what confirm and seal can't
        do without is left."""
        run = self.run
        kept_s = min(run.budget.reserve_s, least_reserve(run))
        waiting = {lane: [c for k in knobs if k.lane == lane for c in _flips(k)] for lane in ("option", "environment")}
        option, environment = ([c for c in flips if c in self.postponed] for flips in waiting.values())
        while (option or environment) and self._best_gain() < run.margin:
            left_s = run.budget.left_but(kept_s)
            if left_s <= 0:
                return
            if option:
                size = sum(n * self.pace_s <= left_s for n in range(1, _CHUNK + 1))
                batch, option = option[:size], option[size:]
            else:
                batch, environment = environment[: _affordable(run, left_s)], environment[1:]
            if not batch:
                return
            self.trials += evaluate(run, self.benches, batch, _plan(run, left_s))
            self.postponed.difference_update(batch)

    def _best_gain(self) -> float:
        """Of other programs than the control's: what runs that in another process differs by noise."""
        found, control = self.run.trials.values(), self.run.trials[DEFAULT].fingerprint
        return max((t.estimate.gain for t in found if t.estimate and t.fingerprint != control), default=0.0)


def _flips(knob: Knob) -> list[Config]:
    """The knob's values alone."""
    return [flip(knob, v) for v in knob.values if v != UNSET]


def _plan(run: Run, seconds: float) -> Plan:
    return Plan(stage="screen", seconds=seconds, half_width=run.margin, guard=True)


def _chunks(run: Run, configs: Sequence[Config], share_s: float, *, threads: int, pace_s: float) -> list[list[Config]]:
    """All at once, so that they share rounds; in batches where they, or compiling them alone, might take too long."""
    compile_s = run.record("baseline", BaselineRecord).compile_s
    if compile_s * len(configs) / max(1, threads / 2) < share_s / 2 and pace_s * len(configs) <= share_s:
        return [list(configs)]
    return [list(configs[i : i + _CHUNK]) for i in range(0, len(configs), _CHUNK)]


def _session_s(run: Run) -> float:
    """What one more session costs: its start, its control's compile, its offset."""
    baseline = run.record("baseline", BaselineRecord)
    return baseline.start_s + baseline.compile_s + 28 * baseline.exploring.all_steps * baseline.step_s


def _affordable(run: Run, left_s: float) -> bool:
    """True if the share has room for one more session. They are taken in the space's order, first values first."""
    return left_s >= _session_s(run)


def _sort_out(
    run: Run, knobs: Mapping[str, Knob], trials: Mapping[Config, TrialFinished]
) -> tuple[dict[str, tuple[str, ...]], list[KnobStatus]]:
    """Which values stay; and for those that leave, why."""
    control = run.trials[DEFAULT]
    live: dict[str, tuple[str, ...]] = {}
    left: list[KnobStatus] = []
    for knob in knobs.values():
        stay: list[str] = []
        gone: dict[tuple[str, str], list[str]] = {}
        programs: dict[str, str] = {}
        for value in knob.values:
            if value == UNSET:
                continue
            trial = trials.get(flip(knob, value))
            if trial is None:
                continue
            why = _why_it_leaves(trial, control, programs)
            if why is None:
                stay.append(value)
                programs.setdefault(trial.fingerprint, value)
            else:
                gone.setdefault(why, []).append(value)
        left += [
            KnobStatus(name=knob.name, status=status, reason=reason, values=tuple(values))
            for (status, reason), values in gone.items()
        ]
        if stay:
            live[knob.name] = (UNSET, *stay)
    return live, left


def _why_it_leaves(trial: TrialFinished, control: TrialFinished, programs: Mapping[str, str]) -> tuple[str, str] | None:
    if trial.failure is not None:
        status = _STATUSES.get(trial.failure.kind, "failed")
        return (status, f"{trial.failure.kind}: {trial.failure.message}")
    if trial.fingerprint == control.fingerprint:
        return ("inert", "compiles to the control's program, and a guard round saw no difference")
    if trial.fingerprint in programs:
        return ("inert", f"compiles to the same program as {programs[trial.fingerprint]!r}")
    if trial.estimate is not None and trial.estimate.high < -_HOPELESS:
        return ("slower", f"slower alone by more than {100 * _HOPELESS:.0f} %")
    return None
