"""The variables around JAX's persistent compilation cache."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.handoff import isolated, loading, production, sealing

STEP = """
import jax, jax.numpy as jnp
seen = {"compile_requests_use_cache": 0, "cache_hits": 0}
def count(event, **_):
    name = event.rpartition("/")[2]
    if name in seen:
        seen[name] += 1
jax.monitoring.register_event_listener(count)
jax.jit(lambda x: jnp.tanh(x) @ x)(jnp.ones((8, 8))).block_until_ready()
print(*seen.values())
"""


def jax_config_text() -> str:
    """The source of the installed jax's configuration, found without importing jax."""
    spec = importlib.util.find_spec("jax")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("_src").joinpath("config.py").read_text()


@pytest.mark.parametrize("name", sorted({*isolated(), *loading(Path("x")), *sealing(Path("x")), *production()}))
def test_the_installed_jax_knows_the_variable(name: str) -> None:
    """A misspelt variable would be ignored without a word."""
    assert f"name='{name.lower()}'" in jax_config_text()


def test_isolated_sessions_know_no_folder() -> None:
    assert isolated()["JAX_ENABLE_COMPILATION_CACHE"] == "false"
    assert isolated()["JAX_COMPILATION_CACHE_DIR"] is None


def test_sealing_and_production_agree_on_what_is_in_the_key(tmp_path: Path) -> None:
    """The switch that keeps the folder's path out of the key stands on both sides; the folder is absolute on both."""
    sealed, loaded = sealing(Path("here")), production(Path("here"))
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"):
        assert sealed[name] == loaded[name]
    assert sealed["JAX_COMPILATION_CACHE_DIR"] == str(Path.cwd() / "here")
    assert production() == {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"}


@pytest.mark.jax
def test_a_sealed_folder_hits_after_it_moved_and_an_isolated_process_never_asks(tmp_path: Path) -> None:
    script = tmp_path / "step.py"
    script.write_text(STEP)
    base = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))} | {"JAX_PLATFORMS": "cpu"}

    def requests_and_hits(changes: dict[str, str | None]) -> tuple[int, int]:
        env = {n: v for n, v in {**base, **changes}.items() if v is not None}
        done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=True)
        requests, hits = map(int, done.stdout.split())
        return requests, hits

    inherited = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "inherited")}
    requests, hits = requests_and_hits(sealing(tmp_path / "sealed"))
    assert (requests > 0, hits) == (True, 0)
    shutil.move(tmp_path / "sealed", tmp_path / "elsewhere")
    assert requests_and_hits(dict(production(tmp_path / "elsewhere"))) == (requests, requests)
    assert requests_and_hits({**inherited, **isolated()}) == (0, 0)
    assert not (tmp_path / "inherited").exists()
    # Processes that measure what is sealed find it, and add nothing.
    assert requests_and_hits(loading(tmp_path / "elsewhere")) == (requests, requests)
    (tmp_path / "empty").mkdir()
    assert requests_and_hits(loading(tmp_path / "empty")) == (requests, 0)
    assert not any((tmp_path / "empty").iterdir())
