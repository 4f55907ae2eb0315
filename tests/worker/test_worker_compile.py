"""Compiling variants in a real worker: one executable each, fingerprints, release."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from worker_driver import Worker

from tuner.profile.guided import facts_of, unusable
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Compiled, Pgle, PgleReply, Probe, Profile, ProfileReply, Variant

pytestmark = pytest.mark.jax

# Element-wise work and sums: it compiles to machine code (not to a library call), so that code-generation flags show.
# With `loop` it is a loop over very little data. The file beside it counts the compilations of the back end.
SOURCE = """
import pathlib
import jax, jax.numpy as jnp

count = [0]
def listen(event, seconds, **details):
    if event == "/jax/core/compile/backend_compile_duration":
        count[0] += 1
        pathlib.Path(__file__).with_name("compiles").write_text(str(count[0]))
jax.monitoring.register_event_duration_secs_listener(listen)

def build(loop=False):
    n = 4 if loop else 2048
    def step(state, x):
        w, h = state
        def cell(h, x):
            h = jnp.tanh(x + w * h) / (1 + jnp.exp(-h))
            return h, h.sum()
        if loop:
            h, sums = jax.lax.scan(cell, h, x)
        else:
            h, sums = cell(h, x[0])
        return (w * 0.999 + (x.T * x.T).mean() * 1e-3, h), sums, x[:, :4] @ x[:4, :8]
    step = jax.jit(step, donate_argnums=0)
    return step, ((jnp.ones(n), jnp.zeros(n)), jnp.linspace(-1, 1, 8 * n).reshape(8, n))
"""

FLAGS = {
    "fast_math": {"xla_cpu_enable_fast_math": True},
    "vector_width": {"xla_cpu_prefer_vector_width": 128},
    "opt_level": {"xla_backend_optimization_level": 0},
}


def results(worker: Worker, *variants: Variant, threads: int = 1) -> dict[str, Compiled]:
    reply = worker.compile(*variants, threads=threads)
    assert all(isinstance(result, Compiled) for result in reply.results), reply
    return {result.id: result for result in reply.results if isinstance(result, Compiled)}


def compiles(worker: Worker) -> int:
    return int((worker.folder / "compiles").read_text())


@pytest.fixture(scope="module")
def worker(start_worker) -> Worker:
    worker = start_worker()
    loaded = worker.loaded(SOURCE)
    assert loaded.carried == ("args[0][0] <- out[0][0]", "args[0][1] <- out[0][1]")
    return worker


@pytest.fixture(scope="module")
def control(worker: Worker) -> Compiled:
    return results(worker, Variant(id="control"))["control"]


def test_what_is_inspected_and_what_is_called_is_one_executable(worker: Worker, control: Compiled) -> None:
    before = compiles(worker)
    results(worker, Variant(id="a", compiler_options=FLAGS["fast_math"]))
    assert compiles(worker) == before + 1
    reply = worker.round("control", "a", "control", steps=5)
    assert [block.id for block in reply.blocks] == ["control", "a", "control"]
    assert all(block.seconds > 0 and block.first_s > 0 for block in reply.blocks)
    worker.round("a", reset=False)
    assert compiles(worker) == before + 1
    worker.release("a")


def test_configuration_values_hold_for_calls_without_another_compile(worker: Worker, control: Compiled) -> None:
    before = compiles(worker)
    made = results(worker, Variant(id="p", jax_config={"jax_default_matmul_precision": "highest"}))["p"]
    assert made.program != control.program
    worker.round("p", "control")
    assert compiles(worker) == before + 1
    worker.release("p")
    worker.round("control")
    assert compiles(worker) == before + 1


def test_a_failing_variant_disturbs_no_other(worker: Worker, control: Compiled) -> None:
    reply = worker.compile(
        Variant(id="unknown", compiler_options={"xla_no_such_flag": True}),
        Variant(id="bad", compiler_options={"xla_cpu_enable_fast_math": "true"}),
        Variant(id="config", jax_config={"jax_no_such_option": 1}),
        Variant(id="good", compiler_options=FLAGS["vector_width"]),
        threads=2,
    )
    failures = [result for result in reply.results if isinstance(result, Failure)]
    assert [failure.kind for failure in failures] == [
        FailureClass.UNSUPPORTED,
        FailureClass.BAD_VALUE,
        FailureClass.UNSUPPORTED,
    ]
    assert failures[0].message == "INVALID_ARGUMENT: No such compile option: 'xla_no_such_flag'"
    assert {failure.phase for failure in failures} == {"compile"}
    assert isinstance(reply.results[3], Compiled)
    blocks = worker.round("unknown", "good").blocks
    assert isinstance(blocks[0], Failure)
    assert not isinstance(blocks[1], Failure)
    worker.release("good")


def test_released_executables_are_freed_and_others_go_on_without_a_compile(worker: Worker, control: Compiled) -> None:
    names = [*FLAGS]
    live = worker.release()
    made = results(worker, *(Variant(id=name, compiler_options=FLAGS[name]) for name in names))
    assert set(made) == set(names)
    worker.round(*names)
    assert worker.release() == live + len(names)
    before = compiles(worker)
    assert worker.release(*names, "never compiled") == live
    worker.round("control")
    assert compiles(worker) == before


def test_equal_options_under_two_ids_share_and_an_id_can_be_used_again(worker: Worker, control: Compiled) -> None:
    live = worker.release()
    made = results(worker, Variant(id="again"))
    assert worker.release() == live
    assert (made["again"].program, made["again"].code) == (control.program, control.code)
    assert results(worker, Variant(id="again", compiler_options=FLAGS["opt_level"]))["again"].code != control.code
    worker.release("again")
    before = compiles(worker)
    worker.round("control")
    assert compiles(worker) == before


def test_code_differs_where_flags_change_it_and_agrees_between_compiles_and_processes(
    worker: Worker, control: Compiled, start_worker, tmp_path
) -> None:
    variants = [Variant(id=name, compiler_options=FLAGS[name]) for name in FLAGS]
    variants.append(Variant(id="inert", compiler_options={"xla_gpu_ftz": True}))
    first = results(worker, *variants, threads=2)
    worker.release(*first)
    second = results(worker, *variants)
    worker.release(*second)
    assert {name: made.code for name, made in first.items()} == {name: made.code for name, made in second.items()}
    assert len({control.code, *(first[name].code for name in FLAGS)}) == 1 + len(FLAGS)
    assert first["inert"].code == control.code
    assert {made.program for made in first.values()} == {control.program}
    assert control.code_covers == "hlo+codegen"

    other = start_worker()
    other.loaded("\n\n" + SOURCE)  # the same step from another line of the file
    made = results(other, *variants, Variant(id="control"))
    assert made.pop("control").code == control.code
    assert {name: each.code for name, each in made.items()} == {name: each.code for name, each in first.items()}
    assert {each.program for each in made.values()} == {control.program}


def test_the_persistent_cache_is_reported_and_what_comes_out_of_it_is_told_by_its_hlo(
    control: Compiled, start_worker, tmp_path
) -> None:
    env = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    told: dict[str, dict[str, str]] = {}
    for hit in (False, True):
        worker = start_worker(env)
        worker.loaded(SOURCE)
        reply = worker.compile(Variant(id="a"), Variant(id="b", compiler_options=FLAGS["opt_level"]), threads=2)
        assert (reply.cache_requests, reply.cache_hits) == (2, 2 * hit)
        a, b = (result for result in reply.results if isinstance(result, Compiled))
        assert (a.cache_hit, b.cache_hit) == (hit, hit)
        assert {a.program, b.program} == {control.program}
        assert a.code_covers == ("hlo" if hit else "hlo+codegen")
        assert a.code[:16] == b.code[:16] == control.code[:16]
        assert (a.code == control.code) is not hit
        keys = [(m.module, m.hit) for m in reply.modules if m.module == "jit_step"]
        assert keys == [("jit_step", hit)] * 2
        assert {m.key for m in reply.modules if m.hit is hit} == {m.key for m in reply.modules}
        assert len(reply.modules) > 2  # what build() compiled is told too
        assert {m.module for m in worker.compile(Variant(id="a")).modules} == {"jit_step"}  # each is told once
        fields = {m.key: m.fields for m in reply.modules}
        assert all(m.key.startswith(m.module) and "accelerator_config" in m.fields for m in reply.modules)
        told = told or fields
        assert fields == told


PRODUCTION = """
import jax
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)
import workload
step, args = workload.build()
hits.clear()
jax.block_until_ready(step(*args))
print("hits", len(hits))
"""


def test_production_code_finds_what_the_worker_left_in_the_persistent_cache(start_worker, tmp_path) -> None:
    """The module's name, its source lines and its donation are those of the workload, not of our wrapper."""
    cache = tmp_path / "cache"
    env = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
        "JAX_PLATFORMS": "cpu",
    }
    worker = start_worker(env)
    worker.loaded(SOURCE)
    results(worker, Variant(id="control"))
    assert worker.close() == 0
    command = [sys.executable, "-c", PRODUCTION]
    done = subprocess.run(command, cwd=worker.folder, env=os.environ | env, capture_output=True, text=True)
    assert done.stdout.strip() == "hits 1", done.stderr


def test_a_program_whose_code_is_never_twice_alike_is_told_by_its_hlo(start_worker) -> None:
    """A loop over very little data becomes one kernel with its arguments in an order of chance."""
    worker = start_worker()
    worker.loaded(SOURCE, knobs={"loop": True})
    made = []
    for _ in range(3):
        made.append(results(worker, Variant(id="control"))["control"])
        worker.release("control")
    assert {each.code_covers for each in made} == {"hlo"}
    assert len({each.code for each in made}) == 1
    assert len({each.program for each in made}) == 1


def test_sizes_and_cache_use_are_reported(control: Compiled) -> None:
    assert control.peak_bytes is not None
    assert control.peak_bytes > 8 * 2048 * 4
    assert control.cache_hit is None
    assert control.collectives == {}
    assert control.sketch is not None
    assert control.sketch.operations["tanh"] == 1
    assert (control.sketch.devices, control.sketch.input_bytes) == (1, 4 * (2 * 2048 + 8 * 2048))
    assert control.lower_s > 0
    assert control.compile_s > 0


def test_probing_names_and_values_compiles_nothing(worker: Worker, control: Compiled) -> None:
    before = worker.release()
    reply = worker.ask(
        Probe(
            names=(
                "xla_cpu_enable_fast_math",
                "xla_cpu_prefer_vector_width",
                "xla_dump_to",
                "xla_nope",
                "optimization_level",
            ),
            values={
                "xla_cpu_enable_fast_math": (True, "true"),
                "xla_dump_to": ("/tmp",),
                "optimization_level": (19, "x"),
            },
        )
    )
    assert reply.types == {
        "xla_cpu_enable_fast_math": "bool",
        "xla_cpu_prefer_vector_width": "int32",
        "xla_dump_to": "string",
        "xla_nope": None,
        "optimization_level": "int32",
    }
    assert reply.bad_values.keys() == {"xla_cpu_enable_fast_math", "optimization_level"}
    assert "'true' is not a valid bool value" in reply.bad_values["xla_cpu_enable_fast_math"]["true"]
    assert reply.bad_values["optimization_level"].keys() == {"x"}
    assert worker.release() == before


def test_a_trace_is_written_and_a_pgle_profile_of_a_cpu_is_empty(worker: Worker, control: Compiled) -> None:
    reply = worker.ask(Profile(id="control", steps=2, block=5, folder=str(worker.folder / "trace")))
    assert isinstance(reply, ProfileReply)
    assert reply.xplane.endswith(".xplane.pb")
    assert reply.seconds > 0
    assert reply.dispatch_s > 0
    assert reply.plain_s > 0
    assert reply.under_s > 0
    assert all(Path(path).stat().st_size > 0 for path in (reply.perfetto, reply.memory, *reply.hlo.values()))
    marks = [n for line in reply.lines for n in line.labels if reply.labels[n].name == "tune_step"]
    assert len(marks) == 2
    # The five steps before them are of no use.
    first = min(s for line in reply.lines for n, s in zip(line.labels, line.starts_ns, strict=True) if n == marks[0])
    ends = [s + d for line in reply.lines for s, d in zip(line.starts_ns, line.durations_ns, strict=True)]
    assert min(ends) > first
    assert {label.module for label in reply.labels if label.op} == {*reply.hlo}
    assert not any(label.name.startswith(("$", "end: ")) for label in reply.labels)
    second = worker.ask(Profile(id="control", steps=1, folder=str(worker.folder / "second"), python=True))
    assert isinstance(second, ProfileReply)
    assert (second.plain_s, second.under_s, second.dispatch_s, second.perfetto) == (0.0, 0.0, 0.0, "")
    assert any(label.name.startswith("$") for label in second.labels)
    marked = worker.ask(Profile(id="control", steps=1, folder=str(worker.folder / "third"), nsight=True))
    assert isinstance(marked, Failure)
    assert "there is none" in marked.message
    guide = worker.ask(Pgle(variant=Variant(id="x"), runs=2))
    assert isinstance(guide, PgleReply)
    assert (guide.profile, guide.instructions, guide.traces) == ("", 0, ("", ""))
    facts = facts_of(guide)
    assert (facts.operations > 0, facts.traces, facts.spread) == (True, 0, None)
    assert unusable(facts).startswith("the profile is empty")
    before = compiles(worker)
    worker.round("control")
    assert compiles(worker) == before


def test_what_lowers_to_another_program_is_compiled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longest. Answers come in the order of the questions all the same."""
    from tuner.worker import compile as compiling

    started, both = [], threading.Barrier(2)

    def compile_it(session: object, item: compiling._Lowered) -> str:
        started.append(item.plan.options["name"])
        if item.plan.jax_config:
            both.wait(30)
        return item.plan.options["name"]

    monkeypatch.setattr(compiling, "_lower", lambda session, plan: compiling._Lowered(plan, {}, {}, 0.0))
    monkeypatch.setattr(compiling, "_compile", compile_it)
    plans = [compiling._Plan({"name": name}, {"jax_x": 1} if name in "ce" else {}) for name in "abcde"]
    session: Any = SimpleNamespace(gang=None)
    assert compiling._batch(session, plans, 2) == [*"abcde"]
    assert sorted(started[:2]) == ["c", "e"]
