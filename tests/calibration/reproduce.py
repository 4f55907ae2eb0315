"""Reproduction: is the gain that a run prints what an independent script finds later, in fresh processes?

    python tests/calibration/reproduce.py --stored tests/benchmarks/results/h100
    python tests/calibration/reproduce.py workloads/nbody.py workloads/mlp.py --runs 10 --out reproduced.json

The first reads pairs of NAME.events.jsonl.gz and NAME.remeasured.json; the second makes them, on this machine: whole
runs with a budget each, and `tests/benchmarks/remeasure.py` on what each emitted. A run that emitted the default has
nothing to reproduce: it is counted, no more. Runs that are in `--out` already are not repeated.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from scipy.special import stdtrit
from studies import Share, agree, share

from tuner.measure import Estimate, Verdict, estimate
from tuner.pipeline.options import RunOptions
from tuner.pipeline.run import tune
from tuner.store.events import AnyEvent, StageFinished
from tuner.store.lines import decode
from tuner.store.records import ConfirmRecord

__all__ = ["Reproduction", "Reproductions", "judged", "prediction", "reproduction", "stored", "together"]

_JAX = importlib.metadata.version("jax")
_REMEASURE = Path(__file__).parents[1] / "benchmarks" / "remeasure.py"

# Rounds from which their own spread is told.
_MANY = 4

SpeedUp = tuple[float, float, float]
"""A ratio, and the interval's ends."""


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Where it emitted settings: the printed and the later speed-up, their distance `gap` in points of per
    cent, and `predicted`: they differ by no more than both intervals together allow. `pairs`, `rounds`: the raw ratios
    (default over config) behind the two, one a pair and one a round of fresh processes. `expected`: where the run's
    pairs put the mean of the rounds (see `prediction`), and `inside`: there it lies. `load_1m`: the machine's load when
    a run that was made here began.

    Of two or three rounds the interval is wide, and `predicted` says little; `inside` is the sharper question then.
    """

    name: str
    jax: str
    device: str
    verdict: str
    settings: dict[str, str] = {}
    printed: SpeedUp | None = None
    later: SpeedUp | None = None
    gap: float | None = None
    predicted: bool = False
    pairs: tuple[float, ...] = ()
    rounds: tuple[float, ...] = ()
    expected: tuple[float, float] | None = None
    inside: bool = False
    load_1m: float = 0.0


class Reproductions(msgspec.Struct, frozen=True, kw_only=True):
    """All runs. `median_gap`, `predicted`, `inside`: of those that emitted settings."""

    machine: str
    cores: int
    budget_s: float
    rows: list[Reproduction]
    median_gap: float | None
    predicted: Share
    inside: Share


def reproduction(name: str, events: Sequence[AnyEvent], remeasured: dict[str, Any]) -> Reproduction:
    """A run's log, and what `remeasure.py` found for the one env-file that it emitted: there a round of fresh processes
    is one unit."""
    confirmed = _confirmed(events)
    told = Reproduction(name=name, jax=remeasured["jax"], device=remeasured["device"], verdict=confirmed.verdict.value)
    if confirmed.verdict is not Verdict.FASTER or confirmed.estimate is None:
        return told
    (ratios,) = remeasured["speedups"].values()
    later = estimate([math.log(ratio) for ratio in ratios], autocorrelation=0.0)
    (chosen,) = (f for f in confirmed.finalists if f.config == confirmed.chosen)
    found = msgspec.structs.replace(
        told,
        pairs=tuple(_ratio(-x) for x in chosen.log_ratios),
        rounds=tuple(round(x, 5) for x in ratios),
        settings=confirmed.chosen.as_dict(),
        printed=_speedup(confirmed.estimate),
        later=_speedup(later),
        gap=round(100 * abs(confirmed.estimate.speedup - later.speedup), 3),
        predicted=agree(confirmed.estimate, later),
    )
    return judged(found)


def judged(row: Reproduction) -> Reproduction:
    """`row` with what its raw ratios say of `expected` and `inside`."""
    if not row.pairs:
        return row
    pairs, rounds = ([math.log(ratio) for ratio in ratios] for ratios in (row.pairs, row.rounds))
    low, high = prediction(pairs, rounds)
    inside = low <= statistics.fmean(rounds) <= high
    return msgspec.structs.replace(row, expected=(_ratio(low), _ratio(high)), inside=inside)


def _confirmed(events: Sequence[AnyEvent]) -> ConfirmRecord:
    return next(e.record for e in events if isinstance(e, StageFinished) and isinstance(e.record, ConfirmRecord))


def prediction(pairs: Sequence[float], rounds: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """Where the mean of the `rounds` (log ratios) lies with chance `level`, by that of the `pairs`: ± t·√(s²/n + r²/m)
    (Hahn & Meeker, Statistical Intervals, section 4.7).

    The rounds' spread r is the pairs' s, with n − 1 degrees of freedom. A round's processes run one at a time: what
    lasts for seconds, which a pair's alternation cancels, is in its ratio. So where there are four rounds or more and
    they spread more than pairs, r is their own, with Welch's degrees of freedom.
    """
    n, m = len(pairs), len(rounds)
    spread = own = statistics.variance(pairs)
    if m >= _MANY:
        own = max(spread, statistics.variance(rounds))
    a, b = spread / n, own / m
    degrees = n - 1.0 if own == spread else (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    reach = float(stdtrit(degrees, (1 + level) / 2)) * math.sqrt(a + b)
    middle = statistics.fmean(pairs)
    return middle - reach, middle + reach


def _speedup(found: Estimate) -> SpeedUp:
    return _ratio(found.gain), _ratio(found.low), _ratio(found.high)


def _ratio(log_ratio: float) -> float:
    return round(math.exp(log_ratio), 5)


def together(rows: Sequence[Reproduction], budget_s: float) -> Reproductions:
    gaps = [row.gap for row in rows if row.gap is not None]
    return Reproductions(
        machine=platform.platform(terse=True),
        cores=os.cpu_count() or 1,
        budget_s=budget_s,
        rows=list(rows),
        median_gap=round(statistics.median(gaps), 3) if gaps else None,
        predicted=share(row.predicted for row in rows if row.gap is not None),
        inside=share(row.inside for row in rows if row.gap is not None),
    )


def stored(folder: Path) -> Iterator[Reproduction]:
    """Of every event log in `folder` beside which its env-file was re-measured."""
    for log in sorted(folder.glob("*.events.jsonl.gz")):
        name = log.name.removesuffix(".events.jsonl.gz")
        path = folder / f"{name}.remeasured.json"
        if path.exists():
            events = [decode(line) for line in gzip.decompress(log.read_bytes()).splitlines()]
            yield reproduction(name, events, json.loads(path.read_bytes()))


def made(workload: Path, number: int, budget_s: float) -> Reproduction:
    """One real run in a store of its own, and its re-measurement; what emitted the default is not measured again."""
    with tempfile.TemporaryDirectory(prefix="reproduce-") as name:
        store, out = Path(name) / "store", Path(name) / "remeasured.json"
        options = RunOptions(
            workload=workload, store=str(store), budget_s=budget_s, command=("tune", workload.name), seed=number
        )
        load = os.getloadavg()[0]
        outcome = tune(options)
        none = {"jax": _JAX, "device": "", "speedups": {}}
        if _confirmed(outcome.events).verdict is not Verdict.FASTER:
            return msgspec.structs.replace(reproduction(workload.stem, outcome.events, none), load_1m=load)
        command = [sys.executable, _REMEASURE, workload, "--env", outcome.files["env"], "--seconds", 1.5, "--out", out]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        found = reproduction(workload.stem, outcome.events, json.loads(out.read_bytes()))
        return msgspec.structs.replace(found, load_1m=load)


def line(row: Reproduction) -> str:
    if row.printed is None or row.later is None:
        return f"{row.name}: {row.verdict}"
    texts = ("{:.4f}x ({:.4f} to {:.4f})".format(*x) for x in (row.printed, row.later))
    told = "printed {}, later {}".format(*texts)
    told += f" in {len(row.rounds)} rounds, {row.gap} points apart"
    if row.expected is not None:
        told += ", expected {:.4f} to {:.4f}".format(*row.expected)
    return f"{row.name}: {told}{'' if row.predicted and row.inside else ': NOT AS PREDICTED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", type=Path, nargs="*")
    parser.add_argument("--stored", type=Path, metavar="FOLDER", help="read what was measured already")
    parser.add_argument("--runs", type=int, default=10, help="runs of each workload")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each run")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = list(stored(options.stored)) if options.stored else []
    if options.workloads and options.out and options.out.exists():
        rows = msgspec.json.decode(options.out.read_bytes(), type=Reproductions).rows
        rows = [judged(row) for row in rows]
    for row in rows:
        print(line(row))
    for number in range(options.runs if options.workloads else 0):
        for workload in options.workloads:
            if sum(row.name == workload.stem for row in rows) > number:
                continue
            rows.append(made(workload.resolve(), number, options.budget))
            print(line(rows[-1]), flush=True)
            _keep(rows, options)
    _keep(rows, options)
    found = together(rows, options.budget)
    print(
        f"median gap {found.median_gap} points; a later measurement agrees {found.predicted}, "
        f"lies where the run's pairs put it {found.inside}"
    )


def _keep(rows: Sequence[Reproduction], options: argparse.Namespace) -> None:
    if options.out and rows:
        text = msgspec.json.format(msgspec.json.encode(together(rows, options.budget)), indent=1)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
