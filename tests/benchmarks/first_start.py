"""Time to the first step of production, before and after: a plain program, with nothing, then under a sealed bundle.

    python tests/benchmarks/first_start.py workloads/*.py --out result.json
    python tests/benchmarks/first_start.py workloads/gpt.py --platform gpu --bundle .tuner/runs/ID/bundle/1

For each workload file (with a `build()`): a cache is sealed by hand (no tuning: the default settings, or --flags) with
the tuner's own session, or copied from --bundle, then moved to another folder and loaded by a plain Python program that
shares no code with the tuner: from another folder, with another home, with and without the bundle's environment. It
tells the seconds from its first line to its first finished step, and JAX's own cache events: requests and hits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

PRODUCTION = r"""
import time; began = time.perf_counter()
import importlib.util, json, sys
import jax
events = {"requests": 0, "hits": 0}
def listen(event, **_):
    if event == "/jax/compilation_cache/compile_requests_use_cache": events["requests"] += 1
    elif event == "/jax/compilation_cache/cache_hits": events["hits"] += 1
jax.monitoring.register_event_listener(listen)
imported = time.perf_counter()
spec = importlib.util.spec_from_file_location(sys.argv[1].rsplit("/", 1)[-1][:-3], sys.argv[1])
module = importlib.util.module_from_spec(spec); sys.modules[spec.name] = module; spec.loader.exec_module(module)
built = module.build()
get = built.get if isinstance(built, dict) else lambda k, d=None: getattr(built, k, d)
if isinstance(built, tuple): steps = [(built[0], built[1])]
elif get("steps"): steps = [s[:2] if isinstance(s, tuple) else (s["step"], s["args"]) for s in get("steps").values()]
else: steps = [(get("step"), get("args"))]
state = time.perf_counter()
for step, args in steps:
    step = step if hasattr(step, "lower") else jax.jit(step)
    jax.block_until_ready(step(*args))
end = time.perf_counter()
print(json.dumps({"total_s": end - began, "import_s": imported - began, "build_s": state - imported,
                  "first_step_s": end - state, **events}))
"""


def seal(workload: Path, folder: Path, flags: str, platform: str) -> dict[str, str | None]:
    """The environment of a cache filled by the tuner's own session, moved to another place."""
    from tuner.handoff import production, sealing
    from tuner.protocol.messages import Variant
    from tuner.session import Deadlines, Launch, LocalSession

    env = {**sealing(folder / "sealed"), **({"XLA_FLAGS": flags} if flags else {})}
    launch = Launch(
        name="seal",
        role="seal",
        workload=workload,
        log=folder / "seal.log",
        python=sys.executable,
        env=env,
        platform=platform,
    )
    session = LocalSession(launch, environ=clean(platform), deadlines=Deadlines())
    try:
        session.start()
        session.compile([Variant(id="control")])
    finally:
        session.close()
    target = folder / "some where else" / "cache"
    target.parent.mkdir()
    shutil.move(folder / "sealed", target)
    return {**({"XLA_FLAGS": flags} if flags else {}), **production(target)}


def moved(bundle: Path, folder: Path) -> dict[str, str | None]:
    """The environment of a copy of this bundle in another place."""
    from tuner.handoff import load_bundle

    target = folder / "some where else" / "bundle"
    shutil.copytree(bundle, target)
    return load_bundle(target).environment()


def clean(platform: str) -> dict[str, str]:
    return {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_", "TUNER_"))} | {
        "JAX_PLATFORMS": {"cpu": "cpu", "gpu": "cuda"}[platform]
    }


def over(env: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    """`env` with these changes; None: unset."""
    kept = {name: value for name, value in env.items() if name not in changes}
    return kept | {name: value for name, value in changes.items() if value is not None}


def start(workload: Path, folder: Path, env: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTION, str(workload)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", type=Path)
    parser.add_argument("--flags", default="", help="XLA_FLAGS to seal and load under")
    parser.add_argument("--bundle", type=Path, help="of the one workload: what a run has sealed")
    parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.bundle and (len(options.workloads) > 1 or options.flags):
        parser.error("--bundle is of one workload, and has its own flags")
    sys.path.insert(0, str(ROOT))
    results = {}
    plain = clean(options.platform)
    for workload in (path.resolve() for path in options.workloads):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            changes = (
                moved(options.bundle, folder)
                if options.bundle
                else seal(workload, folder, options.flags, options.platform)
            )
            cache = Path(changes["JAX_COMPILATION_CACHE_DIR"] or "")
            (folder / "home").mkdir()
            flags = {"XLA_FLAGS": options.flags} if options.flags else {}
            kinds = {
                "before": plain | flags,
                "after": over(plain, changes) | {"HOME": str(folder / "home")},
            }
            rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
            for _ in range(options.rounds):
                for kind in random.sample(list(kinds), len(kinds)):
                    rows[kind].append(start(workload, folder, kinds[kind]))
            results[workload.name] = {
                **rows,
                "settings": {n: v for n, v in changes.items() if n != "JAX_COMPILATION_CACHE_DIR"},
                "entries": len(list(cache.iterdir())),
                "all_found": all(row["hits"] == row["requests"] > 0 for row in rows["after"]),
                **{
                    f"median_{part}_{kind}": statistics.median(row[part] for row in rows[kind])
                    for kind in rows
                    for part in ("total_s", "first_step_s")
                },
            }
            found = results[workload.name]
            print(
                f"{workload.name:14} first step {found['median_first_step_s_before']:.3f} → "
                f"{found['median_first_step_s_after']:.3f} s, whole start {found['median_total_s_before']:.2f} → "
                f"{found['median_total_s_after']:.2f} s, "
                f"{'all' if found['all_found'] else 'NOT all'} of {rows['after'][0]['requests']:.0f} found"
            )
    import jax

    document = {
        "jax": jax.__version__,
        "python": platform.python_version(),
        "load_1m": os.getloadavg()[0],
        "flags": options.flags,
        "platform": options.platform,
        "workloads": results,
    }
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
