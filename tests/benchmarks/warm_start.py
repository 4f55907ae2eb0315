"""How much sooner a run reaches its winner where the store knows a program like it.

    python tests/benchmarks/warm_start.py real workloads/nbody.py --before bodies=768 --then bodies=1024 --out warm.json
    python tests/benchmarks/warm_start.py made-up --out warm-made-up.json

`real` runs `tune` three times on this machine: the workload with one value of a knob of its own, then with another one
in the same store, and with that one in an empty store. `made-up` does the same on made-up machines with a clock of
their own, for many seeds: sixty knobs of which four act, a little differently on the second program.

Told for both runs with the second value: seconds and trials from the run's start until the first trial whose program is
within 1 % of the best that this run timed (estimates of the run's own rounds), and what the run printed in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tuner.pipeline.options import RunOptions  # noqa: E402
from tuner.pipeline.run import tune  # noqa: E402
from tuner.protocol.messages import Sketch  # noqa: E402
from tuner.session import FakeMachine  # noqa: E402
from tuner.store import read  # noqa: E402
from tuner.store.events import AnyEvent, SessionStarted, StageFinished, TrialFinished, WarmStart  # noqa: E402
from tuner.store.records import ConfirmRecord  # noqa: E402

_NEAR = 0.01
_KNOBS = 60


def reached(events: Sequence[AnyEvent], moments: Sequence[float]) -> dict[str, object]:
    """When the run first timed something within 1 % of the best it ever timed. `moments`: of each event, in seconds."""
    timed = [
        (e, at)
        for e, at in zip(events, moments, strict=True)
        if isinstance(e, TrialFinished) and e.estimate is not None
    ]
    best = max(e.estimate.gain for e, _ in timed if e.estimate is not None)
    number, (first, at) = next(
        (i, (e, at)) for i, (e, at) in enumerate(timed) if e.estimate is not None and e.estimate.gain >= best - _NEAR
    )
    confirmed = next(e.record for e in events if isinstance(e, StageFinished) and isinstance(e.record, ConfirmRecord))
    return {
        "seconds": at - moments[0],
        "trials": number,
        "stage": first.stage,
        "label": first.label,
        "settings": first.config.as_dict(),
        "best_gain": best,
        "verdict": confirmed.verdict.value,
        "chosen": confirmed.chosen.as_dict(),
        "gain": confirmed.estimate.gain if confirmed.estimate else None,
        "neighbours": [
            {"workload": n.workload, "distance": n.distance, "apart": n.apart}
            for e in events
            if isinstance(e, WarmStart)
            for n in e.neighbours
        ],
    }


def real(options: argparse.Namespace) -> dict[str, object]:
    """Three runs of the command on this machine."""
    env = {n: v for n, v in os.environ.items() if not n.startswith("TUNER_")} | {"PYTHONPATH": str(ROOT)}
    result: dict[str, object] = {
        "workload": options.workload.name,
        "before": options.before,
        "then": options.then,
        "budget": options.budget,
        "load_1m": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as name:
        for kind, knob, store in (
            ("earlier", options.before, "warm"),
            ("warm", options.then, "warm"),
            ("cold", options.then, "cold"),
        ):
            folder = Path(name) / store
            command = [sys.executable, "-m", "tuner", "run", str(options.workload), "--budget", options.budget]
            subprocess.run([*command, "--knob", knob, "--store", str(folder)], env=env, check=True)
            newest = max((folder / "runs").glob("*/events.jsonl"), key=lambda path: path.stat().st_mtime)
            events = read(newest)
            result[kind] = reached(events, [e.time for e in events])
            result["jax"] = next(e.loaded.versions["jax"] for e in events if isinstance(e, SessionStarted))
    return result


class Moments:
    """A listener that notes what the made-up clock says at each event."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.at: list[float] = []

    def on_resumed(self, events: object) -> None:
        pass

    def on_event(self, event: AnyEvent) -> None:
        self.at.append(self.machine.now())

    def on_status(self, status: object) -> None:
        pass


def made_up(options: argparse.Namespace) -> dict[str, object]:
    """Pairs of runs on made-up machines, one a seed."""
    rows = []
    for seed in range(options.seeds):
        rng = random.Random(seed)
        acting = rng.sample(range(_KNOBS), 4)
        small = {(f"xla_{k:02}", "true"): -rng.uniform(0.01, 0.05) for k in acting}
        large = {setting: effect * rng.uniform(0.6, 1.4) for setting, effect in small.items()}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _write(folder)
            row: dict[str, object] = {"seed": seed}
            for kind, file, store, effects in (
                ("earlier", "small", "warm", small),
                ("warm", "large", "warm", large),
                ("cold", "large", "cold", large),
            ):
                machine = FakeMachine(
                    step_ms=60.0,
                    effects=effects,
                    start_s=9.0,
                    compile_s=2.0,
                    seed=seed + 1000 * (kind == "cold"),
                    sketch=Sketch(operations={"add": 9}, input_bytes=1 << (20 if file == "small" else 23)),
                    name=file,
                )
                moments = Moments(machine)
                outcome = tune(
                    RunOptions(
                        workload=folder / f"{file}.py",
                        spaces=(str(folder / "many.toml"),),
                        platform="cpu",
                        store=str(folder / store),
                        budget_s=options.budget_s,
                        command=("tune", f"{file}.py"),
                    ),
                    listener=moments,
                    factory=machine.factory,
                    clock=machine.now,
                )
                row[kind] = reached(outcome.events, moments.at)
        rows.append(row)
        print(seed, *(f"{kind} {row[kind]['seconds']:.0f} s" for kind in ("warm", "cold")), flush=True)  # type: ignore[index]
    medians = {
        kind: {what: statistics.median(row[kind][what] for row in rows) for what in ("seconds", "trials")}  # type: ignore[index]
        for kind in ("warm", "cold")
    }
    return {"budget_s": options.budget_s, "knobs": _KNOBS, "median": medians, "rows": rows}


def _write(folder: Path) -> None:
    for name in ("small", "large"):
        (folder / f"{name}.py").write_text(f"def build():\n    raise RuntimeError({name!r})\n")
    entries = [
        f'[[knob]]\nname = "xla_{k:02}"\ncarrier = "xla_flag"\ntype = "bool"\nvalues = ["unset", "true"]\n'
        f'lane = "option"\nacts_on = "hlo"\ntier = {1 + k // 20}\nwhy = "made up"\nsource = "benchmark"\n'
        for k in range(_KNOBS)
    ]
    (folder / "many.toml").write_text("version = 1\n" + "".join(entries))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("real")
    one.add_argument("workload", type=Path)
    one.add_argument("--before", required=True, help="NAME=VALUE of the earlier run")
    one.add_argument("--then", required=True, help="NAME=VALUE of the run in question")
    one.add_argument("--budget", default="2m")
    two = kinds.add_parser("made-up")
    two.add_argument("--seeds", type=int, default=20)
    two.add_argument("--budget-s", type=float, default=600.0)
    for kind in (one, two):
        kind.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = real(options) if options.kind == "real" else made_up(options)
    text = json.dumps({"python": platform.python_version(), **found}, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
