"""Where time goes in hand-made traces of which every part is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_traces import GPU_HLO, gpu_reply

from tuner.profile.attribution import attributed, coverage
from tuner.profile.breakdown import HOST_GAPS, LAUNCH_GAPS, break_down
from tuner.profile.categories import kernel_category
from tuner.profile.hlo import read_module
from tuner.profile.scopes import scope_path
from tuner.profile.timeline import timeline
from tuner.profile.types import Breakdown
from tuner.protocol.messages import ProfileReply, TraceLabel

MODULES = {"jit_train": read_module(GPU_HLO)}
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"


def broken_down(reply: ProfileReply) -> Breakdown:
    return break_down(timeline(reply.labels, reply.lines, MODULES), MODULES)


def test_a_collective_behind_work_is_hidden_and_the_rest_of_it_exposed() -> None:
    """Work from 10 to 50 and 60 to 70; a collective from 40 to 65 on another stream: 15 us of it hidden, 10 exposed."""
    found = broken_down(
        gpu_reply([("gemm_a", 10, 40, 7), ("loop_add_fusion", 60, 10, 7), (NCCL, 40, 25, 9)], steps=3, step_us=100)
    )
    assert found.hidden_ms == pytest.approx(0.015)
    assert found.exposed_ms == pytest.approx(0.010)
    assert found.parts == pytest.approx(
        {"matrix multiply": 0.04, "elementwise": 0.01, "collective": 0.01, HOST_GAPS: 0.04}
    )


def test_on_a_cpu_the_work_of_one_device_hides_no_collective_of_another() -> None:
    """Two devices of one host: a product from 10 to 50 on each; the collective between them from 50 to 90, on device 1
    from 20 on, half of that behind its product."""
    work = [("dot_a", 10, 40, 1), ("all-reduce_a", 50, 40, 1), ("dot_b", 10, 40, 2), ("all-reduce_b", 20, 70, 3)]
    labels = {
        f"{name}_{of}": TraceLabel(name=name, op=name, module="jit_train", device=device)
        for name in ("dot", "all-reduce")
        for device, of in enumerate("ab")
    }
    found = broken_down(gpu_reply(work, labels=labels, cpu=True))
    assert (found.platform, found.devices, found.kernels) == ("cpu", 2, 2)
    assert found.hidden_ms == pytest.approx(0.015)
    assert found.exposed_ms == pytest.approx(0.040)
    assert found.parts == pytest.approx({"matrix multiply": 0.04, "collective": 0.04, HOST_GAPS: 0.02})
    assert {row.name: row.calls for row in found.ops} == {"dot": 1, "all-reduce": 1}


def test_pauses_are_launches_if_they_are_short_and_the_hosts_if_they_are_long_or_at_the_ends() -> None:
    found = broken_down(gpu_reply([("gemm_a", 5, 20, 7), ("gemm_b", 30, 20, 7), ("gemm_c", 80, 15, 7)], step_us=100))
    assert found.parts == pytest.approx({"matrix multiply": 0.055, LAUNCH_GAPS: 0.005, HOST_GAPS: 0.005 + 0.03 + 0.005})


def test_copies_count_only_while_nothing_else_runs_and_by_their_kind() -> None:
    work = [("MemcpyH2D", 0, 30, 8), ("gemm_a", 20, 60, 7), ("MemcpyD2H", 80, 15, 8), ("MemcpyD2D", 95, 5, 7)]
    found = broken_down(gpu_reply(work))
    assert found.parts == pytest.approx(
        {
            "matrix multiply": 0.06,
            "copy on device": 0.005,
            "copy host to device": 0.02,
            "copy device to host": 0.015,
        }
    )


def test_details_of_a_launch_and_the_share_in_graphs() -> None:
    details = "regs:128 static_shared:0 dynamic_shared:49152 grid:96,1,1 block:256,1,1 occ_pct:12.5"
    labels = {"gemm_a": TraceLabel(name="gemm_a", details=details, graph=True)}
    found = broken_down(gpu_reply([("gemm_a", 0, 90, 7), ("add_fusion", 90, 10, 7)], labels=labels))
    assert (found.ops[0].registers, found.ops[0].occupancy, found.graphs) == (128, 0.125, 0.5)
    assert found.kernels == 2


def test_operations_of_the_hlo_give_kind_scope_and_line() -> None:
    labels = {
        GEMM: TraceLabel(name=GEMM, op="cublas-gemm.3", module="jit_train"),
        "loop_gelu_fusion": TraceLabel(name="loop_gelu_fusion"),  # a kernel named after its operation
    }
    found = broken_down(gpu_reply([(GEMM, 0, 60, 7), ("loop_gelu_fusion", 60, 40, 7)], labels=labels))
    gemm, gelu = found.ops
    assert (gemm.name, gemm.category, gemm.scope, gemm.kernel) == ("cublas-gemm.3", "matrix multiply", "block", GEMM)
    assert gemm.source == "/home/me/train.py:12"
    assert (gelu.name, gelu.category, gelu.scope) == ("loop_gelu_fusion", "elementwise", "mlp/gelu")
    assert {s.name: s.total_ms for s in found.scopes} == pytest.approx({"block": 0.06, "mlp": 0.04, "mlp/gelu": 0.04})
    assert found.attributed == 1.0


def test_graph_kernels_get_their_operations_from_the_other_trace_in_order() -> None:
    """The same kernel runs for two operations: only its place tells which is which."""
    first, second = "cublas-gemm.3", "gemm_fusion_dot.4"
    as_run = gpu_reply([(GEMM, 0, 30, 7), ("tail", 30, 10, 7), (GEMM, 40, 60, 7)], steps=2)
    named = gpu_reply(
        [("one", 0, 40, 7), ("tail", 50, 10, 7), ("two", 70, 60, 7)],
        step_us=200,
        labels={
            "one": TraceLabel(name=GEMM, op=first, module="jit_train"),
            "two": TraceLabel(name=GEMM, op=second, module="jit_train"),
        },
    )
    line = timeline(as_run.labels, as_run.lines, MODULES)
    joined = attributed(line, timeline(named.labels, named.lines, MODULES), MODULES)
    assert [e.op for e in joined.devices["/device:GPU:0"]] == [first, "", second] * 2
    assert coverage(line) == 0.0
    assert coverage(joined) == pytest.approx(0.9)
    found = break_down(joined, MODULES)
    assert {row.name: row.self_ms for row in found.ops} == pytest.approx({second: 0.06, first: 0.03, "tail": 0.01})


def test_a_kernel_more_in_one_trace_does_not_shift_the_others() -> None:
    names = ["a", "b", "c", "d"]
    named_labels = {n: TraceLabel(name=n, op=op) for n, op in zip(names, ["o1", "o2", "o3", "o4"], strict=True)}
    as_run = gpu_reply([(n, 10 * i, 10, 7) for i, n in enumerate(["a", "b", "new", "c", "d"])])
    named = gpu_reply([(n, 10 * i, 10, 7) for i, n in enumerate(names)], labels=named_labels)
    joined = attributed(timeline(as_run.labels, as_run.lines, {}), timeline(named.labels, named.lines, {}), {})
    assert [e.op for e in joined.devices["/device:GPU:0"]] == ["o1", "o2", "", "o3", "o4"]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("abcd", "abcd", "abcd"),
        ("abXcd", "abcd", "ab.cd"),  # one more
        ("abd", "abcd", "abd"),  # one less
        ("abXd", "abcd", "abcd"),  # another kernel, known by its place
        ("abX", "abc", "abc"),
        ("Xbcd", "abcd", "abcd"),
        ("abXYcde", "abcde", "ab..cde"),
        ("abcabcabXabcabc", "abcabcabcabcabc", "abcabcabcabcabc"),  # layers that are alike
        ("abcabcabcabc", "abcabcXabcabc", "abcabcabcabc"),
        ("", "abc", ""),
        ("abc", "", "..."),
    ],
)
def test_a_kernel_in_one_trace_finds_its_place_in_the_other(ours: str, theirs: str, expected: str) -> None:
    as_run = gpu_reply([(name, 2 * i, 1, 7) for i, name in enumerate(ours)])
    labels = {name: TraceLabel(name=name, op=f"op-{name}") for name in theirs}
    named = gpu_reply([(name, 2 * i, 1, 7) for i, name in enumerate(theirs)], labels=labels)
    joined = attributed(timeline(as_run.labels, as_run.lines, {}), timeline(named.labels, named.lines, {}), {})
    found = [event.op.removeprefix("op-") or "." for of in joined.devices.values() for event in of]
    assert "".join(found) == expected


def test_another_kernel_in_the_place_of_one_is_its_only_if_it_does_the_same_kind_of_work() -> None:
    theirs = ["a", "nvjet_128x64", "b", "c", "d", "loop_add_fusion", "e", "f", "g", "nvjet_64x64", "h", "i", "j"]
    ours = [
        "a",
        "sm90_xmma_gemm",
        "b",
        "c",
        "d",
        "nvjet_256x64",
        "e",
        "f",
        "g",
        "nvjet_1",
        "splitKreduce",
        "h",
        "i",
        "j",
    ]
    as_run = gpu_reply([(name, 2 * i, 1, 7) for i, name in enumerate(ours)])
    labels = {name: TraceLabel(name=name, op=f"op-{name}") for name in theirs}
    named = gpu_reply([(name, 2 * i, 1, 7) for i, name in enumerate(theirs)], labels=labels)
    joined = attributed(timeline(as_run.labels, as_run.lines, {}), timeline(named.labels, named.lines, {}), {})
    ops = {event.name: event.op for event in joined.devices["/device:GPU:0"]}
    assert ops["sm90_xmma_gemm"] == "op-nvjet_128x64"
    assert ops["nvjet_256x64"] == ""
    assert ops["nvjet_1"] == ops["splitKreduce"] == "op-nvjet_64x64"  # a call of a library may run several
    assert all(ops[name] == f"op-{name}" for name in "abcdefghij")


def test_kernels_that_are_elsewhere_in_the_other_trace_are_known_by_their_names_if_as_many_are_there() -> None:
    ours, theirs = "abcdefgXhijYY", "XabcYdefghij"
    as_run = gpu_reply([(name, 2 * i, 1, 7) for i, name in enumerate(ours)])
    labels = {name: TraceLabel(name=name, op=f"op-{name}") for name in theirs}
    named = gpu_reply([(name, 2 * i, 1, 7) for i, name in enumerate(theirs)], labels=labels)
    joined = attributed(timeline(as_run.labels, as_run.lines, {}), timeline(named.labels, named.lines, {}), {})
    found = [event.op.removeprefix("op-") or "." for event in joined.devices["/device:GPU:0"]]
    assert "".join(found) == "abcdefgXhij.."


@pytest.mark.slow
def test_a_step_of_four_thousand_kernels_with_a_few_others_among_them() -> None:
    layer = [f"k{i % 9}" for i in range(20)]
    theirs = layer * 200
    ours = [f"other{i}" if i % 97 == 5 else name for i, name in enumerate(theirs)]
    as_run = gpu_reply([(name, 0.02 * i, 0.01, 7) for i, name in enumerate(ours)])
    labels = {name: TraceLabel(name=name, op=f"op-{name}") for name in theirs}
    named = gpu_reply([(name, 0.02 * i, 0.01, 7) for i, name in enumerate(theirs)], labels=labels)
    joined = attributed(timeline(as_run.labels, as_run.lines, {}), timeline(named.labels, named.lines, {}), {})
    assert [event.op for event in joined.devices["/device:GPU:0"]] == [f"op-{name}" for name in theirs]


def test_a_loop_on_a_cpu_has_what_it_runs_as_its_total() -> None:
    label = {"while": TraceLabel(name="while.2", op="while.2", module="jit_train")}
    label["dot"] = TraceLabel(name="cublas-gemm.3", op="cublas-gemm.3", module="jit_train")
    reply = gpu_reply([("while", 0, 90, 1), ("dot", 10, 30, 1), ("dot", 50, 30, 2)], labels=label, cpu=True)
    found = broken_down(reply)
    loop = next(row for row in found.ops if row.name == "while.2")
    assert (loop.self_ms, loop.total_ms) == pytest.approx((0.03, 0.09))
    assert next(row for row in found.ops if row.name == "cublas-gemm.3").calls == 2


def test_a_whole_graph_owns_only_what_its_kernels_leave_and_gives_them_no_name() -> None:
    """The launch of a graph may name its kernels after the call that it is in the program."""
    text = GPU_HLO.replace("%while.2 = ", "%call.7 = ").replace(
        "while(%init.1), condition=%cond, body=%body", "call(%init.1), to_apply=%body"
    )
    modules = {"jit_train": read_module(text)}
    labels = {
        "CudaGraphExec:3": TraceLabel(name="CudaGraphExec:3", graph=True),
        GEMM: TraceLabel(name=GEMM, op="call.7", module="jit_train", graph=True),
    }
    reply = gpu_reply([("CudaGraphExec:3", 0, 90, 7), (GEMM, 10, 30, 7), (GEMM, 50, 30, 7)], labels=labels)
    line = timeline(reply.labels, reply.lines, modules)
    assert coverage(line) == 0.0
    found = break_down(line, modules)
    assert found.parts == pytest.approx({"matrix multiply": 0.06, "loop control": 0.03, HOST_GAPS: 0.01})
    assert found.kernels == 2


def test_a_trace_without_work_is_the_hosts() -> None:
    found = broken_down(gpu_reply([]))
    assert found.parts == {HOST_GAPS: pytest.approx(0.1)}
    assert broken_down(ProfileReply(xplane="", seconds=0.0)).step_ms == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gemm", NCCL, "MemcpyH2D", "add_fusion", "conv_x"]),
            st.integers(-20, 110),
            st.integers(1, 60),
            st.integers(1, 3),
        ),
        max_size=15,
    ),
    st.integers(1, 3),
)
def test_the_parts_always_sum_to_the_step(work: list[tuple[str, float, float, int]], steps: int) -> None:
    found = broken_down(gpu_reply(work, steps=steps))
    assert sum(found.parts.values()) == pytest.approx(found.step_ms)
    collective = found.parts.get("collective", 0.0)
    assert found.exposed_ms == collective
    assert found.busy_ms <= found.step_ms + 1e-9


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("jit(f)/fwd/while/body/closed_call/dot_general", ("fwd",)),
        ("jit(train)/transpose(jvp(block))/attn/dot_general", ("backward", "block", "attn")),
        ("jit(f)/jit(main)/jvp(a/b)/add", ("a/b",)),
        ("jit(f)/jvp()/checkpoint/rematted_computation/tanh", ()),
        ("jit(f)/loss/mul;jit(f)/jvp(other)/add", ("loss",)),
        ("dot_general", ()),
        ("", ()),
    ],
)
def test_scopes_are_the_users_names(path: str, scope: tuple[str, ...]) -> None:
    assert scope_path(path) == scope


@pytest.mark.parametrize(
    ("kernel", "category"),
    [
        (GEMM, "matrix multiply"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", "matrix multiply"),
        ("gemm_fusion_dot_12", "matrix multiply"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("sm90_xmma_wgrad_implicit_gemm_indexed_f16f16", "convolution"),
        (NCCL, "collective"),
        ("input_reduce_fusion_3", "reduction"),
        ("loop_add_multiply_fusion", "elementwise"),
        ("MemcpyD2D", "copy on device"),
        ("memcpy32_post", "copy on device"),
        ("wrapped_convert", "elementwise"),
        ("void vector_fft_symm_r2c<4096u, EPT<16u>>(kernel_arguments_t<unsigned int>)", "Fourier transform"),
        ("void regular_fft<512u>(kernel_arguments_t<unsigned int>)", "Fourier transform"),
        ("Memset", "copy on device"),
        ("input_transpose_fusion", "data movement"),
        ("something_else", "other"),
    ],
)
def test_kernels_of_which_only_the_name_is_known(kernel: str, category: str) -> None:
    assert kernel_category(kernel) == category
