"""Verdicts and findings: planted bottlenecks in hand-made GPU traces, and in real steps on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from profile_traces import GPU_HLO, gpu_reply

from tuner.pipeline.profiling import ProfileOptions, profile_workload
from tuner.profile import Bound, Breakdown, Ceiling, StepProfile, analyse, groups_for
from tuner.protocol.messages import TraceLabel

# Of the example module: a product in its loop takes 4.8e9 FLOP, the one after it 1.9e10; at this ceiling 4.8 and 19 us.
CEILING = Ceiling(flops_per_s={"bf16": 1e15, "f32": 1e14, "vector": 5e13}, bytes_per_s=3e12)
GEMM, GELU, COPY = "nvjet_gemm", "loop_gelu_fusion", "MemcpyH2D"
LABELS = {
    GEMM: TraceLabel(name=GEMM, op="gemm_fusion_dot.4", module="jit_train"),
    GELU: TraceLabel(name=GELU, op=GELU, module="jit_train"),
    COPY: TraceLabel(name=COPY, details="kind_src:pinned kind_dst:device size:4194304 dest:0 async:1"),
}

TINY = [(f"tiny_fusion_{i}", 50 + 2 * i, 2, 7) for i in range(24)]


def profile(work: list[tuple[str, float, float, int]], **kwargs: float) -> StepProfile:
    reply = gpu_reply(work, labels=LABELS, step_us=kwargs.get("step_us", 100))
    return analyse(reply, [GPU_HLO], ceiling=CEILING)


def kinds(found: StepProfile) -> set[str]:
    return {finding.kind for finding in found.findings}


@pytest.mark.parametrize(
    ("bound", "step_us", "work", "first"),
    [
        ("compute", 50, [(GEMM, 1, 35, 7)], ("gemm", "library", "autotune", "precision", "launch")),
        ("memory", 40, [(GELU, 1, 30, 7)], ("fusion", "memory", "schedule", "precision", "launch")),
        ("latency", 100, [(GEMM, 1, 95, 7)], ("gemm",)),
        ("latency", 98, [(GEMM, 0, 50, 7), *TINY], ("gemm", "library", "autotune", "precision", "launch", "fusion")),
        ("launch", 100, [(f"tiny_fusion_{i}", 1 + 5 * i, 2, 7) for i in range(19)], ("launch",)),
        ("communication", 100, [(GEMM, 1, 25, 7), ("ncclDevKernel_AllGather", 26, 70, 9)], ("schedule",)),
        ("host", 100, [(GEMM, 40, 25, 7)], ("launch",)),
    ],
)
def test_each_bottleneck_is_named_and_its_knobs_come_first(
    bound: Bound, step_us: float, work: list[tuple[str, float, float, int]], first: tuple[str, ...]
) -> None:
    found = profile(work, step_us=step_us)
    assert found.bound == bound, found.evidence
    assert found.evidence
    knobs = next(finding for finding in found.findings if finding.kind == "knobs")
    assert knobs.groups[: len(first)] == first


def test_without_ceilings_no_roof_is_claimed() -> None:
    found = analyse(gpu_reply([(GEMM, 1, 95, 7)], labels=LABELS), [GPU_HLO])
    assert (found.bound, found.roofline.share) == ("unknown", None)


def test_the_share_of_the_roof() -> None:
    found = profile([(GEMM, 1, 38.65, 7)])
    assert found.breakdown.ops[0].roof == pytest.approx(0.5, rel=0.01)
    assert found.roofline.share == pytest.approx(0.5, rel=0.01)


def test_devices_that_are_one_processor_have_each_their_part_of_the_roof() -> None:
    one, other = (TraceLabel(name=GEMM, op="gemm_fusion_dot.4", module="jit_train", device=n) for n in (0, 1))
    reply = gpu_reply([("a", 1, 77.3, 7), ("b", 1, 77.3, 8)], labels={"a": one, "b": other}, cpu=True)
    found = analyse(reply, [GPU_HLO], ceiling=CEILING)
    assert found.roofline.share == pytest.approx(0.5, rel=0.01)
    assert found.breakdown.ops[0].flops == 2 * 4096 * 768 * 3072
    assert found.roofline.ceiling is not None
    assert found.roofline.ceiling.flops_per_s["bf16"] == CEILING.flops_per_s["bf16"] / 2
    assert "2 devices share this processor" in found.roofline.note


def test_an_operation_that_takes_two_kernels_is_done_once() -> None:
    labels = {**LABELS, "splitKreduce": TraceLabel(name="splitKreduce", op="gemm_fusion_dot.4", module="jit_train")}
    work = [(GEMM, 1, 30, 7), ("splitKreduce", 31, 8.65, 7)]
    row = analyse(gpu_reply(work, labels=labels), [GPU_HLO], ceiling=CEILING).breakdown.ops[0]
    assert (row.calls, row.flops, row.kernel) == (2, 2 * 4096 * 768 * 3072, GEMM)
    assert row.roof == pytest.approx(0.5, rel=0.01)


def test_rows_beyond_the_longest_become_one() -> None:
    names = [f"k{i}" for i in range(70)]
    breakdown = analyse(gpu_reply([(name, i, 1, 7) for i, name in enumerate(names)]), []).breakdown
    assert [row.name for row in breakdown.ops[60:]] == ["10 others"]
    assert sum(row.self_ms for row in breakdown.ops) == pytest.approx(breakdown.busy_ms) == 0.07


def test_transforms_of_several_passes_are_held_back_by_the_memory() -> None:
    """As on an H100: a copy and three passes over 4096 x 4096 numbers, 254 us; then 98 us of arithmetic."""
    half, whole = "c64[4096,2049]{1,0}", "f32[4096,4096]{1,0}"
    text = f"""HloModule jit_step

%fused (a: f32[4096,4096], b: f32[4096,4096]) -> f32[4096,4096] {{
  %a = {whole} parameter(0)
  %b = {whole} parameter(1)
  ROOT %s = {whole} add(%a, %b)
}}

ENTRY %main (x: c64[4096,2049], y: f32[4096,4096]) -> f32[4096,4096] {{
  %x = {half} parameter(0)
  %y = {whole} parameter(1)
  %fft.5 = {whole} fft(%x), fft_type=IRFFT, fft_length={{4096,4096}}
  ROOT %loop_add_fusion = {whole} fusion(%fft.5, %y), kind=kLoop, calls=%fused
}}
"""
    names = ("MemcpyD2D", "regular_fft_a", "regular_fft_b", "vector_fft_c2r")
    labels = {name: TraceLabel(name=name, op="fft.5", module="jit_step") for name in names}
    work = [("MemcpyD2D", 0, 44, 7), *((name, 44 + 70 * i, 70, 7) for i, name in enumerate(names[1:]))]
    work.append(("loop_add_fusion", 254, 98, 7))
    ceiling = Ceiling(flops_per_s={"f32": 4e14, "vector": 1.67e13}, bytes_per_s=2.48e12)
    found = analyse(gpu_reply(work, labels=labels, step_us=360), [text], ceiling=ceiling)
    transform = found.breakdown.ops[0]
    assert (transform.category, transform.calls, transform.bound) == ("Fourier transform", 4, "memory")
    assert transform.roof == pytest.approx(0.85, abs=0.02)
    assert found.breakdown.parts["Fourier transform"] == pytest.approx(0.21)
    assert found.breakdown.parts["copy on device"] == pytest.approx(0.044)
    assert found.bound == "memory"


@pytest.mark.parametrize(
    ("bound", "parts", "groups"),
    [
        (
            "compute",
            {"matrix multiply": 50.2, "convolution": 0.8, "elementwise": 36.7, "reduction": 4.1, "data movement": 3.4},
            ("gemm", "library", "autotune", "precision", "fusion", "codegen", "hlo"),
        ),
        (
            "compute",
            {"matrix multiply": 0.82, "attention": 1.76, "data movement": 0.19, "host gaps": 0.69},
            ("gemm", "cudnn", "library", "autotune"),
        ),
        ("memory", {"elementwise": 0.36, "Fourier transform": 0.63, "copy on device": 0.09}, ("fusion", "memory")),
        (
            "launch",
            {"matrix multiply": 0.51, "elementwise": 0.37, "copy on device": 0.1},
            ("launch", "fusion", "loops"),
        ),
    ],
    ids=["gpt", "attention", "pde", "mlp"],
)
def test_what_to_try_first_on_the_shipped_workloads_as_an_h100_ran_them(
    bound: Bound, parts: dict[str, float], groups: tuple[str, ...]
) -> None:
    whole = sum(parts.values())
    breakdown = Breakdown(platform="gpu", steps=10, devices=1, step_ms=whole, parts=parts, busy_ms=whole)
    assert groups_for(breakdown, bound)[: len(groups)] == groups


def test_copies_inside_the_step_are_named() -> None:
    found = profile([(COPY, 1, 60, 8), (GEMM, 62, 30, 7)])
    assert found.bound == "host"
    assert "transfer" in kinds(found)


def test_products_in_float32_are_named_where_bfloat16_is_faster() -> None:
    wide = GPU_HLO.replace("bf16", "f32")
    reply = gpu_reply([(GEMM, 1, 95, 7)], labels=LABELS)
    found = analyse(reply, [wide], ceiling=CEILING)
    finding = next(f for f in found.findings if f.kind == "float32")
    assert finding.where == "/home/me/train.py:12"
    busy = Ceiling(flops_per_s=CEILING.flops_per_s, bytes_per_s=CEILING.bytes_per_s, unsteady=("f32",))
    unsure = analyse(reply, [wide], ceiling=busy)
    assert "float32" not in kinds(unsure)
    assert unsure.roofline.note == "what this device can do at most was measured while it was busy: f32"
    even = Ceiling(flops_per_s={"bf16": 1e14, "f32": 1e14}, bytes_per_s=3e12)
    assert "float32" not in kinds(analyse(reply, [wide], ceiling=even))
    assert "float32" not in kinds(analyse(reply, [GPU_HLO], ceiling=CEILING))


def test_products_that_wait_for_something_else_gain_nothing_from_a_narrower_type() -> None:
    wide = GPU_HLO.replace("bf16", "f32")
    slow = Ceiling(flops_per_s={"bf16": 8e14, "f32": 4.5e14, "vector": 5e13}, bytes_per_s=3e12)
    for lasts_us, told in ((95.0, False), (60.0, True)):
        found = analyse(gpu_reply([(GEMM, 1, lasts_us, 7)], labels=LABELS), [wide], ceiling=slow)
        assert ("float32" in kinds(found)) == told, found.breakdown.ops[0].roof


def test_too_little_work_is_named_beside_what_is_the_first_bound() -> None:
    found = profile([(GEMM, 0, 50, 7), *TINY])
    assert found.bound == "latency"
    (finding,) = (f for f in found.findings if f.kind == "tiny")
    assert "48 % of the step are launches and kernels no longer than one" in finding.text


def test_too_little_work_is_named() -> None:
    assert "tiny" in kinds(profile([(f"tiny_fusion_{i}", 10 * i, 2, 7) for i in range(8)]))
    assert "tiny" not in kinds(profile([(GEMM, 1, 95, 7)]))


@pytest.mark.parametrize(("lasts_us", "told"), [(4, True), (40, False)])
def test_too_little_work_on_a_cpu_leaves_no_gaps(lasts_us: float, told: bool) -> None:
    """Its operations follow each other without a pause, however short they are."""
    work = [(f"fusion.{i}", lasts_us * i, lasts_us, 7) for i in range(24)]
    labels = {name: TraceLabel(name=name, op=name, module="jit_step") for name, *_ in work}
    found = analyse(gpu_reply(work, step_us=24 * lasts_us, labels=labels, cpu=True), [], ceiling=CEILING)
    assert ("tiny" in kinds(found)) == told
    if told:
        (finding,) = (f for f in found.findings if f.kind == "tiny")
        assert "100 % of the step are operations of less than 5 us each" in finding.text


def test_a_compile_in_a_steady_step_is_named_with_its_function_and_line() -> None:
    host = [("PjitFunction(augment)", 5, 60), ("backend_compile_and_load", 10, 50)]
    python = [("$train.py:31 augment", 4, 70), ("$pjit.py:200 cache_miss", 6, 60)]
    reply = gpu_reply([(GEMM, 70, 25, 7)], steps=2, labels=LABELS, host=host, python=python)
    finding = next(f for f in analyse(reply, [GPU_HLO]).findings if f.kind == "recompiles")
    assert "2 compiles in 2 steady steps (augment)" in finding.text
    assert finding.where == "train.py:31 augment"


PLANTED = {
    "callback": """
import jax, jax.numpy as jnp, numpy as np
def build():
    def step(x):
        y = jnp.sin(x)
        z = jax.pure_callback(lambda a: np.cos(np.asarray(a)), jax.ShapeDtypeStruct(x.shape, x.dtype), y)
        return x + z
    return step, (jnp.ones((300, 300)),)
""",
    "recompiles": """
import jax, jax.numpy as jnp, numpy as np
sizes = iter(range(1, 10000))
def on_host(a):
    fresh = jax.jit(lambda v: v * 2 + 1)
    fresh(np.ones(next(sizes), np.float32))
    return np.asarray(a)
def build():
    def step(x):
        return x + jax.pure_callback(on_host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    return step, (jnp.ones((30, 30)),)
""",
    "constants": """
import jax.numpy as jnp, numpy as np
table = np.random.default_rng(0).random((1024, 600), np.float32)
def build():
    def step(x):
        return x * 0.5 + (x @ table.T) @ table
    return step, (jnp.ones((16, 600)),)
""",
    "tiny": """
import jax.numpy as jnp
def build():
    def step(x):
        return jnp.tanh(x) + 1
    return step, (jnp.ones((4,)),)
""",
    "": """
import jax.numpy as jnp
def build():
    def step(x):
        return jnp.tanh(x @ x) * 0.01
    return step, (jnp.ones((700, 700)),)
""",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ceilings are measured for the first of them alone."""
    return tmp_path_factory.mktemp("root")


@pytest.mark.jax
@pytest.mark.parametrize("kind", PLANTED)
def test_planted_bottlenecks_are_found_in_real_steps(
    kind: str, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # no run of somebody else's is waited for
    workload = tmp_path / "planted.py"
    workload.write_text(PLANTED[kind])
    options = ProfileOptions(workload=workload, folder=tmp_path / "out", root=root, platform="cpu", steps=3)
    for _ in range(3):  # a machine that is busy with something else is said to be, and judged again
        found = profile_workload(options).profile
        assert found is not None
        if not found.breakdown.doubt:
            break
    told = {f.kind: f for f in found.findings if f.kind != "knobs"}
    assert kind in told if kind else not told, found
    lines = {"callback": "planted.py:6", "recompiles": "planted.py:4 on_host", "constants": "planted.py:6"}
    if kind in lines:
        assert told[kind].where.endswith(lines[kind])
    assert sum(found.breakdown.parts.values()) == pytest.approx(found.breakdown.step_ms)
    assert Path(found.files["perfetto"]).stat().st_size > 0
    assert Path(found.files["memory"]).stat().st_size > 0
    assert (tmp_path / "out" / "as-run" / "plugins" / "profile").is_dir()
