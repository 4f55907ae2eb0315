"""Stage 5, search: combinations of what the screen left, additive ones first, then what Optuna suggests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from tuner.knobs import DEFAULT, UNSET, Config, Knob, split
from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.evaluate import Plan, evaluate, measured
from tuner.store.events import TrialFinished
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
    began = run.budget.now()
    asked, stale, best = 0, 0, _best_gain(run)
    for batch in batches:
        left = share - (run.budget.now() - began)
        if run.options.trials is not None:
            batch = batch[: run.options.trials - asked]
        if left <= 0 or stale >= _PATIENCE or not batch:
            break
        plan = Plan(stage="search", seconds=left / 2, half_width=run.margin / 2)
        evaluate(run, benches, batch, plan)
        asked += len(batch)
        gain = _best_gain(run)
        stale = 0 if gain > best + run.margin / 2 else stale + 1
        best = max(best, gain)


def _best_gain(run: Run) -> float:
    return max((t.estimate.gain for t in run.trials.values() if t.estimate is not None), default=0.0)


def _enumerate(run: Run, knobs: Mapping[str, Knob]) -> Iterator[list[Config]]:
    """Every combination, grouped by session, the likeliest first."""
    names = list(knobs)
    everything = [
        Config.of(dict(zip(names, values, strict=True)))
        for values in itertools.product(*(knobs[n].values for n in names))
    ]
    fresh = [c for c in everything if c not in run.trials]
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

    sampler = Sampler(knobs, seed=run.options.seed)
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


def _flip(run: Run, name: str, value: str) -> TrialFinished | None:
    return run.trials.get(Config.of({**run.live[name].requires, name: value}))


def _gain(run: Run, name: str, value: str) -> float:
    """The main effect of one setting, 0 where it is not known."""
    trial = _flip(run, name, value) if value != UNSET else None
    return trial.estimate.gain if trial is not None and trial.estimate is not None else 0.0


def _additive(run: Run, config: Config) -> float:
    """The gain that the main effects promise for `config`, were they to add up."""
    return sum(_gain(run, n, v) for n, v in config.settings if n in run.live)


def _additive_combinations(run: Run, knobs: Mapping[str, Knob]) -> list[Config]:
    """All positive flips together, the best few of them, and that set without each of its members. What takes a session
    of its own is among them if it promises enough for one."""
    best = {n: max((v for v in k.values if v != UNSET), key=lambda v, n=n: _gain(run, n, v)) for n, k in knobs.items()}  # type: ignore[misc]
    least = {n: _session_gain(run) if k.lane == "environment" else 0.0 for n, k in knobs.items()}
    positive = sorted((n for n in best if _gain(run, n, best[n]) > least[n]), key=lambda n: -_gain(run, n, best[n]))
    full = Config.of({n: best[n] for n in positive})
    found = [Config.of({n: best[n] for n in positive[:size]}) for size in range(2, len(positive) + 1)]
    found += [full.drop(n) for n in positive]
    return [c for c in dict.fromkeys(found) if len(c) > 1 and c not in run.trials][: 2 * _BATCH]


def _session_gain(run: Run) -> float:
    """The gain that a setting must promise for a session of its own; less is noise as a rule."""
    return run.margin / 2


def _environments(run: Run) -> list[Config]:
    """The environment-lane settings worth a session: none, each that gains alone, and the best of them together."""
    gains: dict[Config, float] = {DEFAULT: 0.0}
    together = DEFAULT
    for name, knob in run.live.items():
        if knob.lane != "environment":
            continue
        best = max((v for v in knob.values if v != UNSET), key=lambda v, n=name: _gain(run, n, v))  # type: ignore[misc]
        gain = _gain(run, name, best)
        if gain > _session_gain(run):
            gains[Config.of({name: best})] = gain
            together = together.set(name, best)
    gains[together] = _additive(run, together)
    return sorted(gains, key=lambda c: -gains[c])[:4]
