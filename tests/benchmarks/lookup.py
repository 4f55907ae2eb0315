"""How long `tune best` takes in a store that holds many results, in fresh processes, and a look for programs like one.

    python tests/benchmarks/lookup.py --results 100000 --out result.json

Makes a store of made-up records by way of the index's own tables: half of the results are verdicts of runs of one
workload, the rest trials; then starts `tune best` for a workload that has one result, and for the one that has most.
Every run is of a program of its own, which looks alike to all others in number of operations every hundredth time: that
is what a new run's look for programs like its own has to go through.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUNE = "import sys; from tuner.cli import main; sys.exit(main())"


def fill(store: Path, results: int, workloads: list[Path]) -> int:
    """Rows of a database with so many results; returns its bytes."""
    import sqlalchemy as sa

    from tuner.machine.here import visible
    from tuner.store import tables, workload_digest
    from tuner.store.index import Index

    index = Index(f"sqlite:///{store}/tuner.db", runs=store / "runs")
    index.open()
    index.close()
    seen = visible(sys.executable)
    identity = {name: seen[name] for name in ("cpu", "cores", "jax", "jaxlib") if name in seen} | {"platform": "cpu"}
    few, many = (workload_digest(workload) for workload in workloads)
    runs, verdicts, bundles, trials, sketches = [], [], [], [], []
    estimate = {"gain": 0.1, "se": 0.01, "low": 0.08, "high": 0.12, "level": 0.95, "n": 6}
    each = results // 2
    for number in range(each):
        uid, of = f"{number:016x}", few if number == each // 2 else many
        runs.append(
            {
                "uid": uid,
                "run": f"w-{number:06x}",
                "workload": "w.py",
                "identity": {"workload": of},
                "options": {"objective": "mean"},
                "started": 1e9 + number,
                "finished": 1e9 + number + 0.5,
                "exit_code": 0,
                "program": f"{number:032x}",
                "environment": "0" * 16,
                "context": {},
                "digest": of,
                "name": "few.py" if of == few else "many.py",
                "form": f"batch={number % 4}" if number % 8 else "",
                "sealed": 1e9 + number,
                "first_program": "",
                "verdict": "faster",
                "host": "made-up",
                "log": "",
            }
        )
        made_of = {"operations": {"add": 10 + number % 100, "dot_general": 5}, "input_bytes": 1 << (number % 20)}
        sketches.append({"program": f"{number:032x}", "operations": 15 + number % 100, "sketch": made_of})
        timed = {"time": 1e9 + number, "config": "c" * 16}
        verdicts.append(
            {**estimate, **timed, "uid": uid, "seq": 9, "place": 0, "verdict": "faster", "control_ms": 2.0}
            | {"best_ms": 1.8, "chosen": True, "failure": None}
        )
        bundles.append(
            {"uid": uid, "seq": 10, "number": number + 1, "time": 1e9 + number, "variables": {"XLA_FLAGS": "--a=1"}}
        )
        trials.append(
            {
                **estimate,
                **timed,
                "uid": uid,
                "seq": 5,
                "number": 0,
                "stage": "screen",
                "session": "home",
                "value": -0.1,
            }
            | {"fingerprint": "f" * 32, "shared_with": -1, "label": "", "failure": None, "message": None}
        )
    engine = sa.create_engine(f"sqlite:///{store}/tuner.db")
    with engine.begin() as connection:
        connection.execute(sa.insert(tables.environments), [{"environment": "0" * 16, "identity": identity}])
        connection.execute(sa.insert(tables.configs), [{"config": "c" * 16, "settings": [["xla_a", "1"]]}])
        for table, rows in (
            (tables.runs, runs),
            (tables.verdicts, verdicts),
            (tables.bundles, bundles),
            (tables.trials, trials),
            (tables.sketches, sketches),
        ):
            connection.execute(sa.insert(table), rows)
    engine.dispose()
    return (store / "tuner.db").stat().st_size


def looking_around(store: Path) -> dict[str, object]:
    """Seconds that a new run takes to find programs like its own, the way a run does it."""
    import sqlalchemy as sa

    from tuner.machine.environment import Environment
    from tuner.protocol.messages import Sketch
    from tuner.store import tables
    from tuner.store.index import Index
    from tuner.store.near import neighbours

    index = Index(f"sqlite:///{store}/tuner.db")
    index.open()
    (row,) = index.select(sa.select(tables.environments))
    here = Environment(identity=row["identity"], context={})
    sketch = Sketch(operations={"add": 60, "dot_general": 5}, input_bytes=1 << 12)
    wall, processor, found = [], [], 0
    for _ in range(5):
        began, used = time.perf_counter(), time.process_time()
        found = len(neighbours(index, "new", sketch, here))
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    index.close()
    return {"found": found, "wall_s": wall, "processor_s": processor}


def timed(argv: list[str], folder: Path, rounds: int) -> dict[str, object]:
    """Seconds of fresh processes: by the clock, and of the processor."""
    env = {n: v for n, v in os.environ.items() if not n.startswith("TUNER_")} | {"PYTHONPATH": str(ROOT)}
    wall, processor, said = [], [], ""
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", TUNE, *argv], cwd=folder, env=env, capture_output=True, text=True, check=True
        )
        wall.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        said = done.stdout.splitlines()[0]
    return {
        "said": said,
        "wall_s": wall[1:],  # the first one compiles the modules
        "processor_s": processor[1:],
        "median_wall_s": statistics.median(wall[1:]),
        "median_processor_s": statistics.median(processor[1:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / ".tuner"
        (store / "runs").mkdir(parents=True)
        workloads = [folder / "few.py", folder / "many.py"]
        for workload in workloads:
            workload.write_text(f"# {workload.name}\n")
        size = fill(store, options.results, workloads)
        result = {
            "python": platform.python_version(),
            "cpu": platform.processor() or platform.machine(),
            "load_1m": os.getloadavg()[0],
            "results": options.results,
            "database_bytes": size,
            "python_alone": timed_python(folder, options.rounds),
            **{w.name: timed(["best", w.name], folder, options.rounds) for w in workloads},
            "looking_around": looking_around(store),
            "previous": timed(["best", "many.py", "--previous"], folder, options.rounds),
        }
    text = json.dumps(result, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)


def timed_python(folder: Path, rounds: int) -> float:
    """Median seconds of the processor that an empty Python with click takes: what no command can go below."""
    seconds = []
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import click, msgspec, sqlite3"], cwd=folder, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
