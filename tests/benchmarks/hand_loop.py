"""The loop that people write by hand, against the tuner: same step, same settings to choose from, same time, one card.

    python tests/benchmarks/hand_loop.py run hand workloads/gpt.py --budget 600 --seed 0 --out results/hand-0.json
    python tests/benchmarks/hand_loop.py run ours workloads/gpt.py --budget 600 --seed 0 --out results/ours-0.json
    python tests/benchmarks/hand_loop.py judge workloads/gpt.py results/*.json --rounds 4 --out judged.json
    python tests/benchmarks/hand_loop.py report judged.json hand-*.json ours-*.json --page page.html

The hand-written loop: Optuna's default sampler over all settings that this jaxlib knows, a process a trial, three
warm-up steps, then the median of thirty steps that are waited for one by one; the best median wins. The tuner is the
command as it is shipped. `judge` times whatever was best at some moment in either, in fresh processes, in rounds of
random order, with code of its own (remeasure.py): nobody's own numbers decide.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hand_loop_page import Line, page
from keep import portable
from remeasure import measure
from scipy import stats

from tuner.knobs import UNSET, Config, SearchSpace, environment, fingerprint, load_spaces
from tuner.store import read
from tuner.store.events import StageFinished, TrialFinished
from tuner.store.records import ConfirmRecord

# Half widths at which the pace is told: gains are of a percent.
WIDTHS = (0.005, 0.01, 0.02, 0.05)

# A trial as people write it. What the fingerprint takes is told apart: the loop by hand has none.
CHILD = r"""
import importlib.util, json, re, sys, time
import jax
spec = importlib.util.spec_from_file_location("workload", sys.argv[1])
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
built = module.build()
step, args, carry = built["step"], list(built["args"]), built["carry"]
def advance(args):
    out = step(*args)
    return [*(out if isinstance(out, tuple) else (out,))[:carry], *args[carry:]], out
for _ in range(3):
    args, out = advance(args); jax.block_until_ready(out)
times = []
for _ in range(30):
    began = time.perf_counter(); args, out = advance(args); jax.block_until_ready(out)
    times.append(time.perf_counter() - began)
began = time.perf_counter()
text = re.sub(r", metadata=\{[^}]*\}", "", step.lower(*args).compile().as_text()).partition("\n")[2]
print("RESULT " + json.dumps({"times": times, "text": text, "extra_s": time.perf_counter() - began,
                              "device": jax.devices()[0].device_kind, "jax": jax.__version__}))
"""


def half_width(times: Sequence[float]) -> float:
    """Half the 95 % interval of the median of log times, by order statistics."""
    logs = sorted(map(math.log, times))
    rank = int(stats.binom.ppf(0.025, len(logs), 0.5))
    return (logs[-rank - 1] - logs[rank]) / 2


def trial(workload: Path, env: Mapping[str, str | None], limit_s: float) -> dict[str, Any] | None:
    """One process of the loop by hand; None if it failed or hung."""
    inherited = {name: value for name, value in os.environ.items() if name not in env}
    given = {**inherited, **{name: value for name, value in env.items() if value is not None}}
    command = [sys.executable, "-c", CHILD, str(workload)]
    try:
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None
    line = next((text for text in done.stdout.splitlines() if text.startswith("RESULT ")), None)
    return None if line is None else dict(json.loads(line.removeprefix("RESULT ")))


def live_space(options: argparse.Namespace) -> SearchSpace:
    """The spaces named, with the knobs that apply here (as `tune knobs` finds them): both arms choose from these."""
    spaces = [part for space in options.space for part in ("--space", space)]
    command = [sys.executable, "-m", "tuner", "knobs", str(options.workload), *spaces, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    live = {k["name"]: k["values"] for k in json.loads(done.stdout)["knobs"] if k["status"] == "applies"}
    space = load_spaces(options.space)
    from msgspec.structs import replace

    kept = tuple(replace(k, values=tuple(live[k.name])) for k in space.knobs if k.name in live)
    return replace(space, knobs=kept)


def by_hand(options: argparse.Namespace) -> dict[str, Any]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = live_space(options)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=options.seed))
    study.enqueue_trial({knob.name: UNSET for knob in space.knobs})  # everybody tries the default first
    began, extra_s, trials, limit_s = time.monotonic(), 0.0, [], 600.0
    while (at := time.monotonic() - began - extra_s) < options.budget:
        asked = study.ask()
        config = Config.of({k.name: asked.suggest_categorical(k.name, k.values) for k in space.knobs})
        made = trial(options.workload, environment(config, space, {}), limit_s=limit_s)
        row: dict[str, Any] = {"settings": config.as_dict(), "ended_s": time.monotonic() - began - extra_s}
        if made is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        else:
            extra_s += made["extra_s"]
            if not trials:
                limit_s = max(60.0, 5 * (row["ended_s"] - at))
            study.tell(asked, statistics.median(made["times"]))
            code = hashlib.sha256(made["text"].encode()).hexdigest()
            row |= {
                "ms": 1e3 * statistics.median(made["times"]),
                "half_width": half_width(made["times"]),
                "fingerprint": fingerprint(code, "hlo", config, space),
                "times": made["times"],
            }
        trials.append(row)
    winner = min((t for t in trials if "ms" in t), key=lambda t: t["ms"])
    return {"trials": trials, "winner": winner["settings"], "seconds": trials[-1]["ended_s"]}


def ours(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as store:
        spaces = [part for space in options.space for part in ("--space", space)]
        command = [sys.executable, "-m", "tuner", str(options.workload), *spaces, "--budget", f"{options.budget:g}s"]
        command += ["--seed", str(options.seed), "--store", store, "--json", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.stdout.strip():
            raise SystemExit(done.stderr)
        document = json.loads(done.stdout)
        (log,) = Path(store).glob("runs/*/events.jsonl")
        events = read(log)
        if options.out:
            text = portable(log.read_text(), [Path(store)])
            options.out.with_suffix(".events.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        document = json.loads(portable(json.dumps(document), [Path(store)]))
    found = [e for e in events if isinstance(e, TrialFinished)]
    confirm = next(e.record for e in events if isinstance(e, StageFinished) and isinstance(e.record, ConfirmRecord))
    trials = [
        {
            "settings": t.config.as_dict(),
            "ended_s": t.time - events[0].time,
            "gain": t.estimate and t.estimate.gain,
            "half_width": t.estimate and (t.estimate.high - t.estimate.low) / 2,
            "fingerprint": t.fingerprint,
            "shared": t.shared_with >= 0,
            "stage": t.stage,
        }
        for t in found
    ]
    return {"trials": trials, "winner": confirm.chosen.as_dict(), "verdict": confirm.verdict, "document": document}


def incumbents(arm: Mapping[str, Any]) -> list[tuple[float, dict[str, str]]]:
    """(seconds, settings) whenever something looked better than all before; the winner at the end."""
    best, found = -math.inf, []
    for row in arm["trials"]:
        gain = -math.log(row["ms"]) if row.get("ms") else row.get("gain")
        if gain is not None and gain > best:
            best = gain
            found.append((row["ended_s"], row["settings"]))
    return [*found, (arm["seconds"], arm["winner"])]


def kept(path: Path) -> dict[str, Any]:
    """A result as it was written, packed or not."""
    return dict(json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()))


def key(settings: Mapping[str, str]) -> str:
    return json.dumps(settings, sort_keys=True)


def judge(options: argparse.Namespace) -> dict[str, Any]:
    """All incumbents and winners beside the default: rounds of fresh processes in random order."""
    arms = [kept(path) for path in options.results]
    space = load_spaces(arms[0]["spaces"])
    forms = {"{}": {}} | {key(settings): settings for arm in arms for _, settings in incumbents(arm)}
    rng = random.Random(0)
    rounds: list[dict[str, float | None]] = []
    judged = {"workload": options.workload.name, "rounds_ms": rounds}
    for number in range(options.rounds):
        names, row = list(forms), dict[str, float | None]()
        rng.shuffle(names)
        for name in names:
            env = {k: v for k, v in environment(Config.of(forms[name]), space, {}).items() if v is not None}
            try:
                row[name] = statistics.median(measure(options.workload, env, options.seconds)["blocks_ms"])
            except SystemExit as failed:
                row[name] = None
                print(f"{name}: {failed}", file=sys.stderr)
        rounds.append(row)
        print(f"round {number + 1} of {options.rounds}: {len(forms)} processes", file=sys.stderr)
        if options.out:  # whoever stops it keeps the rounds that were
            options.out.write_text(json.dumps(judged))
    return judged


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with a 95 % interval by Student's t."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, -math.inf, math.inf
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def between_processes(rounds: Sequence[Mapping[str, float | None]], *, drifts: bool = True) -> float:
    """Standard deviation of log time between fresh processes of one config, pooled over configs but for those that
    differ three times as much as is usual: of settings drawn at random some make another program in each process.
    0 from one round. Without `drifts` what a round's configs have in common is taken out, each round's median over the
    others: the machine's drift, which a control beside a config shares."""
    told = rounds if drifts else [r for r in rounds if sum(ms is not None for ms in r.values()) > 1]
    times = {name: np.array([r[name] or math.nan for r in told]) for name in rounds[0]}
    rows = {name: np.log(row) for name, row in times.items() if np.isfinite(row).sum() > 1}
    if not rows:
        return 0.0
    off = {name: logs - np.nanmedian(logs) for name, logs in rows.items()}
    if not drifts and len(off) > 1:
        others = {name: np.nanmedian([o for n, o in off.items() if n != name], axis=0) for name in off}
        adds = (1 + 1 / (len(off) - 1)) ** 0.5  # to a config's spread that of the others' median
        off = {name: (logs - others[name]) / adds for name, logs in off.items()}
    found = [float(np.nanvar(logs, ddof=1)) for logs in off.values()]
    usual = statistics.median(found)
    return statistics.fmean(v for v in found if v <= 9 * usual) ** 0.5


def widen(arm: Mapping[str, Any], spread: float) -> None:
    """Make half widths of gains over the default, wherever the step runs next. By hand the default is another trial, as
    wide; and what either arm saw in one process another process has differently, on both sides of the ratio. `alone`:
    the same where the default is known for good."""
    trials = [t for t in arm["trials"] if t.get("half_width") is not None]
    default = trials[0]["half_width"] if arm["arm"] == "hand" else 0.0
    for t in trials:
        t["alone"] = math.hypot(t["half_width"], 1.96 * spread)
        t["half_width"] = math.hypot(t["alone"], default, 1.96 * spread)


def report(options: argparse.Namespace) -> dict[str, Any]:
    rounds = kept(options.judged)["rounds_ms"]
    arms = [kept(path) for path in options.results]
    typical = {n: statistics.median(r[n] for r in rounds) for n in rounds[0] if all(r[n] is not None for r in rounds)}
    best = min(typical.values())
    spreads = {"hand": between_processes(rounds), "ours": between_processes(rounds, drifts=False)}
    spreads["ours"] = min(spreads.values())  # without drift there can't be more; of few rounds both are rough
    for arm in arms:
        widen(arm, spreads[arm["arm"]])
    # What nine in ten trials of the loop by hand reach is the width that flatters it most.
    widths = sorted(t["half_width"] for arm in arms if arm["arm"] == "hand" for t in arm["trials"] if "ms" in t)
    width = options.width
    rows = []
    for arm in arms:
        near = [at for at, settings in incumbents(arm) if typical.get(key(settings), math.inf) <= 1.01 * best]
        gains = [math.log(r["{}"] / r[key(arm["winner"])]) for r in rounds if r.get(key(arm["winner"]))]
        rows.append(
            {
                "arm": arm["arm"],
                "seed": arm["seed"],
                "seconds": arm["seconds"],
                "trials": len(arm["trials"]),
                "failed": sum(t.get("half_width") is None for t in arm["trials"]),
                "shared": sum(bool(t.get("shared")) for t in arm["trials"]),
                "distinct_timed": len(distinct(arm, width)),
                "distinct_per_hour": 3600 * len(distinct(arm, width)) / arm["seconds"],
                "seconds_to_1_percent": min(near, default=None),
                "winner": arm["winner"],
                "winner_speedup": [math.exp(v) for v in interval(gains)] if gains else None,
            }
        )
    mine, theirs = ([r for r in rows if r["arm"] == name] for name in ("ours", "hand"))
    beaten = []
    for a in theirs:
        for b in mine:
            pairs = [
                math.log(r[key(b["winner"])] / r[key(a["winner"])])
                for r in rounds
                if r.get(key(a["winner"])) and r.get(key(b["winner"]))
            ]
            beaten.append({"hand": a["seed"], "ours": b["seed"], "hand_ahead": interval(pairs) if pairs else None})
    found = {
        "half_width": width,
        "pace": [pace(arms, w) for w in (*WIDTHS, widths[int(0.9 * (len(widths) - 1))])],
        "between_processes": spreads,
        "best_ms": best,
        "default_ms": typical["{}"],
        "arms": rows,
        "hand_over_ours": beaten,
    }
    if options.page:
        title = f"{arms[0]['workload']}: tune and the loop by hand"
        options.page.write_text(page(title, found, best=best_so_far(arms, typical), timed=programs(arms, width)))
    return found


def distinct(arm: Mapping[str, Any], width: float) -> set[str]:
    """Programs that this arm has timed so well, each once: what was found to compile to one that was known isn't."""
    known = [t for t in arm["trials"] if t.get("half_width") is not None and t["half_width"] <= width]
    return {t["fingerprint"] for t in known if not t.get("shared")}


def pace(arms: Sequence[Mapping[str, Any]], width: float) -> dict[str, float]:
    """Distinct programs timed to `width` an hour, medians over seeds. `hand_repeating`: what the loop by hand would
    come to if it started each trial as often as it takes (the default, too, but that only once for all); `ratio`: how
    many times as many ours are."""
    hourly = {
        name: statistics.median(3600 * len(distinct(a, width)) / a["seconds"] for a in arms if a["arm"] == name)
        for name in ("ours", "hand")
    }
    repeating = statistics.median(_repeating(a, width) for a in arms if a["arm"] == "hand")
    return {"half_width": width, **hourly, "hand_repeating": repeating, "ratio": hourly["ours"] / repeating}


def _repeating(arm: Mapping[str, Any], width: float) -> float:
    """Programs an hour if every trial is repeated until it is as narrow as `width`: of n starts √n times as narrow."""
    narrow = [t for t in arm["trials"] if t.get("alone") is not None]
    starts = sum(max(1.0, (t["alone"] / width) ** 2) for t in narrow) + len(arm["trials"]) - len(narrow)
    return 3600 * len({t["fingerprint"] for t in narrow}) / (arm["seconds"] * starts / len(arm["trials"]))


def best_so_far(arms: Sequence[Mapping[str, Any]], typical: Mapping[str, float]) -> list[Line]:
    """Each arm's incumbents, and from when on they were: log gains over the default, as judged."""
    judged = {name: math.log(typical["{}"] / ms) for name, ms in typical.items()}
    return [
        (arm["arm"], [(at, judged[key(settings)]) for at, settings in incumbents(arm) if key(settings) in judged])
        for arm in arms
    ]


def programs(arms: Sequence[Mapping[str, Any]], width: float) -> list[Line]:
    """How many distinct programs each arm had timed to `width`, whenever that grew."""
    lines: list[Line] = []
    for arm in arms:
        seen: set[str] = set()
        steps = []
        for row in arm["trials"]:
            if row.get("half_width") is not None and row["half_width"] <= width and row["fingerprint"] not in seen:
                seen.add(row["fingerprint"])
                steps.append((row["ended_s"], float(len(seen))))
        lines.append((arm["arm"], steps))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="one arm with one seed")
    one.add_argument("arm", choices=["hand", "ours"])
    one.add_argument("workload", type=Path)
    one.add_argument("--space", action="append", required=True)
    one.add_argument("--budget", type=float, required=True, help="seconds")
    one.add_argument("--seed", type=int, default=0)
    two = commands.add_parser("judge", help="time what was best at some moment, in fresh processes")
    two.add_argument("workload", type=Path)
    two.add_argument("results", type=Path, nargs="+")
    two.add_argument("--rounds", type=int, default=4)
    two.add_argument("--seconds", type=float, default=1.5)
    three = commands.add_parser("report", help="what came of it, from the raw results")
    three.add_argument("judged", type=Path)
    three.add_argument("results", type=Path, nargs="+")
    three.add_argument("--width", type=float, default=0.01, help="half width of the intervals that count (0.01: 1 %)")
    three.add_argument("--page", type=Path, help="draw it as HTML, too")
    for command in (one, two, three):
        command.add_argument("--out", type=Path)
        command.add_argument("--card", type=int, help="which GPU")
    options = parser.parse_args()
    if options.card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(options.card)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # as the tuner's own sessions
    began = time.monotonic()
    if options.command == "run":
        options.workload = options.workload.resolve()
        found = by_hand(options) if options.arm == "hand" else ours(options)
        head = {"arm": options.arm, "seed": options.seed, "workload": options.workload.name, "spaces": options.space}
        found = {**head, "budget_s": options.budget, "seconds": time.monotonic() - began, **found}
    else:
        found = judge(options) if options.command == "judge" else report(options)
    text = json.dumps(found, indent=1, default=str) + "\n"
    if options.out:
        options.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
