"""The example workloads: each builds, steps, threads its state and gives back what it donates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[2] / "workloads"
CHECKS = Path(__file__).with_name("workload_checks.py")
CHECKED = ("attention", "conv", "decode", "matmul", "pde", "rnn", "scatter", "sort", "vit")
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # compiles in half the time
FILES = sorted(path for path in WORKLOADS.glob("*.py"))

# Runs in a process of its own: the tests' process must not import jax.
CHECK = """
import runpy, sys
import jax, numpy as np

build = runpy.run_path(sys.argv[1])["build"]

def steps(made, count):
    head, rest = made["args"][:made["carry"]], made["args"][made["carry"]:]
    for _ in range(count):
        given, out = head, made["step"](*head, *rest)
        out = out if isinstance(out, tuple) else (out,)
        head = out[:made["carry"]]
        assert all(a.is_deleted() for a in jax.tree.leaves(given)), "the state is donated and its memory used again"
    assert not any(a.is_deleted() for a in jax.tree.leaves(rest)), "what is not carried is not donated"
    return out

def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)))

before, again = (jax.device_get(build()["args"]) for _ in range(2))
assert same(before, again), "each build starts from the same state"
made = build()  # of its own: an array that numpy looks into can't be donated
assert hasattr(made["step"], "lower"), "the step is jitted"
assert made["work"] > 0
out = steps(made, 3)
state = out[:made["carry"]]
assert jax.tree.structure(state) == jax.tree.structure(before[:made["carry"]])
for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(state)):
    assert (old.shape, old.dtype) == (new.shape, new.dtype)
for leaf in jax.tree.leaves(out):
    assert np.isfinite(np.asarray(leaf)).all()
    assert np.any(np.asarray(leaf) != 0)
for old, new in zip(before, state):
    assert not same(old, new), "every part of the state moves"
print("fine")
"""

INPUTS = """
import hashlib, runpy, sys
import jax

for path in sys.argv[1:]:
    leaves = jax.device_get(jax.tree.leaves(runpy.run_path(path)["build"]()["args"]))
    print(path, hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest())
"""


def test_there_are_workloads() -> None:
    assert {"gpt", "mlp", "nbody", "mixture", *CHECKED} <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_workload_needs_only_jax_and_numpy(path: Path) -> None:
    """It must run where nothing of ours is installed."""
    imports = [line for line in path.read_text().splitlines() if line.startswith(("import ", "from "))]
    imported = {line.split()[1].partition(".")[0] for line in imports}
    assert imported - set(sys.stdlib_module_names) <= {"jax", "numpy"}


@pytest.mark.jax
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_workload_steps_on_the_cpu(path: Path) -> None:
    """Three steps stay finite, move every part of the state, keep its shapes and donate it."""
    assert_fine("-c", CHECK, str(path))


@pytest.mark.jax
@pytest.mark.parametrize("name", CHECKED)
def test_workload_does_what_it_says(name: str) -> None:
    """FLOPs by hand and on the jaxpr, shapes, small results that are known."""
    assert_fine(str(CHECKS), name)


@pytest.mark.jax
def test_no_setting_of_the_compiler_changes_the_inputs() -> None:
    """Each session of a run makes them anew, under the settings that it tries."""
    fast = "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false"
    made = [path for path in FILES if "def scattered" in path.read_text()]
    assert len(made) > 8
    assert output("-c", INPUTS, *map(str, made)) == output("-c", INPUTS, *map(str, made), flags=fast)


def assert_fine(*command: str) -> None:
    assert output(*command) == "fine\n"


def output(*command: str, flags: str = QUICK) -> str:
    env = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))}
    env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
