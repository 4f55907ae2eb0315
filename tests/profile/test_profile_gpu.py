"""On a real card: the parts sum to the step, and kernels inside CUDA graphs find their operations."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuner.pipeline.profiling import ProfileOptions, profile_workload

WORKLOAD = """
import jax, jax.numpy as jnp

def build():
    def step(w, x):
        def layer(c, v):
            with jax.named_scope("layer"):
                return jnp.tanh(c @ v), None
        y, _ = jax.lax.scan(layer, x, w)
        return w * 0.99 + 1e-3 * y.mean()
    return step, (jnp.ones((6, 4096, 4096), jnp.bfloat16) * 1e-3, jnp.ones((4096, 4096), jnp.bfloat16))
"""


@pytest.mark.gpu
@pytest.mark.jax
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no NVIDIA GPU here")
def test_a_profile_on_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workload = tmp_path / "layers.py"
    workload.write_text(WORKLOAD)
    found = profile_workload(ProfileOptions(workload=workload, folder=tmp_path / "out", root=tmp_path, platform="gpu"))
    assert found.profile is not None
    breakdown, roofline = found.profile.breakdown, found.profile.roofline
    assert breakdown.platform == "gpu"
    assert sum(breakdown.parts.values()) == pytest.approx(breakdown.step_ms)
    assert sum(row.self_ms for row in breakdown.ops) == pytest.approx(breakdown.busy_ms)
    assert breakdown.scale > 0.95
    assert 0 < breakdown.dispatch_ms < breakdown.traced_ms
    assert max(breakdown.parts, key=lambda part: breakdown.parts[part]) == "matrix multiply"
    assert breakdown.attributed > 0.98
    assert (roofline.share or 0.0) > 0.5
    assert roofline.flops == pytest.approx(6 * 2 * 4096**3, rel=0.01)
    assert found.profile.bound == "compute"
    assert any("layer" in row.name for row in breakdown.scopes)
