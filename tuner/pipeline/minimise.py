"""Stage 6, minimise: cut the winner down to the settings that matter, each with its own effect.

Every reduced config is compared with the *full* winner, so that the losses of several drops can't add up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tuner.errors import SessionEnded
from tuner.knobs import DEFAULT, Config, fingerprint, forbidden, split
from tuner.measure import (
    Estimate,
    allowed_loss,
    combine,
    difference,
    estimate,
    not_inferior,
    smallest_not_inferior,
    tie_break,
)
from tuner.pipeline.bench import Bench
from tuner.pipeline.benches import Benches, Timer, Turns
from tuner.pipeline.context import Run
from tuner.pipeline.evaluate import MIN_ROUNDS, Plan, evaluate, measured, time_arms
from tuner.protocol.messages import Compiled
from tuner.store.records import BaselineRecord, Effect, Measured, MinimiseRecord, SearchRecord

__all__ = ["run_minimise"]

# Of at most so many settings all subsets are timed, where the time is there; of at least so many in any case.
_ALL_SUBSETS = 5
_FEW = 3
# So many rounds, in which nobody leaves, settle most of what a race of many arms left open.
_ENOUGH_ROUNDS = 24


def run_minimise(run: Run, benches: Benches) -> MinimiseRecord:
    """Reduce the search's best config, or find that there is nothing worth reducing."""
    # What runs the control's own program in another process left the space as inert; an estimate of it is noise.
    control = run.trials[DEFAULT].fingerprint
    best = [m for m in run.record("search", SearchRecord).best if m.config != DEFAULT and m.fingerprint != control]
    winner = next((m for m in best if m.estimate.gain > 0 and m.estimate.high >= run.margin), None)
    if winner is None:
        return MinimiseRecord(winner=None, reduced=None, runner_up=None, dropped={}, effects=())
    if _lacks_time(run, benches, winner.config):
        winner = _shortest(run, winner)
    if len(winner.config) > _FEW and _lacks_time(run, benches, winner.config):
        why = f"no time was left to find out which of the winner's {len(winner.config)} settings matter"
    else:
        try:
            return _reduce(run, benches, winner, best)
        except SessionEnded as ended:
            why = f"a session ended while the winner was reduced ({ended.failure.message})"
    run.notice(f"{why}; it is confirmed whole")
    return MinimiseRecord(winner=winner, reduced=winner, runner_up=None, dropped={}, effects=())


def _lacks_time(run: Run, benches: Benches, config: Config) -> bool:
    """True if less is left than it takes to compile and time, in the fewest rounds, what tells which settings of
    `config` matter."""
    arms = 2 ** len(config) if len(config) <= _FEW else 2 * len(config)
    return run.budget.left_s < _compile_s(run, benches.home(), arms) + _rounds_s(run, arms)


def _compile_s(run: Run, bench: Bench, configs: int) -> float:
    """Candidates compiled side by side hold each other up: half the threads' worth is what was seen."""
    return run.record("baseline", BaselineRecord).compile_s * configs / max(1, bench.threads / 2)


def _rounds_s(run: Run, arms: int) -> float:
    """The fewest rounds of so many arms."""
    return MIN_ROUNDS * run.record("baseline", BaselineRecord).round_s(arms + math.sqrt(arms))


def _shortest(run: Run, winner: Measured) -> Measured:
    """For want of time to reduce the winner: of what gains as much but for the loss that reducing allows, the config
    with the fewest settings."""
    least = winner.estimate.gain - allowed_loss(winner.estimate.gain, run.margin)
    able = [m for m in measured(run, run.trials.values()) if m.fingerprint != run.trials[DEFAULT].fingerprint]
    enough = [m for m in able if m.estimate.gain >= least and m.estimate.high >= run.margin]
    return min(enough, key=lambda m: len(m.config), default=winner)


def _reduce(run: Run, benches: Benches, winner: Measured, best: Sequence[Measured]) -> MinimiseRecord:
    seconds = run.budget.share_s("minimise")
    dropped: dict[str, str] = {}
    full = winner.config
    core = whole = _drop_inert(run, benches, full, dropped)
    allowed = allowed_loss(winner.estimate.gain, run.margin)
    losses = _Losses(run, benches, whole)
    if not _all_subsets(run, benches, whole, seconds / 2):
        _one_after_another(losses, allowed, seconds / 2)
        core = _settled(losses, allowed, seconds / 4, default=whole)
    winner = msgspec.structs.replace(winner, config=whole)
    reduced, resolved = core, core == whole
    if len(core) > 1 and _all_subsets(run, benches, core, seconds / 2):
        subsets = [Config(s) for n in range(1, len(core)) for s in itertools.combinations(core.settings, n)]
        found = losses.time(subsets, seconds / 2)
        reduced, resolved = smallest_not_inferior(found, full=core, allowed=allowed, peaks=run.peaks)
        if not resolved:
            reduced = _settled(losses, allowed, seconds / 4, default=core)
    for name in sorted(whole.names - reduced.names):
        dropped[name] = f"without all of these the gain changes by {_percent(losses.known[reduced])}"
    shown = _as_measured(run, benches, reduced, seconds / 8) or winner
    return MinimiseRecord(
        winner=winner,
        reduced=shown,
        runner_up=_runner_up(winner, reduced, best, resolved=resolved),
        dropped=dropped,
        effects=_effects(run, benches, shown, seconds / 4),
        winner_effects=_lost(whole, {n: losses.known[c] for n in whole.names if (c := whole.drop(n)) in losses.known}),
    )


def _settled(losses: _Losses, allowed: float, seconds: float, *, default: Config) -> Config:
    """The smallest config that may do. A few rounds of many arms tell little, and the budget may have room to confirm
    but one: so those between the smallest that may do and the smallest that does by its estimate are timed once more,
    among themselves; and that one with each setting that it lacks, unless it is shown to do."""
    run, whole = losses.run, losses.full
    may = {c: e for c, e in losses.known.items() if _plausible(e, allowed)}
    does = _smallest(run, {c: e for c, e in may.items() if e.gain >= -allowed}, default=default)
    shorter = {n: {c: e for c, e in may.items() if len(c) == n} for n in range(1, len(does))}
    close = [_smallest(run, of, default=does) for of in shorter.values() if of]
    shown = does == whole or not_inferior(losses.known[does], allowed)
    longer = [] if shown else [does.set(n, v) for n, v in whole.settings if n not in does.names]
    if not close and not longer:
        return does
    contenders = [c for c in dict.fromkeys([*close, does, *longer]) if c != whole]
    affordable = seconds / run.record("baseline", BaselineRecord).round_s(len(contenders) + 2)
    rounds = round(min(_ENOUGH_ROUNDS, max(MIN_ROUNDS, affordable)))
    found = losses.time(contenders, seconds, rounds=rounds)
    return _smallest(run, {c: e for c, e in found.items() if _plausible(e, allowed)}, default=does)


def _smallest(run: Run, losses: Mapping[Config, Estimate], *, default: Config) -> Config:
    """Of these the one with the fewest settings; among equals the one that loses least."""
    key = {c: (*tie_break(len(c), run.peaks.get(c)), -e.gain) for c, e in losses.items()}
    return min(key, key=key.__getitem__, default=default)


def _one_after_another(losses: _Losses, allowed: float, seconds: float) -> None:
    """Take settings out of the whole: each alone, then one after another, those first whose absence alone costs least.
    Twice as many candidates as settings, where all subsets would be too many."""
    whole = losses.full
    alone = losses.time([whole.drop(n) for n in sorted(whole.names)], seconds / 2)
    removable = sorted((c for c in alone if _plausible(alone[c], allowed)), key=lambda c: -alone[c].gain)
    rests = [whole]
    for config in removable:
        rests.append(Config(tuple(s for s in rests[-1].settings if s in config.settings)))
    losses.time([c for c in rests[2:] if c != DEFAULT], seconds / 2)


def _drop_inert(run: Run, benches: Benches, config: Config, dropped: dict[str, str]) -> Config:
    """Without the settings whose absence leaves the fingerprint alone: first each by itself, then those together, one
    after another (two that are inert alone need not be so together)."""
    bench = benches.at(split(config, run.space)[0])
    names = sorted(split(config, run.space)[1].names)
    without = {n: config.drop(n) for n in names if forbidden(run.held.join(config.drop(n)), run.space) is None}
    prints = _fingerprints(run, bench, [config, *without.values()])
    whole = prints.get(config, "")
    for name in [n for n in without if whole and prints.get(without[n]) == whole]:
        smaller = config.drop(name)
        if smaller in prints or (
            forbidden(run.held.join(smaller), run.space) is None
            and _fingerprints(run, bench, [smaller]).get(smaller) == whole
        ):
            dropped[name] = "without it the program compiles to the same code"
            config = smaller
    return config


def _fingerprints(run: Run, bench: Bench, configs: Sequence[Config]) -> dict[Config, str]:
    """Of those that compile."""
    made = bench.compile(configs)
    return {c: fingerprint(r.code, r.code_covers, c, run.space) for c, r in made.items() if isinstance(r, Compiled)}


def _all_subsets(run: Run, benches: Benches, core: Config, seconds: float) -> bool:
    """True if `core` is small enough for compiling and timing every subset within `seconds`."""
    if len(core) <= _FEW:
        return True
    members = 2 ** len(core)
    compile_s = _compile_s(run, benches.at(split(core, run.space)[0]), members)
    return len(core) <= _ALL_SUBSETS and compile_s + _rounds_s(run, members) <= seconds


class _Losses:
    """What configs gain over `full` (negative: lose), from all rounds in which they were timed beside it.

    Each round gives a difference where both sessions can live at once; `known` has the estimates so far.
    """

    def __init__(self, run: Run, benches: Benches, full: Config) -> None:
        self.run = run
        self.full = full
        self.known: dict[Config, Estimate] = {}
        self._benches = benches
        self._differences: dict[Config, list[float]] = {}

    def time(self, others: Iterable[Config], seconds: float, *, rounds: int = MIN_ROUNDS) -> dict[Config, Estimate]:
        """Time `others` beside `full`, at least `rounds` rounds before anybody leaves; those that could be timed, with
        what is known of them now."""
        run = self.run
        near = {split(self.full, run.space)[0], DEFAULT}
        candidates = [c for c in others if forbidden(run.held.join(c), run.space) is None]
        beside = [c for c in candidates if split(c, run.space)[0] in near]
        elsewhere = [c for c in candidates if c not in beside]
        timed, whole = self._beside(beside, seconds / 2 if elsewhere else seconds, rounds)
        if elsewhere:
            plan = Plan(stage="minimise", seconds=seconds / 2, half_width=run.margin / 4, futile=False, proof=True)
            for trial in evaluate(run, self._benches, elsewhere, plan):
                if trial.estimate is not None:
                    self.known[trial.config] = _minus(trial.estimate, whole)
                    timed.append(trial.config)
        return {config: self.known[config] for config in timed}

    def _beside(self, others: Sequence[Config], seconds: float, rounds: int) -> tuple[list[Config], Estimate]:
        """Which of the others were timed, and the gain of `full` itself in these rounds: the estimate by which it was
        chosen is the best of many, and so too good. The others live in its session, or in the home session, which then
        has a round of its own beside each of that one's: the machine's moods last for seconds."""
        run, full = self.run, self.full
        environment = split(full, run.space)[0]
        bench = self._benches.at(environment)
        at_home = [c for c in others if split(c, run.space)[0] != environment]
        arms = _compiled(bench, [full, *(c for c in others if c not in at_home)])
        home_arms = _compiled(self._benches.home(), at_home) if at_home else {}
        plan = Plan(
            stage="minimise",
            seconds=seconds,
            half_width=run.margin / 4,
            futile=False,
            keep=bench.handle(full),
            proof=True,
            min_rounds=rounds,
        )
        timed_by: Timer = Turns(bench, self._benches.home(), home_arms) if home_arms else bench
        gains, failures = time_arms(run, timed_by, arms | home_arms, plan)
        row = gains[bench.handle(full)]
        timed = []
        for handle, config in (arms | home_arms).items():
            if config == full or handle in failures:
                continue
            differences = self._differences.setdefault(config, [])
            differences += _together(difference(gains[handle], row))
            self.known[config] = estimate(differences)
            if config in at_home and bench.offset is not None:
                self.known[config] = combine(self.known[config], _centred(bench.offset))
            timed.append(config)
        bench.release([c for c in others if c not in at_home])
        if at_home:
            self._benches.home().release(at_home)
        if full == bench.config:
            return timed, bench.offset or Estimate(gain=0.0, se=0.0, low=0.0, high=0.0, n=len(row))
        offset = bench.offset and (_centred(bench.offset) if home_arms else bench.offset)
        return timed, combine(estimate(_together(row)), offset)


def _compiled(bench: Bench, configs: Sequence[Config]) -> dict[str, Config]:
    """Those of `configs` that compile, by handle."""
    return {bench.handle(c): c for c, made in bench.compile(configs).items() if isinstance(made, Compiled)}


def _centred(offset: Estimate) -> Estimate:
    """What `offset` leaves uncertain where its middle is in the gains already."""
    return msgspec.structs.replace(offset, gain=0.0, low=offset.low - offset.gain, high=offset.high - offset.gain)


def _together(gains: Iterable[float]) -> list[float]:
    return [g for g in gains if not math.isnan(g)]


def _minus(a: Estimate, b: Estimate) -> Estimate:
    """a − b for estimates that share no samples."""
    negated = Estimate(gain=-b.gain, se=b.se, low=-b.high, high=-b.low, n=b.n, level=b.level)
    return combine(a, negated)


def _effects(run: Run, benches: Benches, whole: Measured, seconds: float) -> tuple[Effect, ...]:
    """For each setting, what is lost when only it is dropped; of a single one that is the whole gain."""
    reduced = whole.config
    if len(reduced) == 1:
        return tuple(Effect(name=n, value=v, estimate=whole.estimate) for n, v in reduced.settings)
    without = {n: reduced.drop(n) for n in sorted(reduced.names)}
    losses = _Losses(run, benches, reduced).time(without.values(), seconds)
    return _lost(reduced, {n: losses[c] for n, c in without.items() if c in losses})


def _lost(config: Config, changes: Mapping[str, Estimate]) -> tuple[Effect, ...]:
    """What each setting of `config` does: the gain that changes when only it is dropped, with the sign turned."""
    return tuple(Effect(name=n, value=config.get(n), estimate=_negated(changes[n])) for n in sorted(changes))


def _negated(value: Estimate) -> Estimate:
    return Estimate(gain=-value.gain, se=value.se, low=-value.high, high=-value.low, n=value.n, level=value.level)


def _as_measured(run: Run, benches: Benches, config: Config, seconds: float) -> Measured | None:
    plan = Plan(stage="minimise", seconds=seconds, half_width=run.margin / 4, futile=False, proof=True)
    for trial in evaluate(run, benches, [config], plan):
        if trial.estimate is not None:
            return Measured(
                config=config,
                estimate=trial.estimate,
                fingerprint=trial.fingerprint,
                trial=trial.number,
                label=trial.label,
            )
    return None


def _plausible(loss: Estimate, allowed: float) -> bool:
    """Where this noise can't prove that little is lost, nor that more is. So a setting stays only where it is shown to
    matter; the full winner is confirmed beside what is left, and wins there if it is shown to be better."""
    return loss.high >= -allowed


def _runner_up(winner: Measured, reduced: Config, best: Sequence[Measured], *, resolved: bool) -> Measured | None:
    """The second finalist: the full winner if it could not be told from the reduced one at this noise, else the next
    best program whose interval reaches the winner's estimate."""
    if not resolved and reduced != winner.config:
        return winner  # confirm picks the shorter one unless the full one is better by the margin
    for other in best:
        if other.fingerprint != winner.fingerprint and not other.config.names >= reduced.names:
            return other if other.estimate.high >= winner.estimate.gain else None
    return None


def _percent(change: Estimate) -> str:
    low, mid, high = (100 * math.expm1(x) for x in (change.low, change.gain, change.high))
    return f"{mid:+.2f} % ({low:+.2f} to {high:+.2f})"
