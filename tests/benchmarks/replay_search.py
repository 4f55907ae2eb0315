"""Would random search or plain TPE have found it sooner, on a machine where settings do what a run measured?

    python tests/benchmarks/replay_search.py run.events.jsonl.gz [more…] --seeds 20 --out replayed.json

From a log come the knobs whose values it tried alone; what each value does to the step's time (nothing where its
interval holds 0); which values leave the program as it is, fail, or give wrong results; how much a round varies; and
what a step, a compile and a process's start take. On a made-up machine like that, where effects add up, the tuner runs
as it is shipped, within the run's own budget. Random search and TPE (Optuna's default sampler, the defaults first)
choose from the same values, a process a trial: its start, its compile, 33 steps. What fails or is wrong is no result
for them: a check that they don't pay for.

Told by seed: after how many trials and seconds the best so far, as the strategy itself had timed it, was in truth
within 1 % of the best that there is; null where that never came, for the loops within ten times the budget. A log whose
best is no more than that tells nothing and is passed over. How well effects add up is told by the log's configs of
several settings: their gains against the sums.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import optuna
from warm_start import Moments

from tuner.api import load_run
from tuner.knobs import DEFAULT, UNSET, Config, Knob
from tuner.machine import Host
from tuner.measure import ASSUMED_PROCESS_SD
from tuner.pipeline.options import RunOptions
from tuner.pipeline.run import tune
from tuner.protocol.failure import FailureClass
from tuner.session import FakeMachine
from tuner.session.noise import NoiseModel
from tuner.store.events import AnyEvent, RunStarted, StageFinished, TrialFinished
from tuner.store.records import BaselineRecord, ProbeRecord

NEAR = 0.01
_STEPS = 33  # of a trial by hand: three to warm up, thirty that are timed
_PATIENCE = 10  # budgets until a strategy that has not found it is given up
Found = tuple[int, float] | None
"""The trial and the second at which it was there."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What a log tells. `effects`: log time by setting; `refused`: settings that fail or give wrong results."""

    knobs: tuple[Knob, ...]
    effects: dict[tuple[str, str], float]
    inert: tuple[tuple[str, str], ...]
    refused: dict[tuple[str, str], FailureClass]
    together: list[tuple[float, float]]
    step_s: float
    start_s: float
    compile_s: float
    noise: NoiseModel
    cores: int
    budget_s: float

    @classmethod
    def of(cls, events: Sequence[AnyEvent]) -> Replayed:
        """Raises StopIteration if the log has no baseline."""
        records = [e.record for e in events if isinstance(e, StageFinished)]
        probe = next(r for r in records if isinstance(r, ProbeRecord))
        base = next(r for r in records if isinstance(r, BaselineRecord))
        trials = {e.config: e for e in events if isinstance(e, TrialFinished)}
        knobs, effects, refused, inert = [], {}, {}, []
        for knob in probe.knobs:
            tried = {v: trials.get(Config.of({**knob.requires, knob.name: v})) for v in knob.values if v != UNSET}
            for value, trial in tried.items():
                setting = (knob.name, value)
                if trial is None:
                    continue
                if trial.failure is not None:
                    refused[setting] = trial.failure.kind
                elif trial.fingerprint == trials[DEFAULT].fingerprint:
                    inert.append(setting)
                elif trial.estimate is not None and not trial.estimate.low <= 0 <= trial.estimate.high:
                    effects[setting] = -trial.estimate.gain - sum(effects.get(s, 0.0) for s in knob.requires.items())
            if any(tried.values()):
                values = (UNSET, *(v for v, trial in tried.items() if trial is not None))
                knobs.append(msgspec.structs.replace(knob, values=values, when=type(knob.when)(), scale=()))
        step_s = base.step_ms / 1e3
        started = next(e for e in events if isinstance(e, RunStarted))
        return cls(
            knobs=tuple(knobs),
            effects=effects,
            inert=tuple(inert),
            refused=refused,
            together=[
                (t.estimate.gain, -sum(effects.get(s, 0.0) for s in config.settings))
                for config, t in trials.items()
                if t.stage == "search" and t.estimate is not None and len(config.settings) > 1
            ],
            step_s=step_s,
            start_s=base.start_s,
            compile_s=base.compile_s,
            noise=NoiseModel(
                block_sd=base.noise / math.sqrt(2),
                block_s=base.steps_per_block * step_s,
                process_sd=ASSUMED_PROCESS_SD,
            ),
            cores=int(float(started.identity["cores"])),
            budget_s=float(started.options["budget_s"]),
        )

    @property
    def best(self) -> float:
        """The largest gain that there is."""
        return sum(max(0.0, *(-self.effects.get((k.name, v), 0.0) for v in k.values)) for k in self.knobs)

    def gain(self, config: Config) -> float | None:
        """In truth; None if it is no result."""
        if any(setting in self.refused for setting in config.settings):
            return None
        return -sum(self.effects.get(setting, 0.0) for setting in config.settings)

    def near(self, config: Config) -> bool:
        gain = self.gain(config)
        return gain is not None and gain >= self.best - NEAR


def by_hand(replayed: Replayed, seed: int, configs: Callable[[Replayed, int], Iterator[Any]]) -> Found:
    """A loop of a process a trial. `configs` yields them, and is sent the log time of each, None without a result."""
    rng = random.Random(seed)
    trial_s = replayed.start_s + replayed.compile_s + _STEPS * replayed.step_s
    spread = math.hypot(
        replayed.noise.process_sd,
        replayed.noise.block_sd * math.sqrt(replayed.noise.block_s / (_STEPS * replayed.step_s)),
    )
    best, drawing = -math.inf, configs(replayed, seed)
    config = next(drawing)
    for number in range(1, int(_PATIENCE * replayed.budget_s / trial_s) + 1):
        gain = replayed.gain(config)
        seen = None if gain is None else gain + rng.gauss(0.0, spread)
        if seen is not None and seen > best:
            best = seen
            if replayed.near(config):
                return number, number * trial_s
        config = drawing.send(None if seen is None else -seen)
    return None


def at_random(replayed: Replayed, seed: int) -> Iterator[Config]:
    rng = random.Random(seed)
    yield DEFAULT
    while True:
        yield Config.of({k.name: rng.choice(k.values) for k in replayed.knobs})


def plain_tpe(replayed: Replayed, seed: int) -> Iterator[Config]:
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial({k.name: UNSET for k in replayed.knobs})
    while True:
        trial = study.ask()
        seen = yield Config.of({k.name: trial.suggest_categorical(k.name, k.values) for k in replayed.knobs})
        study.tell(trial, seen, state=None if seen is not None else optuna.trial.TrialState.FAIL)


def tuned(replayed: Replayed, seed: int) -> Found:
    """The tuner as it is."""
    wrong = {s: 1.0 for s, kind in replayed.refused.items() if kind is FailureClass.WRONG_RESULT}
    machine = FakeMachine(
        step_ms=1e3 * replayed.step_s,
        effects=dict(replayed.effects),
        failures={s: kind for s, kind in replayed.refused.items() if s not in wrong},
        wrong=wrong,
        truth=None,
        inert=replayed.inert,
        noise=replayed.noise,
        start_s=replayed.start_s,
        starts_beside=4,
        compile_s=replayed.compile_s,
        platform="gpu",
        seed=seed,
    )
    moments = Moments(machine)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "workload.py").write_text("def build():\n    raise RuntimeError('made up')\n")
        (folder / "replayed.toml").write_text("version = 1\n" + "".join(map(_entry, replayed.knobs)))
        options = RunOptions(
            workload=folder / "workload.py",
            spaces=(str(folder / "replayed.toml"),),
            platform="gpu",
            store=str(folder / "store"),
            budget_s=replayed.budget_s,
            command=("tune", "workload.py"),
            seed=seed,
        )
        host = Host(cpu="made up", cores=replayed.cores, memory_bytes=1 << 36, kernel="made up")
        own = mock.patch("tempfile.tempdir", name)  # a lock of its own: several may be at it
        with mock.patch("tuner.pipeline.opening.read_host", return_value=host), own:
            events = tune(options, listener=moments, factory=machine.factory, clock=machine.now).events
    best, number = -math.inf, 0
    for event, at in zip(events, moments.at, strict=True):
        if not isinstance(event, TrialFinished):
            continue
        number += 1
        if event.estimate is not None and event.estimate.gain > best:
            best = event.estimate.gain
            if replayed.near(event.config):
                return number, at - moments.at[0]
    return None


def _entry(knob: Knob) -> str:
    """The knob as TOML, whose strings, lists and numbers are JSON's."""
    told = {
        name: value for name, value in msgspec.to_builtins(knob).items() if name not in ("when", "requires", "scale")
    }
    requires = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in knob.requires.items())
    lines = [f"{name} = {json.dumps(value)}" for name, value in told.items()]
    return "\n".join(["[[knob]]", *lines, f"requires = {{ {requires} }}", "", ""])


def summary(found: Sequence[Found]) -> str:
    """Medians, what was never found counting as later than all."""
    trials, seconds = (statistics.median(math.inf if f is None else f[i] for f in found) for i in range(2))
    return f"trial {trials:g}, {seconds:.0f} s; never in {sum(f is None for f in found)} of {len(found)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    strategies: Mapping[str, Callable[[Replayed, int], Found]] = {
        "random": lambda replayed, seed: by_hand(replayed, seed, at_random),
        "TPE": lambda replayed, seed: by_hand(replayed, seed, plain_tpe),
        "tuner": tuned,
    }
    results = {}
    for log in options.logs:
        replayed = Replayed.of(load_run(log).events)
        if replayed.best <= NEAR:
            print(
                f"{log.name}: the best is {replayed.best:+.2%}, so the defaults are within 1 % of it: nothing to find"
            )
            continue
        found = {name: [draw(replayed, seed) for seed in range(options.seeds)] for name, draw in strategies.items()}
        results[log.name] = {
            "knobs": len(replayed.knobs),
            "effects": len(replayed.effects),
            "refused": len(replayed.refused),
            "best_gain": replayed.best,
            "budget_s": replayed.budget_s,
            "measured_and_summed_gains": replayed.together,
            "found": found,
        }
        off = statistics.median(abs(a - b) for a, b in replayed.together) if replayed.together else math.nan
        print(
            f"{log.name}: {len(replayed.knobs)} knobs, {len(replayed.effects)} values act, best {replayed.best:+.2%}; "
            f"{len(replayed.together)} configs of several settings, {off:.2%} off their sums in the median"
        )
        for name, each in found.items():
            print(f"  {name}: {summary(each)}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
