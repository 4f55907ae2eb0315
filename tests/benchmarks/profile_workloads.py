"""Profiles every shipped workload, and checks that its breakdown sums to the step, that work had to be scaled by little
to fit into it, that operations sum to the work, and that they are known.

``python tests/benchmarks/profile_workloads.py --out profiles.json`` exits 1 if one is off by more than the tolerance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from keep import portable

ROOT = Path(__file__).parents[2]
TOLERANCE = 0.02
SCALED = 0.05


def profiled(workload: Path, store: str, python: str) -> dict[str, Any]:
    """What `tune profile` says of it, or {"error": …}."""
    command = [sys.executable, "-m", "tuner", "profile", str(workload), "--json", "--store", store, "--python", python]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", type=Path, help="default: all of workloads/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--store", help="keep the traces in this folder")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="of sums")
    parser.add_argument("--scaled", type=float, default=SCALED, help="how much longer work may be in the trace")
    asked = parser.parse_args()
    results: dict[str, Any] = {}
    off = 0
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for workload in asked.workloads or sorted((ROOT / "workloads").glob("*.py")):
            found = results[workload.stem] = profiled(workload, asked.store or scratch, asked.python)
            asked.out.write_text(portable(json.dumps(results, indent=1), [Path(asked.store or scratch)]) + "\n")
            if "error" in found:
                print(f"{workload.stem}: {found['error']}")
                off += 1
                continue
            said = found["profile"]
            breakdown, roof = said["breakdown"], said["roofline"]["share"]
            total, step, busy = sum(breakdown["parts"].values()), breakdown["step_ms"], breakdown["busy_ms"]
            named = sum(row["self_ms"] for row in breakdown["ops"])
            misses = (total / step - 1, 1 / breakdown["scale"] - 1, named / busy - 1 if busy else 0.0)
            tracer_ms = breakdown["tracer_ms"]
            bad = any(abs(misses[i]) > asked.tolerance for i in (0, 2)) or misses[1] > asked.scaled
            bad |= breakdown["attributed"] < 0.98
            off += bad
            print(
                f"{workload.stem}: step {step:.4g} ms, parts {misses[0]:+.2%}, traced work {misses[1]:+.2%} too long, "
                f"{f'{tracer_ms / busy:.2%} by the tracer taken out, ' if tracer_ms else ''}"
                f"operations {misses[2]:+.2%} of work, {breakdown['attributed']:.0%} known; "
                f"{breakdown['traced_ms']:.4g} ms in the trace, {breakdown['under_ms']:.4g} ms in a row there, "
                f"{breakdown['dispatch_ms']:.3g} ms to call; "
                f"{said['bound']}-bound, {'no' if roof is None else f'{roof:.0%} of the'} roof{', OFF' if bad else ''}",
                flush=True,
            )
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
