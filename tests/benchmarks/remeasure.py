"""Re-measure emitted env-files against the default, in fresh processes, sharing no code with the tuner.

    python tests/benchmarks/remeasure.py workloads/nbody.py --env best.env --rounds 8 --out result.json

Each process imports the workload, jits its step as a plain program would, runs warm-up steps, then times blocks of
consecutive steps to the last output, half a second each: handing over the first step and waiting for the last costs a
millisecond on a GPU, which is in the block. A round is one process for the default and one for each env-file, one at a
time, in random order; speed-ups are ratios within a round. Their geometric mean is printed, which is what a run of the
tuner estimates too (where processes come in a quick and a slow kind, a median of a few takes either), and in brackets
the smallest and the largest, which for a few rounds is no interval: `tests/calibration/reproduce.py` computes one.
Processes inherit this one's variables: `XLA_PYTHON_CLIENT_PREALLOCATE=false python …` times all forms as a run of the
tuner does.
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
from pathlib import Path

CHILD = r"""
import importlib.util, json, sys, time
import jax
spec = importlib.util.spec_from_file_location("workload", sys.argv[1])
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
built = module.build()
get = built.get if isinstance(built, dict) else lambda k, d=None: getattr(built, k, d)
step, args = built if isinstance(built, tuple) else (get("step"), get("args"))
carry = None if isinstance(built, tuple) else get("carry")
step = step if hasattr(step, "lower") else jax.jit(step)
args = list(args)
shapes = lambda t: jax.tree.map(lambda x: (jax.numpy.shape(x), jax.numpy.result_type(x)), t)
def advance(args):
    out = step(*args)
    outs = out if isinstance(out, tuple) else (out,)
    n = carry
    if n is None:
        if shapes(out) == shapes(args[0]):
            outs, n = (out,), 1
        else:
            n = 0
            while n < min(len(outs), len(args)) and shapes(outs[n]) == shapes(args[n]):
                n += 1
    elif n == 1 and shapes(out) == shapes(args[0]):
        outs = (out,)
    return [*outs[:n], *args[n:]], out
began = time.perf_counter()
args, out = advance(args); jax.block_until_ready(out)
first = time.perf_counter() - began
target = float(sys.argv[2])
for _ in range(3):
    args, out = advance(args)
jax.block_until_ready(out)
began = time.perf_counter(); args, out = advance(args); jax.block_until_ready(out)
steps = max(3, int(0.5 / (time.perf_counter() - began)))
blocks, end = [], time.perf_counter() + target
while time.perf_counter() < end or len(blocks) < 5:
    began = time.perf_counter()
    for _ in range(steps):
        args, out = advance(args)
    jax.block_until_ready(out)
    blocks.append((time.perf_counter() - began) / steps)
print("RESULT " + json.dumps({"blocks_ms": [1e3 * b for b in blocks], "first_step_s": first, "steps": steps,
                              "device": jax.devices()[0].device_kind, "jax": jax.__version__}))
"""


def environment(path: Path) -> dict[str, str]:
    """The variables of a raw env-file: NAME=value a line, `#` lines are comments."""
    pairs = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            pairs[name] = value
    return pairs


def measure(workload: Path, changes: dict[str, str], seconds: float) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(workload), str(seconds)],
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        check=False,
    )
    line = next((text for text in done.stdout.splitlines() if text.startswith("RESULT ")), None)
    if line is None:
        raise SystemExit(f"the workload failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(line.removeprefix("RESULT ")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path)
    parser.add_argument("--env", type=Path, action="append", required=True, help="raw env-file to check (repeatable)")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="timed seconds a process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    forms = {"default": {}} | {str(path): environment(path) for path in options.env}
    order = random.Random(options.seed)
    rounds = []
    for _ in range(options.rounds):
        names = list(forms)
        order.shuffle(names)
        rounds.append({name: measure(options.workload, forms[name], options.seconds) for name in names})
    medians = {name: [statistics.median(r[name]["blocks_ms"]) for r in rounds] for name in forms}
    speedups = {
        name: [d / t for d, t in zip(medians["default"], medians[name], strict=True)]
        for name in forms
        if name != "default"
    }
    result = {
        "workload": str(options.workload),
        "environments": forms,
        "machine": platform.platform(),
        "device": rounds[0]["default"]["device"],
        "jax": rounds[0]["default"]["jax"],
        "median_ms": medians,
        "speedups": speedups,
        "rounds": rounds,
    }
    if options.out:
        options.out.write_text(json.dumps(result) + "\n")
    print(f"default: {statistics.median(medians['default']):.3f} ms")
    for name, ratios in speedups.items():
        spread = f"{min(ratios):.4f} to {max(ratios):.4f}"
        mean = statistics.geometric_mean(ratios)
        print(f"{name}: {statistics.median(medians[name]):.3f} ms, speed-up {mean:.4f} ({spread})")


if __name__ == "__main__":
    main()
