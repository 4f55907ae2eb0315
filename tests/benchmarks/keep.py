"""Tune workloads, re-measure what each run emitted, and keep the raw data of both, with no path of this machine in it.

    python tests/benchmarks/keep.py workloads/gpt.py workloads/mlp.py --budget 10m --out tests/benchmarks/results/h100
    python tests/benchmarks/keep.py workloads/decode.py --tune "--objective p50" --suffix=-p50 --out results

A workload leaves NAME-jaxVERSION.events.jsonl.gz, the run's whole log, and NAME-jaxVERSION.remeasured.json, what
`remeasure.py` found for its env-file afterwards (only of a run that emitted settings). What the runs took and found is
printed: with the best single setting as the same run timed it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tuner.measure import Estimate, Verdict
from tuner.store.events import AnyEvent, SessionStarted, StageFinished
from tuner.store.lines import decode
from tuner.store.records import ConfirmRecord, ScreenRecord

__all__ = ["facts", "portable"]

_ROOT = Path(__file__).parents[2]
_REMEASURE = Path(__file__).with_name("remeasure.py")


def portable(text: str, folders: Sequence[Path]) -> str:
    """`text` without these folders before the paths in them, longest first; nor the project's, this environment's, the
    present and the temporary one."""
    environment = Path(sys.executable).parent
    folders = [*folders, _ROOT, Path.cwd(), environment, environment.parent, Path(tempfile.gettempdir())]
    for folder in sorted({str(f) for f in folders}, key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    return text


def facts(events: Sequence[AnyEvent]) -> list[str]:
    """What a run took and found, as lines."""
    stages = [e for e in events if isinstance(e, StageFinished)]
    records = {type(e.record): e.record for e in stages}
    confirmed, screened = records.get(ConfirmRecord), records.get(ScreenRecord)
    took = sum(e.seconds for e in stages)
    lines = [f"took {took:.0f} s: " + ", ".join(f"{e.stage} {e.seconds:.0f}" for e in stages)]
    if isinstance(confirmed, ConfirmRecord):
        settings = " ".join(f"{name}={value}" for name, value in confirmed.chosen.settings) or "the default"
        lines.append(f"{confirmed.verdict.value}: {_speedup(confirmed.estimate)}, {settings}")
    if isinstance(screened, ScreenRecord):
        best = max(screened.flips, key=lambda m: m.estimate.gain, default=None)
        if best is not None:
            told = " ".join(f"{name}={value}" for name, value in best.config.settings)
            lines.append(f"best single setting of the same run: {_speedup(best.estimate)}, {told}")
        lines.append(f"no time for: {' '.join(s.name for s in screened.left if s.status == 'skipped') or 'none'}")
    return lines


def _speedup(found: Estimate | None) -> str:
    if found is None:
        return "no finalist"
    return f"{found.speedup:.4f}x ({math.exp(found.low):.4f} to {math.exp(found.high):.4f})"


def keep(workload: Path, options: argparse.Namespace, scratch: Path) -> None:
    """One workload's run and re-measurement, kept in `options.out`."""
    store = scratch / workload.stem
    began = time.monotonic()
    command = [sys.executable, "-m", "tuner", "run", workload, "--budget", options.budget, "--store", store]
    command += shlex.split(options.tune)
    code = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
    ).returncode
    print(f"{workload.name}: exit code {code} after {time.monotonic() - began:.0f} s", flush=True)
    for run in sorted((store / "runs").iterdir()):
        text = (run / "events.jsonl").read_text()
        events = [decode(line) for line in text.encode().splitlines()]
        jax = next(e.loaded.versions["jax"] for e in events if isinstance(e, SessionStarted))
        name = f"{workload.stem}{options.suffix}-jax{jax}"
        data = gzip.compress(portable(text, [scratch]).encode(), 9, mtime=0)
        (options.out / f"{name}.events.jsonl.gz").write_bytes(data)
        print(*facts(events), sep="\n", flush=True)
        confirmed = [e.record for e in events if isinstance(e, StageFinished) and isinstance(e.record, ConfirmRecord)]
        if confirmed and confirmed[0].verdict is Verdict.FASTER:
            out = scratch / "remeasured.json"
            how = ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--out", out]
            subprocess.run([sys.executable, _REMEASURE, workload, "--env", run / "best.env", *how], check=True)
            kept = portable(json.dumps(json.loads(out.read_bytes())), [scratch])
            (options.out / f"{name}.remeasured.json").write_text(kept + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", type=Path, nargs="+")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--rounds", type=int, default=6, help="of the re-measurement")
    parser.add_argument("--seconds", type=float, default=1.5, help="timed seconds a process of the re-measurement")
    parser.add_argument("--tune", default="", metavar="OPTIONS", help="more options for the runs: '--space pgle'")
    parser.add_argument("--suffix", default="", help="of the names in --out: '-numerics', '-xla'")
    parser.add_argument("--scratch", type=Path, help="keep the stores, with their bundles, in this folder")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="keep-") as scratch:
        for workload in options.workloads:
            keep(workload.resolve(), options, (options.scratch or Path(scratch)).resolve())


if __name__ == "__main__":
    main()
