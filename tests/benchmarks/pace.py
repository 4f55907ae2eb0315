"""Does the tuner's own work stay small? What a suggestion takes, and what a start takes with 100,000 stored trials.

    python tests/benchmarks/pace.py results/cpu/nbody-0.10.2.events.jsonl.gz --trials 100000 --out pace.json

The store is filled with copies of the given run's log, each with as many trials as are asked for a run. Times are
seconds of wall clock and of this process's own processor time, which a busy machine doesn't lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from tuner.api import load_run
from tuner.knobs import DEFAULT, UNSET, Config, Knob
from tuner.machine import read_host
from tuner.measure import Estimate
from tuner.pipeline.sampler import Sampler
from tuner.store.events import AnyEvent, RunFinished, RunStarted, StageFinished, TrialFinished
from tuner.store.folder import open_store
from tuner.store.index import Index
from tuner.store.log import encode
from tuner.store.records import BaselineRecord, ProbeRecord
from tuner.store.study import StudyMirror


def clocked(work: Callable[[], Any]) -> dict[str, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return {"wall_s": time.perf_counter() - wall, "processor_s": time.process_time() - processor}


def trial(number: int, knobs: tuple[Knob, ...], rng: random.Random) -> TrialFinished:
    config = Config.of({k.name: rng.choice(k.values) for k in knobs if rng.random() < 0.3})
    gain = rng.gauss(0, 0.01)
    value = Estimate(gain=gain, se=0.001, low=gain - 0.002, high=gain + 0.002, n=10)
    name = f"{number:016x}"
    return TrialFinished(
        number=number, stage="search", session="home", config=config, value=-gain, estimate=value, fingerprint=name
    )


def copy(events: list[AnyEvent], number: int, trials: int, knobs: tuple[Knob, ...]) -> list[AnyEvent]:
    """The run again under another id, with so many trials."""
    rng = random.Random(number)
    made: list[AnyEvent] = []
    for event in events:
        if isinstance(event, RunStarted):
            made.append(msgspec.structs.replace(event, run=f"{event.run}-{number}", time=event.time + number))
        elif isinstance(event, StageFinished | RunFinished):
            if isinstance(event, StageFinished) and event.stage == "confirm":
                made += [trial(i + 1, knobs, rng) for i in range(trials)]
            made.append(event)
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(made)]


def start(root: Path, events: list[AnyEvent], knobs: tuple[Knob, ...], *, trials: int, a_run: int) -> dict[str, Any]:
    store = open_store(root)
    filling = Index(store.url)
    for number in range(trials // a_run):
        made = copy(events, number, a_run, knobs)
        folder = store.runs / f"copy-{number}"
        folder.mkdir(parents=True)
        (folder / "events.jsonl").write_bytes(b"".join(encode(event) + b"\n" for event in made))
        filling.record(made)
    filling.close()
    records = [e.record for e in events if isinstance(e, StageFinished)]
    program = next(r.program for r in records if isinstance(r, BaselineRecord))
    key = next(r.environment.key for r in records if isinstance(r, ProbeRecord))
    index, study = Index(store.url, runs=store.runs), StudyMirror(store.url)
    mine = copy(events, -1, 8, knobs)
    return {
        "trials": trials,
        "runs": trials // a_run,
        "open the index": clocked(index.open),
        "best known configs": clocked(lambda: index.best_for(program, key)),
        "spread of pairs": clocked(lambda: index.pair_spread(program, key)),
        "first batch into the index": clocked(lambda: index.record(mine)),
        "first batch into the study": clocked(lambda: study.record(mine)),
    }


def suggestion(knobs: int, history: int) -> dict[str, float]:
    """One suggestion, of batches of eight, with so many trials told."""
    names = tuple(
        Knob(
            name=f"xla_{i}",
            carrier="xla_flag",
            type="enum",
            values=(UNSET, "A", "B"),
            lane="option",
            acts_on="hlo",
            why="",
            source="",
        )
        for i in range(knobs)
    )
    rng = random.Random(0)
    sampler = Sampler({k.name: k for k in names}, seed=0)
    for number in range(history):
        sampler.tell(trial(number, names, rng))
    asked: list[Config] = []
    spent = clocked(lambda: asked.extend(sampler.ask(8, environment=DEFAULT, avoid=())))
    return {name: value / max(1, len(asked)) for name, value in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="the event log of a finished run")
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--a-run", type=int, default=250, help="trials a stored run")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    events = list(load_run(options.log).events)
    knobs = next(e.record.knobs for e in events if isinstance(e, StageFinished) and isinstance(e.record, ProbeRecord))
    with tempfile.TemporaryDirectory() as root:
        found: dict[str, Any] = {
            "machine": {
                "cpu": read_host().cpu,
                "python": platform.python_version(),
                "load_1m": os.getloadavg()[0],
                **{name: version(name) for name in ("optuna", "sqlalchemy")},
            },
            "start": start(Path(root), events, knobs, trials=options.trials, a_run=options.a_run),
            "suggestion": {f"{k} knobs, {n} told": suggestion(k, n) for k in (10, 25, 80) for n in (50, 500, 2000)},
        }
    text = json.dumps(found, indent=1) + "\n"
    if options.out:
        options.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
