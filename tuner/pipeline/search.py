"""Stage 5, search: combinations of what the screen left, additive ones first, then what Optuna suggests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from tuner.knobs import DEFAULT, Config, Knob, forbidden, split
from tuner.pipeline.benches import Benches
from tuner.pipeline.combine import best_flips, combinations, compatible, completed, joined, main_effect
from tuner.pipeline.context import Run
from tuner.pipeline.evaluate import Plan, evaluate, measured
from tuner.store.events import StageFinished, TrialFinished
from tuner.store.records import SearchRecord

__all__ = ["run_search"]

_BATCH = 8
# A space of at most so many configs is enumerated.
_SMALL = 32
# Batches without a better candidate, after which the search ends.
_PATIENCE = 3
_KEEP = 5


def run_search(run: Run, benches: Benches) -> SearchRecord:
    """Search the live space until its share of the budget is used, the trials are, or nothing better turns up."""
    knobs = run.live
    before = len(run.trials)
    size = math.prod(len(k.values) for k in knobs.values())
    enumerated = size <= _SMALL
    if not run.budget.skips("search") and knobs:
        batches = _enumerate(run, knobs) if enumerated else _suggest(run, knobs)
        _search(run, benches, batches)
    trials = [t for t in run.trials.values() if t.estimate is not None]
    best = tuple(measured(run, trials)[:_KEEP])
    return SearchRecord(best=best, trials=len(run.trials) - before, enumerated=enumerated)


def _search(run: Run, benches: Benches, batches: Iterator[list[Config]]) -> None:
    share = run.budget.share_s("search")
    began, pace_s = run.budget.now(), _screened_pace_s(run)
    asked, stale, best = 0, 0, _best_gain(run)
    waiting: list[Config] = []
    while True:
        waiting = waiting or next(batches, [])
        left = share - (run.budget.now() - began)
        # The likeliest come first. No batch is so large that it would take the confirmation's time.
        size = max(1, int(run.budget.left_s / pace_s)) if pace_s else len(waiting)
        if run.options.trials is not None:
            size = min(size, run.options.trials - asked)
        batch, waiting = waiting[:size], waiting[size:]
        if left <= 0 or stale >= _PATIENCE or not batch:
            break
        plan = Plan(stage="search", seconds=left / 2, half_width=run.margin / 2)
        evaluate(run, benches, batch, plan)
        asked += len(batch)
        gain = _best_gain(run)
        # A part of a batch, however small, is no proof that the batch has nothing.
        stale = 0 if gain > best + run.margin / 2 else stale + (not waiting)
        best = max(best, gain)


def _screened_pace_s(run: Run) -> float:
    """What a flip took in the screen, compiling and checking included; 0 if none was tried."""
    screened = next(e for e in run.events if isinstance(e, StageFinished) and e.stage == "screen")
    tried = sum(isinstance(e, TrialFinished) and e.stage == "screen" for e in run.events)
    return screened.seconds / tried if tried else 0.0


def _best_gain(run: Run) -> float:
    return max((t.estimate.gain for t in run.trials.values() if t.estimate is not None), default=0.0)


def _enumerate(run: Run, knobs: Mapping[str, Knob]) -> Iterator[list[Config]]:
    """Every combination, grouped by session, the likeliest first."""
    names = list(knobs)
    everything = [
        completed(Config.of(dict(zip(names, values, strict=True))), knobs, run.held)
        for values in itertools.product(*(knobs[n].values for n in names))
    ]
    fresh = [c for c in everything if c not in run.trials and forbidden(run.held.join(c), run.space) is None]
    fresh.sort(key=lambda c: (-_additive(run, split(c, run.space)[0]), split(c, run.space)[0], -_additive(run, c)))
    for _, group in itertools.groupby(fresh, key=lambda c: split(c, run.space)[0]):
        members = list(group)
        for start in range(0, len(members), 2 * _BATCH):
            yield members[start : start + 2 * _BATCH]


def _suggest(run: Run, knobs: Mapping[str, Knob]) -> Iterator[list[Config]]:
    """The additive combinations of the positive flips, then TPE, a batch a session."""
    additive = _additive_combinations(run, knobs)
    if additive:
        yield additive
    from tuner.pipeline.sampler import Sampler  # imports Optuna, which a space that is enumerated does without

    sampler = Sampler(knobs, seed=run.options.seed, held=run.held)
    told: set[Config] = set()
    environments = itertools.cycle(_environments(run))
    while True:
        fresh = [t for c, t in run.trials.items() if c not in told]
        for trial in fresh:
            sampler.tell(trial)
            told.add(trial.config)
        batch = sampler.ask(_BATCH, environment=next(environments), avoid=run.trials)
        if not batch:
            return
        yield batch


def _additive(run: Run, config: Config) -> float:
    """The gain that the main effects promise for `config`, were they to add up."""
    return sum(main_effect(run, run.live[n], v) for n, v in config.settings if n in run.live)


def _additive_combinations(run: Run, knobs: Mapping[str, Knob]) -> list[Config]:
    """Combinations of all positive flips. What takes a session of its own is among them if it promises enough for
    one."""
    least = {n: _session_gain(run) if k.lane == "environment" else 0.0 for n, k in knobs.items()}
    found = combinations(best_flips(run, knobs, least))
    return [c for c in found if c not in run.trials][: 2 * _BATCH]


def _session_gain(run: Run) -> float:
    """The gain that a setting must promise for a session of its own; less is noise as a rule."""
    return run.margin / 2


def _environments(run: Run) -> list[Config]:
    """The environment-lane settings worth a session: none, each that gains alone, and the best of them together."""
    knobs = {n: k for n, k in run.live.items() if k.lane == "environment"}
    alone = best_flips(run, knobs, dict.fromkeys(knobs, _session_gain(run)))
    gains = {c: _additive(run, c) for c in (DEFAULT, *alone, joined(compatible(alone)))}
    return sorted(gains, key=lambda c: -gains[c])[:4]
