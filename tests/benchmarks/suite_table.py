"""The suite's results: the default, O1, each published preset and the tuner, on one card; nulls included.

    python tests/benchmarks/suite_table.py run conv pde decode --budget 10m --out results/h100/suite
    python tests/benchmarks/suite_table.py table results/h100/suite

`run` tunes each workload with the command as it is shipped and keeps its document and event log; what is there already
isn't run again. `table` prints Markdown: presets were timed in the run's own session beside its default, ours in fresh
processes; each with its 95 % interval. The geometric mean takes 1 where the defaults were kept, since that is what is
emitted. Below it, where each run's time went, and whether any preset lies beyond ours by more than the intervals.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.api import load_run
from tuner.measure import Estimate
from tuner.store.events import StageFinished
from tuner.store.records import PresetsRecord, SearchRecord

WORKLOADS = Path(__file__).parents[2] / "workloads"
# What a workload is tuned for, and with which arguments, where that isn't the command's default.
FORMS: Mapping[str, Sequence[str]] = {
    "decode": ("--objective", "p50"),
    "attention-xla": ("--knob", "form=xla"),
}
_PARTS = ("total", "compile", "steps", "checks", "starts", "profiles", "other")


def run(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.workloads:
        label = f"{name}-numerics" if options.allow else name
        kept = options.out / f"{label}.json"
        if kept.exists():
            continue
        with tempfile.TemporaryDirectory() as store:
            path = WORKLOADS / f"{name.partition('-')[0]}.py"
            command = [
                sys.executable,
                "-m",
                "tuner",
                str(path),
                "--budget",
                options.budget,
                "--seed",
                str(options.seed),
            ]
            command += ["--store", store, "--json", "--quiet", *FORMS.get(name, ())]
            command += ["--allow", options.allow] if options.allow else []
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            logs = list(Path(store).glob("runs/*/events.jsonl"))
            if not logs or not done.stdout.strip():
                print(f"{label}: {done.stderr[-2000:]}", file=sys.stderr)
                continue
            (options.out / f"{label}.events.jsonl.gz").write_bytes(gzip.compress(logs[0].read_bytes(), mtime=0))
            kept.write_text(done.stdout)
            print(f"{label}: {json.loads(done.stdout)['summary']}", flush=True)


def speedup(value: Estimate | None) -> str:
    if value is None or not math.isfinite(value.gain):
        return "–"
    ends = [math.exp(v) if v < 50 else math.inf for v in (value.low, value.high)]
    return f"{math.exp(value.gain):.3f}x ({ends[0]:.3f}–{ends[1]:.3f})"


def presets_of(events: Sequence[Any]) -> dict[str, Estimate]:
    """Each preset's gain in the session, by name, and that of whatever the search found best."""
    records = [e.record for e in events if isinstance(e, StageFinished)]
    presets = next((r for r in records if isinstance(r, PresetsRecord)), PresetsRecord(measured=()))
    found = {m.label.removeprefix("preset "): m.estimate for m in presets.measured if m.label.startswith("preset ")}
    search = next((r for r in records if isinstance(r, SearchRecord)), None)
    return found | ({"best in session": search.best[0].estimate} if search and search.best else {})


def table(folder: Path) -> str:
    results = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    gains = {name: presets_of(load_run(folder / f"{name}.events.jsonl.gz").events) for name in results}
    names = list(dict.fromkeys(p for found in gains.values() for p in found))
    head = ["workload", "default", *names, "ours", "kept"]
    rows, emitted, warnings = [head, ["---"] * len(head)], {}, []
    for name, result in results.items():
        run_of = load_run(folder / f"{name}.events.jsonl.gz")
        ours = run_of.speedup
        faster = result["verdict"] == "faster" and ours is not None
        emitted[name] = ours.gain if faster and ours is not None else 0.0
        kept = "<br>".join(f"`{k}={v}`" for k, v in result["settings"].items()) or f"defaults ({result['verdict']})"
        default = f"{result['control_ms']:.3g} ms" if result["control_ms"] else "–"
        rows.append([name, default, *(speedup(gains[name].get(p)) for p in names), speedup(ours), kept])
        for preset, value in gains[name].items():
            top = ours.high if faster and ours is not None else 0.0
            if preset != "best in session" and value.low > max(top, math.log1p(0.005)):
                warnings.append(f"{name}: preset {preset} {speedup(value)} lies beyond what was emitted")
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    for title, part in (
        ("unchanged numbers", [n for n in emitted if not n.endswith("-numerics")]),
        ("numbers allowed to change", [n for n in emitted if n.endswith("-numerics")]),
    ):
        if part:
            mean = math.exp(sum(emitted[n] for n in part) / len(part))
            lines.append(f"\nGeometric mean over the default, {title}, {len(part)} workloads: {mean:.3f}x.")
    lines += ["", *(warnings or ["No preset lies beyond what was emitted."]), "", "Where the time went, seconds:", ""]
    lines += [
        "| workload | total | compile | steps | checks | processes | profiles | other | of it other |",
        "|" + "---|" * 9,
    ]
    for name, result in results.items():
        spent = result["time"]
        parts = " | ".join(f"{spent[key]:.0f}" for key in _PARTS)
        lines.append(f"| {name} | {parts} | {100 * spent['other'] / spent['total']:.1f} % |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("workloads", nargs="+", help="names of files in workloads/, or attention-xla")
    one.add_argument("--budget", default="10m")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--allow", choices=["numerics"])
    one.add_argument("--card", type=int, help="which GPU")
    one.add_argument("--out", type=Path, required=True)
    two = commands.add_parser("table")
    two.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "table":
        print(table(options.folder))
        return
    if options.card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(options.card)
    run(options)


if __name__ == "__main__":
    main()
