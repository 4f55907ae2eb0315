"""The real repeats on this machine's CPU, unattended: A/A runs, then runs whose gain is measured again.

    python tests/calibration/real.py --out tests/calibration/results

calls `real_aa.py` and `reproduce.py` one after the other. Each keeps every finished run in its file at once, and
leaves out what is there: the same command goes on where it was stopped. The machine should be otherwise idle; each row
tells its load.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_WORKLOADS = _HERE.parents[1] / "workloads"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="A/A runs")
    parser.add_argument("--aa-budget", type=float, default=60.0, help="seconds of each")
    parser.add_argument("--repeats", type=int, default=20, help="runs of each workload that are measured again")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each, before it is measured again")
    parser.add_argument("--workloads", nargs="+", default=["nbody.py"], help="of those shipped, which have a gain here")
    parser.add_argument("--out", type=Path, default=_HERE / "results", help="a folder")
    options = parser.parse_args()
    workloads = [_WORKLOADS / name for name in options.workloads]
    _call("real_aa.py", runs=options.runs, budget=options.aa_budget, out=options.out / "real-aa.json")
    _call("reproduce.py", *workloads, runs=options.repeats, budget=options.budget, out=options.out / "reproduced.json")


def _call(script: str, *arguments: Path, runs: int, budget: float, out: Path) -> None:
    command = [sys.executable, _HERE / script, *arguments, "--runs", runs, "--budget", budget, "--out", out]
    subprocess.run(list(map(str, command)), check=True)


if __name__ == "__main__":
    main()
