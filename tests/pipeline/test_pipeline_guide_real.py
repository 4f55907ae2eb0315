"""`tune pgle` with real processes: on two GPUs the whole way, on a CPU up to where no kernel is timed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tuner.pipeline.guide import GuideOptions, guide_workload
from tuner.profile.guided import costs_in

# Layers whose weights are gathered as they are needed, and whose gradients are reduced: there is something to overlap.
SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def build(width=64, layers=4):
    mesh = Mesh(np.array(jax.devices()), ("d",))
    columns, whole = NamedSharding(mesh, P(None, None, "d")), NamedSharding(mesh, P())

    def loss(w, x):
        for one in w:
            x = jnp.tanh(x @ jax.lax.with_sharding_constraint(one, whole))
        return (x * x).mean()

    @jax.jit
    def step(w, x):
        return jax.lax.with_sharding_constraint(w - 1e-3 * jax.grad(loss)(w, x), columns)

    w = jax.device_put(jnp.full((layers, width, width), 1e-3), columns)
    x = jax.device_put(jnp.ones((width, width)), NamedSharding(mesh, P("d")))
    return step, (w, x)
"""


def gpus() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GuideOptions:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "sharded.py").write_text(SHARDED)
    return GuideOptions(workload=tmp_path / "sharded.py", folder=tmp_path / "out")


@pytest.mark.jax
def test_on_a_cpu_no_kernel_is_timed_and_that_is_the_cause(options: GuideOptions) -> None:
    env: dict[str, str | None] = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    found = guide_workload(GuideOptions(workload=options.workload, folder=options.folder, platform="cpu", env=env))
    assert found.facts is not None
    assert (found.facts.entries, found.facts.collectives > 0) == (0, True)
    assert found.cause.startswith("the profile is empty")
    assert not (options.folder / "profile.pb").exists()


@pytest.mark.gpu
@pytest.mark.jax
@pytest.mark.skipif(gpus() < 2, reason="there are no two NVIDIA GPUs here")
def test_on_two_gpus_a_profile_is_taken_used_and_found_in_its_cache(options: GuideOptions) -> None:
    knobs = {"width": 4096, "layers": 8}
    found = guide_workload(
        GuideOptions(workload=options.workload, folder=options.folder, platform="gpu", knobs={**knobs})
    )
    assert found.cause == "", (options.folder, found.facts)
    assert found.facts is not None
    assert found.facts.collectives > 0
    assert found.facts.collectives_covered >= 0.5 * found.facts.collectives
    assert found.facts.covered >= 0.5 * found.facts.operations
    assert found.facts.foreign < 0.1 * found.facts.entries
    assert found.facts.traces == 3
    assert found.said, "the compiler's own line was not found in the log: has its text changed?"
    assert found.found
    assert found.profile is not None
    assert all("::" not in name for name in costs_in(found.profile.read_bytes()))
