"""Production's own command under a cache: what it looked for, how it ended, and that nothing of it stays."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tuner.errors import UsageError
from tuner.handoff import production, sealing
from tuner.handoff.own_command import CommandRun, run_command

ENVIRON = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))}
# What jax prints for one module that is found if a file of its name is there.
SAYS = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
assert "jax._src.compiler" in os.environ["JAX_DEBUG_LOG_MODULES"].split(",")
hit = (folder / "step").exists()
print("Persistent compilation cache hit for" if hit else "PERSISTENT COMPILATION CACHE MISS for",
      "'jit_step' with key 'step'", file=sys.stderr)
folder.mkdir(exist_ok=True)
(folder / "step").touch()
"""


def run(script: str, tmp_path: Path, *, limit_s: float = 30.0, **changes: str | None) -> CommandRun:
    return run_command(
        [sys.executable, "-c", script], changes, environ=ENVIRON, log=tmp_path / "own.log", limit_s=limit_s
    )


@pytest.mark.slow
def test_what_it_looked_for_is_read_from_what_it_prints(tmp_path: Path) -> None:
    cold = run(SAYS, tmp_path, **sealing(tmp_path / "cache"))
    warm = run(SAYS, tmp_path, JAX_DEBUG_LOG_MODULES="jax._src.dispatch", **production(tmp_path / "cache"))
    assert (cold.code, [m.hit for m in cold.modules]) == (0, [False])
    assert (warm.code, [(m.module, m.hit) for m in warm.modules]) == (0, [("jit_step", True)])


@pytest.mark.slow
def test_a_variable_is_removed_and_the_exit_status_told(tmp_path: Path) -> None:
    os_says = "import os, sys; sys.exit(3 if 'PATH' not in os.environ and os.environ['A'] == 'b' else 1)"
    done = run(os_says, tmp_path, PATH=None, A="b")
    assert (done.code, done.modules) == (3, ())


@pytest.mark.slow
def test_one_that_goes_on_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "print(\"Persistent compilation cache hit for 'jit_a' with key 'a'\", flush=True)\n"
        "time.sleep(60)\n"
    )
    began = time.monotonic()
    done = run(script, tmp_path, limit_s=2.0)
    assert time.monotonic() - began < 20
    assert done.code is None
    assert [m.module for m in done.modules] == ["jit_a"]
    assert not psutil.pid_exists(int((tmp_path / "own.log").read_text().split()[0]))


def test_one_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be started"):
        run_command([str(tmp_path / "nothing")], {}, environ=ENVIRON, log=tmp_path / "own.log", limit_s=1.0)


TRAIN = """
import jax, jax.numpy as jnp

def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)

w, x = jnp.eye(32), jnp.ones((8, 32))
step = jax.jit(step, donate_argnums=0)
for _ in range(2):
    w = step(w, x)
print("loss", float(jnp.mean(w)))
"""


@pytest.mark.jax
def test_a_real_program_seals_itself_and_finds_everything_elsewhere(tmp_path: Path) -> None:
    cpu = {"JAX_PLATFORMS": "cpu"}
    cold = run(TRAIN, tmp_path, limit_s=120.0, **cpu, **sealing(tmp_path / "cache"))
    assert cold.code == 0
    assert "jit_step" in {m.module for m in cold.modules}
    moved = (tmp_path / "cache").rename(tmp_path / "elsewhere")
    warm = run(TRAIN, tmp_path, limit_s=120.0, **cpu, **production(moved))
    assert len(warm.modules) == len(cold.modules) > 1
    assert all(m.hit for m in warm.modules)
    other = run(TRAIN, tmp_path, limit_s=120.0, **cpu, **production(moved), XLA_FLAGS="--xla_cpu_enable_fast_math=true")
    assert not any(m.hit for m in other.modules)
    known = {m.module: m for m in warm.modules}
    assert all(known[m.module].fields["XLA flags"] != m.fields["XLA flags"] for m in other.modules)
