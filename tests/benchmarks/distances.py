"""How far the shipped workloads are apart, as the store sees it when it looks for programs like a new one.

    python tests/benchmarks/distances.py --out distances.json

Each workload of one device is lowered (nothing compiles, so collectives don't count), some of them in other sizes too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import jax

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tuner.protocol.messages import Sketch  # noqa: E402
from tuner.store.neighbour import apart  # noqa: E402
from tuner.worker.sketch import sketch_of  # noqa: E402

_CASES: tuple[tuple[str, Mapping[str, int | str]], ...] = (
    *((name, {}) for name in ("nbody", "mixture", "mlp", "gpt", "vit", "conv", "attention", "rnn", "decode")),
    *((name, {}) for name in ("matmul", "pde", "sort", "scatter")),
    ("nbody", {"bodies": 512}),
    ("mlp", {"layers": 32}),
    ("gpt", {"layers": 3}),
    ("gpt", {"batch": 2}),
    ("attention", {"form": "xla"}),
)


def sketched(name: str, arguments: Mapping[str, int | str]) -> Sketch:
    spec = importlib.util.spec_from_file_location(name, ROOT / "workloads" / f"{name}.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    built = module.build(**arguments)
    step, args = (built["step"], built["args"]) if isinstance(built, dict) else built[:2]
    return sketch_of([(step if hasattr(step, "lower") else jax.jit(step)).lower(*args)], [], args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {
        " ".join([name, *(f"{n}={v}" for n, v in arguments.items())]): sketched(name, arguments)
        for name, arguments in _CASES
    }
    rows = {
        one: dict(
            sorted(
                ((b, round(sum(apart(found[one], found[b]).values()), 4)) for b in found if b != one),
                key=lambda r: r[1],
            )
        )
        for one in found
    }
    for one, others in rows.items():
        print(f"{one:20}", *(f"{other} {distance:.2f} ·" for other, distance in list(others.items())[:5]))
    if options.out:
        options.out.write_text(json.dumps({"jax": jax.__version__, "distances": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
