"""The worker without a parent: the steps are run, and what can't be is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.protocol.alone import ALONE
from tuner.session.package import worker_zip

pytestmark = pytest.mark.jax

COUNTED = """
import pathlib, sys
import jax, jax.numpy as jnp, numpy as np

def build(size=1):
    out = pathlib.Path(sys.argv[1])
    def counted(a):
        with out.open("a") as file:
            file.write(f"{a.size} ")
        return np.asarray(a)
    def step(x):
        return x + jax.pure_callback(counted, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    return step, (jnp.ones(size),)
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "w.py").write_text(text)
    how = json.dumps({"platform": "cpu", "knobs": {"size": 3}})
    command = [sys.executable, str(worker_zip(folder)), ALONE, "w.py", how, "calls"]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=120, check=False)


def test_steps_run_with_the_parameters_and_arguments_given(tmp_path: Path) -> None:
    ended = run(tmp_path, COUNTED)
    assert ended.returncode == 0, ended.stderr
    sizes = (tmp_path / "calls").read_text().split()
    assert set(sizes) == {"3"}
    assert len(sizes) > 10  # what Nsight Compute skips and takes fits in, of a kernel that a step runs once


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    ended = run(tmp_path, "def build(other):\n    ...\n")
    assert ended.returncode == 1
    assert "size, which build() doesn't take" in ended.stderr
