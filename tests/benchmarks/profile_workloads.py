"""Profiles every shipped workload, and checks that its breakdown sums to the step: in the trace, and without one.

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

ROOT = Path(__file__).parents[2]
TOLERANCE = 0.02


def profiled(workload: Path, store: str, python: str) -> dict[str, Any]:
    """What `tune profile` says of it, or {"error": …}."""
    command = [sys.executable, "-m", "tuner", "profile", str(workload), "--json", "--store", store, "--python", python]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", type=Path, help="default: all of workloads/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    asked = parser.parse_args()
    results: dict[str, Any] = {}
    off = 0
    with tempfile.TemporaryDirectory() as store:
        for workload in asked.workloads or sorted((ROOT / "workloads").glob("*.py")):
            found = results[workload.stem] = profiled(workload, store, asked.python)
            if "error" in found:
                print(f"{workload.stem}: {found['error']}")
                off += 1
                continue
            breakdown = found["profile"]["breakdown"]
            total, step, plain = sum(breakdown["parts"].values()), breakdown["step_ms"], breakdown["plain_ms"]
            bad = abs(total / step - 1) > asked.tolerance or abs(total / plain - 1) > asked.tolerance
            off += bad
            print(
                f"{workload.stem}: parts {total:.4g} ms, step in the trace {step:.4g} ms ({total / step - 1:+.2%}), "
                f"without {plain:.4g} ms ({total / plain - 1:+.2%}), {found['profile']['bound']}-bound"
                f"{', OFF' if bad else ''}"
            )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
