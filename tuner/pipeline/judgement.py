"""What the pairs of fresh processes say in the end: verdicts, what is chosen, how noisy it was, and how steady."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median, stdev

from tuner.knobs import DEFAULT, Config
from tuner.measure import (
    ConfirmState,
    Estimate,
    Instability,
    Levels,
    Pair,
    Verdict,
    confirm,
    instability,
    noise_levels,
    resolution,
    tie_break,
    upheld,
)
from tuner.measure import estimate as within
from tuner.pipeline.context import Run
from tuner.protocol.failure import Failure
from tuner.store.events import PairTimed
from tuner.store.records import BaselineRecord, ConfirmRecord, Draws, Finalist

__all__ = ["Pairs", "gains_of", "judged", "levels_of"]

Pairs = Mapping[Config, Sequence[PairTimed]]
"""The pairs that count, of each finalist, in order."""


def gains_of(pairs: Pairs, failures: Mapping[Config, Failure]) -> dict[str, list[float]]:
    """Gains by finalist, without those that failed: what `confirm` takes."""
    return {c.key: [-p.log_ratio for p in row] for c, row in pairs.items() if c not in failures}


def levels_of(pairs: Pairs) -> Levels | None:
    """The noise within and between these pairs; None for too few of them."""
    rows = [
        [Pair(log_ratio=p.log_ratio, spread=p.spread, turns=p.turns) for p in row if p.turns] for row in pairs.values()
    ]
    return noise_levels(rows)


def judged(
    run: Run,
    pairs: Pairs,
    *,
    failures: Mapping[Config, Failure],
    looks: tuple[int, ...],
    together: bool,
    redone: int,
) -> ConfirmRecord:
    """The record of a confirmation whose pairs are these."""
    baseline = run.record("baseline", BaselineRecord)
    state = confirm(gains_of(pairs, failures), margin=run.margin, looks=looks)
    longest = max(pairs.values(), key=len, default=())
    unstable = _instability(longest, baseline)
    finalists = tuple(
        _finalist(run, c, row, state, failure=failures.get(c), unstable=unstable)
        for c, row in pairs.items()
        if row or c in failures
    )
    best = _best(run, finalists, looks)
    shown = best or (finalists[0] if finalists else None)
    noise = levels_of(pairs)
    if unstable and best:
        run.notice(f"this machine is unstable: {unstable.seen}. The gain is larger than that explains")
    return ConfirmRecord(
        finalists=finalists,
        chosen=best.config if best else DEFAULT,
        verdict=Verdict.FASTER if best else _without_gain(run, finalists),
        estimate=shown.estimate if shown else None,
        control_ms=shown.control_ms if shown else baseline.control_ms,
        best_ms=best.best_ms if best else shown.control_ms if shown else baseline.control_ms,
        pairs=len(longest),
        alive_together=together,
        noise=noise,
        turns=round(median(p.turns for p in longest)) if longest else 0,
        resolution=_resolved(noise, len(longest), looks, finalists=len(pairs)),
        draws=_draws(pairs, longest),
        unstable=unstable.seen if unstable else "",
        redone=redone,
        disturbed=sum(bool(p.disturbed) for p in longest),
        objective=run.objective,
    )


def _finalist(
    run: Run,
    config: Config,
    pairs: Sequence[PairTimed],
    state: ConfirmState,
    *,
    failure: Failure | None,
    unstable: Instability | None,
) -> Finalist:
    unknown = Estimate(gain=0.0, se=math.inf, low=-math.inf, high=math.inf, n=len(pairs))
    estimate = state.estimates.get(config.key) or unknown
    verdict = Verdict.UNCLEAR
    if failure is None:
        verdict = upheld(state.verdicts.get(config.key, Verdict.UNCLEAR), estimate, unstable)
    return Finalist(
        config=config,
        estimate=estimate,
        verdict=verdict,
        log_ratios=tuple(p.log_ratio for p in pairs),
        best_ms=median(p.finalist_ms for p in pairs) if pairs else math.nan,
        control_ms=median(p.control_ms for p in pairs) if pairs else math.nan,
        failure=failure,
        # Pairs are independent; six of them at least, so that there is an interval.
        steps={
            name: within([-p.steps[name] for p in pairs], autocorrelation=0.0)
            for name in run.objective.weights
            if pairs
        },
    )


def _best(run: Run, finalists: Sequence[Finalist], looks: tuple[int, ...]) -> Finalist | None:
    """Of those that are faster. A rival displaces a config that is to be preferred only if the same pairs show that it
    is faster."""
    good = [f for f in finalists if f.verdict is Verdict.FASTER]
    good.sort(key=lambda f: (*tie_break(len(f.config), run.peaks.get(f.config)), -f.estimate.gain))
    best = good[0] if good else None
    for rival in good[1:]:
        if best is not None and _faster_than(run, rival, best, looks):
            best = rival
    return best


def _faster_than(run: Run, rival: Finalist, best: Finalist, looks: tuple[int, ...]) -> bool:
    """Two finalists that lived in the same pairs: the default between them cancels."""
    gains = [b - r for r, b in zip(rival.log_ratios, best.log_ratios, strict=False)]
    state = confirm({"rival": gains}, margin=run.margin, looks=looks)
    return state.verdicts["rival"] is Verdict.FASTER


def _without_gain(run: Run, finalists: Sequence[Finalist]) -> Verdict:
    """None is faster. `unstable` where only the machine keeps a finalist from a verdict. `same` where that is certain:
    no finalist's interval reaches a gain of δ."""
    if any(f.verdict is Verdict.UNSTABLE for f in finalists):
        return Verdict.UNSTABLE
    excluded = [f.failure is None and f.estimate.high < run.margin for f in finalists]
    return Verdict.SAME if excluded and all(excluded) else Verdict.UNCLEAR


def _instability(pairs: Sequence[PairTimed], baseline: BaselineRecord) -> Instability | None:
    return instability(
        [p.control_ms for p in pairs],
        spread=baseline.level_noise,
        disturbed=[p.disturbed for p in pairs if p.disturbed],
        settled=baseline.settled,
    )


def _resolved(noise: Levels | None, pairs: int, looks: tuple[int, ...], *, finalists: int) -> float | None:
    """The smallest gain that these pairs resolve, by the spread that they had; None before the first look."""
    if noise is None or pairs < looks[0]:
        return None
    return resolution(0.0, noise.pair, rounds=1, pairs=pairs, looks=looks, finalists=finalists)


def _draws(pairs: Pairs, longest: Sequence[PairTimed]) -> tuple[Draws, ...]:
    """The default's compiles and each finalist's: every process compiled afresh."""
    rows = [(DEFAULT, [(p.control_ms, p.control_fingerprint) for p in longest])]
    rows += [(c, [(p.finalist_ms, p.fingerprint) for p in row]) for c, row in pairs.items()]
    return tuple(
        Draws(
            config=config,
            ms=tuple(ms for ms, _ in row),
            programs=len({code for _, code in row if code}),
            spread=stdev(math.log(ms) for ms, _ in row) if len(row) > 1 else 0.0,
        )
        for config, row in rows
        if row
    )
