"""Record how noisy equal programs are: pairs of fresh processes of one and the same step, alive together.

    python tests/calibration/record.py workloads/nbody.py --pairs 12 --out nbody-cpu.json.gz

The two processes of a pair compile the step and take turns, in random order, a block each. Whatever differs is noise:
of a block, or of a process and its compile. The machine should be otherwise idle. One recording is one JSON document,
gzipped:

- `workload`, `env`, `jax`, `device`, `machine`, `cores`, `steps` (a block);
- `pairs`: for each pair `processes`, two of them with `compile_s` and `code` (the fingerprint), `started`: the random
  order in which they were started and compiled, and `turns`: rows [start_s, process, seconds a step, first_s] in the
  order timed; `start_s` counts from the recording's begin, `first_s` is the step that every block discards.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, Block, Loaded, Variant
from tuner.session import Deadlines, Launch, LocalSession, Session

# Compilation caches would hand one process's compile to the next.
_ENV = {"JAX_ENABLE_COMPILATION_CACHE": "false", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_HANDLE = "step"


def environment(path: Path | None) -> dict[str, str]:
    """The variables of a raw env-file, none without one."""
    lines = path.read_text().splitlines() if path else []
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def opened(workload: Path, env: dict[str, str], log: Path) -> LocalSession:
    launch = Launch(
        name=log.stem, role="confirm", workload=workload.resolve(), log=log, python=sys.executable, env={**_ENV, **env}
    )
    return LocalSession(launch, environ=dict(os.environ), deadlines=Deadlines())


def timed(session: Session, steps: int) -> Block:
    (entry,) = session.round([Arm(id=_HANDLE, steps=steps)])
    if isinstance(entry, Failure):
        raise SystemExit(f"the step fails: {entry.message}")
    return entry


def compiled(session: Session) -> dict[str, Any]:
    reply = session.compile([Variant(id=_HANDLE)]).results[0]
    if isinstance(reply, Failure):
        raise SystemExit(f"the step doesn't compile: {reply.message}")
    return {"compile_s": reply.compile_s, "code": reply.code}


def record_pair(
    sessions: Sequence[Session], options: argparse.Namespace, rng: random.Random, zero: float
) -> tuple[Loaded, dict[str, Any]]:
    """What was loaded, and the pair's entry. The first pair settles the steps a block, if they aren't given.

    Who comes second starts and compiles beside a living process and with warm files: the order is random too.
    """
    order = list(range(len(sessions)))
    rng.shuffle(order)
    started = tuple(order)
    loaded = {process: sessions[process].start() for process in started}
    made = {process: compiled(sessions[process]) for process in started}
    if not options.steps:
        one_s = min(timed(sessions[started[0]], 1).seconds for _ in range(5))
        options.steps = max(1, round(options.block / one_s))
    turns = []
    for _ in range(options.turns):
        rng.shuffle(order)
        for process in order:
            start = time.monotonic() - zero
            block = timed(sessions[process], options.steps)
            turns.append([round(start, 3), process, block.seconds / block.steps, block.first_s])
    return loaded[0], {"processes": [made[p] for p in range(len(sessions))], "started": started, "turns": turns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path)
    parser.add_argument("--env", type=Path, help="raw env-file to record under, instead of the default")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--turns", type=int, default=30, help="blocks of each process")
    parser.add_argument("--block", type=float, default=0.05, help="seconds a block")
    parser.add_argument("--steps", type=int, default=0, help="steps a block, instead of --block")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    zero = time.monotonic()
    pairs = []
    env = environment(options.env)
    with tempfile.TemporaryDirectory() as logs:
        for index in range(options.pairs):
            sessions = [opened(options.workload, env, Path(logs) / f"{index}-{side}.log") for side in range(2)]
            try:
                loaded, entry = record_pair(sessions, options, rng, zero)
            finally:
                for session in sessions:
                    session.close()
            pairs.append(entry)
            print(f"pair {index + 1} of {options.pairs}, {time.monotonic() - zero:.0f} s", flush=True)
    document = {
        "workload": options.workload.name,
        "env": env,
        "jax": loaded.versions["jax"],
        "device": loaded.device_kind,
        "machine": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "steps": options.steps,
        "pairs": pairs,
    }
    options.out.write_bytes(gzip.compress(json.dumps(document).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
