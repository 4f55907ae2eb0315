"""PGLE in a real worker, as far as a CPU goes: no kernel is timed, and jax's cache knows profiles all the same."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from worker_driver import Worker

from tuner.handoff import isolated, loading, sealing
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Pgle, Variant
from tuner.protocol.wire import bytes_field, double_field

pytestmark = pytest.mark.jax

StartWorker = Callable[..., Worker]

STEP = """
import jax, jax.numpy as jnp

def build():
    return jax.jit(lambda x: jnp.tanh(x @ x) + 1), (jnp.eye(64),)
"""
PROFILE = base64.b64encode(bytes_field(1, bytes_field(1, b"dot.1") + double_field(2, 7.5))).decode()
EXPECT = {"JAX_COMPILATION_CACHE_EXPECT_PGLE": "true"}


def environment(changes: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**isolated(), **changes}.items() if value is not None}


def test_beside_a_profiler_of_the_programs_own_no_profile_is_taken(start_worker: StartWorker) -> None:
    worker = start_worker()
    traced = STEP.replace("    return", "    jax.profiler.start_trace('trace')\n    return")
    worker.loaded(traced)
    worker.compile(Variant(id="control"))
    reply = worker.ask(Pgle(variant=Variant(id="x"), runs=1))
    assert isinstance(reply, Failure)
    assert reply.kind is FailureClass.PGLE_INACTIVE
    assert reply.message.startswith("no profiler can be attached to the process, where there can only be one: ")
    assert "Another profiling session active" in reply.message
    worker.round("control")


def test_a_program_that_switches_auto_pgle_on_is_tuned_without(start_worker: StartWorker) -> None:
    worker = start_worker()
    loaded = worker.loaded(STEP.replace("def build", "jax.config.update('jax_enable_pgle', True)\n\ndef build"))
    assert any("switches jax_enable_pgle on itself" in text for text in loaded.notices)
    worker.compile(Variant(id="control"))
    empty = worker.text().count("PGLE collected an empty trace")  # build() ran before it could be switched off
    reply = worker.round("control", steps=5)
    assert not any(isinstance(block, Failure) for block in reply.blocks)
    assert worker.text().count("PGLE collected an empty trace") == empty


def test_what_was_made_with_a_profile_is_found_where_it_is_expected(start_worker: StartWorker, tmp_path: Path) -> None:
    """The warmed cache: a process that has the profile fills it, one that has none finds the executable there."""
    cache = tmp_path / "cache"
    plain = Variant(id="control")
    filling = start_worker(environment({**EXPECT, **sealing(cache)}))
    filling.loaded(STEP)
    made = filling.compile(Variant(id="control", profile=PROFILE))
    filling.round("control", steps=1)
    (entry,) = [module for module in made.modules if "lambda" in module.module]
    assert not entry.hit
    # Another profile doesn't change the key, and production has none at all.
    production = start_worker(environment({**EXPECT, **loading(cache)}))
    production.loaded(STEP)
    found = production.compile(plain)
    assert found.cache_hits == found.cache_requests > 0
    assert [m.key for m in found.modules if "lambda" in m.module] == [entry.key]
    without = start_worker(environment(dict(loading(cache))))
    without.loaded(STEP)
    missed = without.compile(plain)
    assert [m.hit for m in missed.modules if "lambda" in m.module] == [False]


def test_auto_pgle_in_the_environment_stays_on(start_worker: StartWorker) -> None:
    auto = {"JAX_ENABLE_PGLE": "true", "JAX_PGLE_PROFILING_RUNS": "2", "JAX_PGLE_AGGREGATION_PERCENTILE": "90"}
    worker = start_worker(environment({**auto, "JAX_ENABLE_COMPILATION_CACHE": "false"}))
    loaded = worker.loaded(STEP)
    assert not loaded.notices or "jax_enable_pgle" not in " ".join(loaded.notices)
    worker.compile(Variant(id="control"))
    reply = worker.round("control", steps=4)
    assert not any(isinstance(block, Failure) for block in reply.blocks)
    assert "PGLE collected an empty trace" in worker.text()  # it was at work, and a CPU gives it nothing


# The sugar of the text hides what an asynchronous start was made of; `copy-start` is no such start.
ASYNCHRONOUS = """HloModule m

%inner (p: bf16[8]) -> bf16[8] {
  %p = bf16[8]{0} parameter(0)
  ROOT %ppermute.3.1 = bf16[8]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
}

ENTRY %main (x: bf16[8]) -> bf16[8] {
  %x = bf16[8]{0} parameter(0)
  %copy-start = (bf16[8]{0}, bf16[8]{0}, u32[]) copy-start(%x)
  %copy-done = bf16[8]{0} copy-done(%copy-start)
  %collective-permute-start.2 = ((bf16[8]{0}), bf16[8]{0}) async-start(%copy-done), calls=%inner
  ROOT %collective-permute-done.2 = bf16[8]{0} async-done(%collective-permute-start.2)
}
"""


def test_what_an_asynchronous_start_wraps_is_read_from_the_compilers_own_module() -> None:
    import jaxlib._hlo  # type: ignore[import-not-found]

    from tuner.worker.internals import wrapped

    class Executable:
        def hlo_modules(self) -> list[object]:
            return [jaxlib._hlo.hlo_module_from_text(ASYNCHRONOUS)]

    assert "ppermute" not in jaxlib._hlo.hlo_module_from_text(ASYNCHRONOUS).to_string()
    assert wrapped(Executable()) == {"collective-permute-start.2": "ppermute.3.1"}
