"""Random search and plain TPE on what a run measured: how many trials, and seconds, to within 1 % of the best?

    python tests/benchmarks/replay_search.py run.events.jsonl.gz [more…] --seeds 50 --out replayed.json

Each config that a log has a gain for is a candidate; a strategy draws candidates without replacement and sees their
measured gains. TPE's suggestions go to the nearest candidate left (fewest settings apart). The tuner's own order is
the log's. Within a run all strategies see the same numbers, so only the order differs; a trial is taken to last as long
as the run's trials did on average, which gives plain strategies the tuner's pace for nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import optuna

from tuner.api import load_run
from tuner.knobs import UNSET, Config
from tuner.store.events import TrialFinished

NEAR = 0.01


def candidates(events: Sequence[object]) -> tuple[dict[Config, float], float]:
    """Gains by config in the order measured, and seconds a trial."""
    found = [e for e in events if isinstance(e, TrialFinished) and e.estimate is not None and e.stage != "baseline"]
    gains = {e.config: e.estimate.gain for e in found if e.estimate is not None}
    return gains, (found[-1].time - found[0].time) / max(1, len(found) - 1)


def at_random(gains: Mapping[Config, float], seed: int) -> list[float]:
    order = list(gains)
    random.Random(seed).shuffle(order)
    return [gains[config] for config in order]


def plain_tpe(gains: Mapping[Config, float], seed: int) -> list[float]:
    values = {n: sorted({UNSET, *(c.get(n) for c in gains)}) for config in gains for n in config.names}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    left, seen = dict(gains), []
    while left:
        trial = study.ask()
        wanted = {name: trial.suggest_categorical(name, choices) for name, choices in values.items()}
        nearest = min(left, key=lambda c: sum(c.get(n) != v for n, v in wanted.items()))
        seen.append(left.pop(nearest))
        study.tell(trial, -seen[-1])
    return seen


def trials_to(seen: Sequence[float], target: float) -> int:
    return next(index for index, gain in enumerate(seen, start=1) if gain >= target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    strategies: dict[str, Callable[[Mapping[Config, float], int], list[float]]] = {
        "random": at_random,
        "TPE": plain_tpe,
    }
    results = {}
    for log in options.logs:
        gains, seconds = candidates(load_run(log).events)
        target = max(gains.values()) - NEAR
        counts = {
            name: [trials_to(draw(gains, seed), target) for seed in range(options.seeds)]
            for name, draw in strategies.items()
        }
        counts["tuner"] = [trials_to(list(gains.values()), target)]
        results[log.name] = {"candidates": len(gains), "seconds_a_trial": seconds, "trials": counts}
        print(f"{log.name}: {len(gains)} candidates, {sum(g >= target for g in gains.values())} within 1 % of the best")
        for name, found in counts.items():
            middle = statistics.median(found)
            print(f"  {name}: {middle:g} trials ({min(found)}–{max(found)}), {middle * seconds:.0f} s")
    if options.out:
        options.out.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
