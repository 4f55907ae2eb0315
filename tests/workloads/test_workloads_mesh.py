"""The example workloads on a mesh: each communicates as it says, and computes what one device would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[2] / "workloads"
DEVICES = 4

# Each runs in a process of its own, on four devices made of the CPU; `there` is all of them, `one` the first.
COMMON = """
import importlib, re, sys
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp, numpy as np

there = jax.devices()
assert len(there) == 4

def build(name, devices, **knobs):
    jax.devices = lambda *_: devices
    made = importlib.import_module(name).build(**knobs)
    assert made["work"] > 0  # mesh and batch change what a step does: only time per work compares them
    return made

def run(made, steps=3):
    args = made["args"]
    for _ in range(steps):
        out = made["step"](*args)
        args = (*out[: made["carry"]], *args[made["carry"] :])
    return jax.device_get(out)

def kinds(made):
    text = made["step"].lower(*made["args"]).compile().as_text()
    pattern = r"\\s(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\\("
    return set(re.findall(pattern, text))

def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))
    spread = np.asarray(one["layers"]["down"], np.float64)
    assert abs(spread.mean()) < 4 * spread.std() / spread.size**0.5
    assert abs(spread.std() / 0.02 * (2 * len(spread)) ** 0.5 - 1) < 0.02

def near(one, other, tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b) + 1e-6, (np.linalg.norm(a - b), np.linalg.norm(b))
"""

# Losses agree closely; parameters less so: Adam divides gradients near zero by their size.
CHECKS = {
    "gpt_fsdp": """
made = build("gpt_fsdp", there)
assert "all-gather" in kinds(made)
assert kinds(made) & {"reduce-scatter", "all-reduce"}
largest = max(jax.tree.leaves(made["args"][0]), key=lambda a: a.size)
assert largest.addressable_shards[0].data.size == largest.size // 4
out = run(made)
one = build("gpt_fsdp", there[:1], batch=4)
same(build("gpt_fsdp", there)["args"][0], one["args"][0])
alone = run(one)
near(out[4], alone[4], 1e-3)
near(out[0], alone[0], 2e-2)
""",
    "gpt_dp": """
made = build("gpt_dp", there)
assert kinds(made) == {"all-reduce"}
out = run(made)
one = build("gpt_dp", there[:1], batch=4)
same(build("gpt_dp", there)["args"][0], one["args"][0])
alone = run(one)
near(out[4], alone[4], 1e-3)
near(out[0], alone[0], 2e-2)
""",
    "gpt_tp": """
made = build("gpt_tp", there)
assert "all-reduce" in kinds(made)
up = made["args"][0]["layers"]["up"]
assert up.addressable_shards[0].data.shape[-1] == up.shape[-1] // 4
out = run(made)
one = build("gpt_tp", there[:1])
same(build("gpt_tp", there)["args"][0], one["args"][0])
alone = run(one)
near(out[4], alone[4], 1e-3)
near(out[0], alone[0], 2e-2)
""",
    "vit_mesh": """
shapes = {}
alone = run(build("vit_mesh", there[:1], batch=8))
for model in (1, 4):
    made = build("vit_mesh", there, model=model)
    assert kinds(made) <= {"all-reduce", "all-gather", "reduce-scatter", "collective-permute"}
    assert kinds(made)
    shapes[model] = made["args"][0]["layers"]["up"].addressable_shards[0].data.shape[-1]
    near(run(made)[2], alone[2], 3e-2)
assert shapes == {1: 128, 4: 32}

def traced(**knobs):
    made = build("vit_mesh", there[:1], batch=8, **knobs)
    return str(jax.make_jaxpr(made["step"])(*made["args"]))

assert "bf16" not in traced(dtype="float32")
assert "remat" not in traced()
assert traced(remat="dots").count("remat") > 0
near(run(build("vit_mesh", there[:1], batch=8, remat="all"))[2], alone[2], 1e-5)
try:
    build("vit_mesh", there, model=3)
except ValueError:
    pass
else:
    raise AssertionError("a mesh that does not fit is refused")
""",
    "moe": """
import moe
moe.CAPACITY = 100.0  # with room for all the division of the tokens doesn't matter
made = build("moe", there)
assert "all-to-all" in kinds(made)
out = run(made)
alone = run(build("moe", there[:1], tokens=256, experts=8))
near(out[1], alone[1], 1e-3)
near(out[0], alone[0], 1e-3)
""",
    "pipeline": """
made = build("pipeline", there)
assert "collective-permute" in kinds(made)
x, weights = (np.asarray(a, np.float32) for a in made["args"])
out = np.asarray(run(made, 1)[0], np.float32)
for rounds in range(weights.shape[1]):
    for device in range(4):
        for w in weights[device, rounds]:
            x = np.tanh(np.asarray(jnp.asarray(x @ w, jnp.bfloat16), np.float32))
near(out, x, 3e-2)
assert out.shape[0] == 5
try:
    build("pipeline", there, batches=3)
except ValueError:
    pass
else:
    raise AssertionError("too few micro-batches are refused")
""",
}


def run_check(script: str) -> subprocess.CompletedProcess[str]:
    env = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))}
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # compiles in half the time
    env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES} {quick}"}
    return subprocess.run(
        [sys.executable, "-c", script, str(WORKLOADS)], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.jax
@pytest.mark.parametrize("name", CHECKS)
def test_it_communicates_as_it_says_and_computes_what_one_device_would(name: str) -> None:
    done = run_check(COMMON + CHECKS[name])
    assert done.returncode == 0, done.stderr[-3000:]
