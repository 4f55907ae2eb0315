"""FLOPs and bytes against hand counts: of texts as a GPU's compiler writes them, and of steps compiled here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from profile_traces import GPU_HLO

from tuner.profile.costs import ModuleCosts, module_costs, together
from tuner.profile.hlo import both, read_module

WORKLOADS = Path(__file__).parents[2] / "workloads"


def costs(text: str) -> ModuleCosts:
    return module_costs(read_module(text))


def matrix(found: ModuleCosts) -> float:
    return sum(cost.matrix * found.runs[name] for name, cost in found.each.items())


def one(operation: str, parameters: str) -> ModuleCosts:
    lines = "\n".join(f"  %p{n} = {shape} parameter({n})" for n, shape in enumerate(parameters.split(";")))
    return costs(f"HloModule m\n\nENTRY %main (p0: f32[]) -> f32[] {{\n{lines}\n  ROOT %r = {operation}\n}}\n")


def test_loops_count_their_trips_and_library_calls_their_products() -> None:
    found = costs(GPU_HLO)
    in_loop, after = 12 * 2 * 4096 * 768 * 768, 2 * 4096 * 768 * 3072
    assert matrix(found) == in_loop + after
    assert found.runs["cublas-gemm.3"] == 12
    assert found.each["cublas-gemm.3"].dtype == "bf16"
    gelu, reduced = 4096 * 3072, 4096 * 768
    assert found.each["cublas-gemm.3"].bytes == 2 * (2 * 4096 * 768 + 768 * 768)  # without its scratch
    assert found.flops == in_loop + after + gelu + reduced
    assert found.each["loop_gelu_fusion"].bytes == 2 * 2 * gelu


def test_a_loop_of_unknown_length_counts_once_and_is_named() -> None:
    found = costs(GPU_HLO.replace('"known_trip_count":{"n":"12"}', '"x":1'))
    assert found.unknown == ("while.2",)
    assert found.runs["cublas-gemm.3"] == 1
    assert "cublas-gemm.3" in found.guessed
    assert "gemm_fusion_dot.4" not in found.guessed


def test_fused_attention_of_cudnn_forward_and_backward() -> None:
    config = 'backend_config={"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"element_type":"BF16",'
    config += '"dimensions":["16","12","1024","1024"],"tuple_shapes":[]}}}'
    q = "bf16[16,1024,12,64]"
    for target, products in (("__cudnn$fmhaSoftmax", 2), ("__cudnn$fmhaSoftmaxBackward", 5)):
        found = one(f'{q} custom-call(%p0, %p1, %p2), custom_call_target="{target}", {config}', f"{q};{q};{q}")
        assert found.flops == products * 2 * 16 * 12 * 1024 * 1024 * 64


def test_convolutions_plain_and_of_cudnn_in_all_three_directions() -> None:
    x, k, y = "f32[8,32,32,16]", "f32[3,3,16,64]", "f32[8,32,32,64]"
    window = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    by_hand = 2 * 8 * 32 * 32 * 64 * 3 * 3 * 16
    assert one(f"{y} convolution(%p0, %p1), {window}", f"{x};{k}").flops == by_hand
    for target, result, operands in (
        ("__cudnn$convForward", y, f"{x};{k}"),
        ("__cudnn$convBackwardInput", x, f"{y};{k}"),
        ("__cudnn$convBackwardFilter", k, f"{x};{y}"),
    ):
        text = f'({result}, u8[0]) custom-call(%p0, %p1), custom_call_target="{target}", {window}'
        assert one(text, operands).flops == by_hand


def test_zeros_between_the_elements_of_a_dilated_input_do_no_work() -> None:
    window = "window={size=3x3 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"
    found = one(f"f32[8,64,64,16] convolution(%p0, %p1), {window}", "f32[8,32,32,64];f32[3,3,64,16]")
    assert found.flops == 2 * 8 * 64 * 64 * 16 * 3 * 3 * 64 / 4


def test_grouped_convolutions_multiply_within_their_group() -> None:
    window = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=16"
    found = one(f"f32[8,32,32,16] convolution(%p0, %p1), {window}", "f32[8,32,32,16];f32[3,3,1,16]")
    assert found.flops == 2 * 8 * 32 * 32 * 16 * 3 * 3


def test_slices_move_what_they_take_and_not_what_they_take_it_from() -> None:
    assert one("f32[1,64] dynamic-slice(%p0, %p1, %p1), dynamic_slice_sizes={1,64}", "f32[1000,64];s32[]").bytes == 512
    update = one("f32[1000,64] dynamic-update-slice(%p0, %p1, %p2, %p2)", "f32[1000,64];f32[1,64];s32[]")
    assert update.bytes == 512


def test_slices_that_overlap_read_what_they_are_of_once() -> None:
    """As the neighbours in a stencil do."""
    text = """HloModule m

%fused (a: f32[1000]) -> f32[900] {
  %a = f32[1000]{0} parameter(0)
  %l = f32[900]{0} slice(%a), slice={[0:900]}
  %r = f32[900]{0} slice(%a), slice={[100:1000]}
  ROOT %s = f32[900]{0} subtract(%r, %l)
}

ENTRY %main (x: f32[1000]) -> f32[900] {
  %x = f32[1000]{0} parameter(0)
  ROOT %f = f32[900]{0} fusion(%x), kind=kLoop, calls=%fused
}
"""
    assert costs(text).bytes == 4 * (1000 + 900)


def fused(lines: list[str], opcode: str, result: str) -> str:
    """A module whose fusion does that to `%a`, 1000 rows of 64 numbers, with `%u`, 10 rows, at the place `%i`."""
    inside = "\n".join(
        f"  {line}"
        for line in (
            "%a = f32[1000,64] parameter(0)",
            "%u = f32[10,64] parameter(1)",
            "%i = s32[] parameter(2)",
            *lines,
        )
    )
    return f"""HloModule m

%fused (a: f32[1000,64], u: f32[10,64], i: s32[]) -> f32[] {{
{inside}
}}

ENTRY %main (x: f32[1000,64], y: f32[10,64], n: s32[]) -> f32[] {{
  %x = f32[1000,64] parameter(0)
  %y = f32[10,64] parameter(1)
  %n = s32[] parameter(2)
  ROOT %f = {result} {opcode}(%x, %y, %n), kind=kLoop, calls=%fused
}}
"""


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        # Behind a bitcast, and behind arithmetic on each element.
        (
            ["%b = f32[1,1000,64] bitcast(%a)", "ROOT %s = f32[1,10,64] slice(%b), slice={[0:1], [5:15], [0:64]}"],
            10 + 10,
        ),
        (
            ["%b = f32[1000,64] negate(%a)", "ROOT %s = f32[10,64] dynamic-slice(%b, %i, %i)"],
            10 + 10,
        ),
        # All of it too, for another result.
        (
            [
                "%s = f32[10,64] slice(%a), slice={[5:15], [0:64]}",
                "%n = f32[1000,64] negate(%a)",
                "ROOT %t = (f32[10,64], f32[1000,64]) tuple(%s, %n)",
            ],
            1000 + 10 + 1000,
        ),
        # Written in place, from a slice of what it is written into.
        (
            [
                "%s = f32[10,64] dynamic-slice(%a, %i, %i)",
                "%m = f32[10,64] add(%s, %u)",
                "%w = f32[1000,64] dynamic-update-slice(%a, %m, %i, %i)",
                "ROOT %r = f32[1,1000,64] bitcast(%w)",
            ],
            10 + 10 + 10,
        ),
        # Not in place where the result is made of all of it.
        (
            ["%w = f32[1000,64] dynamic-update-slice(%a, %u, %i, %i)", "ROOT %r = f32[1000,64] negate(%w)"],
            1000 + 10 + 1000,
        ),
        # What is there is added to.
        (["ROOT %w = f32[1000,64] scatter(%a, %i, %u), to_apply=%sum"], 10 + 2 * 10),
    ],
)
def test_a_fusion_reads_what_it_asks_for_and_writes_what_it_changes(lines: list[str], rows: int) -> None:
    index = 4 if any("%i" in line for line in lines) else 0
    assert costs(fused(lines, "fusion", "f32[]")).bytes == 4 * 64 * rows + index


def test_a_fusion_beside_others_moves_what_it_would_by_itself_and_waiting_for_it_nothing() -> None:
    text = fused(
        ["ROOT %s = f32[10,64] dynamic-slice(%a, %i, %i)"],
        "fusion-start",
        "((f32[1000,64], f32[10,64], s32[]), f32[10,64], u32[])",
    )
    text = text.replace("ROOT %f", "%f").replace(
        "calls=%fused\n", "calls=%fused\n  ROOT %d = f32[10,64] fusion-done(%f)\n"
    )
    found = costs(text)
    assert found.each["f"].bytes == 4 * 64 * 20 + 4
    assert found.each["d"].bytes == 0


def test_transforms_count_as_usual_and_half_where_they_are_of_real_numbers() -> None:
    whole, half = "c64[16,1024]", "c64[16,513]"
    real = "f32[16,1024]"
    complex_flops = 5 * 16 * 1024 * 10
    assert one(f"{whole} fft(%p0), fft_type=FFT, fft_length={{1024}}", whole).flops == complex_flops
    assert one(f"{half} fft(%p0), fft_type=RFFT, fft_length={{1024}}", real).flops == complex_flops / 2
    assert one(f"{real} fft(%p0), fft_type=IRFFT, fft_length={{1024}}", half).flops == complex_flops / 2


def test_integers_do_no_flops_and_complex_products_do_four_times_as_many() -> None:
    assert one("s32[64] add(%p0, %p0)", "s32[64]").flops == 0
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert one(f"c64[8,8] dot(%p0, %p0), {dims}", "c64[8,8]").flops == 4 * 2 * 8**3


def _gpt_by_hand() -> float:
    """Products of the CPU-sized step: forward, recomputed, and twice in the backward pass; the recomputation leaves out
    each layer's last product, which no gradient needs."""
    layers, width, vocabulary, batch, length = 2, 64, 256, 2, 64
    tokens = batch * length
    qkv, out, up = (2 * tokens * width * n for n in (3 * width, width, 4 * width))
    layer = qkv + out + 2 * up + 2 * 2 * batch * length * length * width
    return layers * (4 * layer - up) + 3 * 2 * tokens * width * vocabulary


def _conv_by_hand() -> float:
    """Convolutions of the CPU-sized step: forward, and for the gradients of kernels and inputs, which the images don't
    need. A 7 x 7 and a pooling halve 32 twice; a block's last convolution is 4 times as wide as its others."""
    batch, width, wider, classes = 4, 8, 4, 8
    stem = 2 * batch * 16**2 * width * 7 * 7 * 3
    whole = 2 * stem
    inputs = width
    for stage in range(2):
        side, inner = 8 >> stage, width << stage
        before = side << stage  # the 3 x 3 in the middle halves it
        entry = 2 * batch * before**2 * inputs * inner
        mid = 2 * batch * side**2 * inner * inner * 9
        out = 2 * batch * side**2 * inner * wider * inner
        across = 2 * batch * side**2 * inputs * wider * inner
        whole += 3 * (entry + mid + out + across)
        inputs = wider * inner
    return float(whole + 3 * 2 * batch * inputs * classes)


BY_HAND = {"gpt": _gpt_by_hand, "conv": _conv_by_hand, "matmul": lambda: 2.0 * 384**3}


@pytest.mark.jax
@pytest.mark.parametrize("name", [*BY_HAND, "products", "convolution"])
def test_compiled_steps_within_one_percent_of_hand_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax
    import jax.numpy as jnp

    step: Any
    args: tuple[Any, ...]
    if name in BY_HAND:
        monkeypatch.syspath_prepend(str(WORKLOADS))
        made = __import__(name).build()
        sys.modules.pop(name)
        step, args, by_hand = made["step"], made["args"], BY_HAND[name]()
    elif name == "products":

        def chained(x: jax.Array, w: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=7)[0]

        step, args, by_hand = jax.jit(chained), (jnp.ones((64, 128)), jnp.ones((128, 128))), 7 * 2 * 64 * 128 * 128
    else:

        def convolved(x: jax.Array, k: jax.Array) -> jax.Array:
            return jax.lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        step, args = jax.jit(convolved), (jnp.ones((2, 34, 34, 8)), jnp.ones((3, 3, 8, 16)))
        by_hand = 2 * 2 * 32 * 32 * 16 * 3 * 3 * 8
    assert matrix(costs(step.lower(*args).compile().as_text())) == pytest.approx(by_hand, rel=0.01)


def test_programs_of_one_name_are_told_apart_as_far_as_their_operations_are() -> None:
    def program(operation: str) -> str:
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        return f"""HloModule jit__lambda

ENTRY %main (p0: f32[]) -> f32[] {{
  %p0 = f32[64,64] parameter(0)
  %same = f32[64,64] add(%p0, %p0)
  %dot.{operation} = f32[64,64] dot(%p0, %p0), {dims}
  ROOT %r = {"f32[64,64] tanh(%p0)" if operation == "1" else "f32[8,8] slice(%p0)"}
}}
"""

    one, other = costs(program("1")), costs(program("2"))
    found = together(one, other)
    assert found.flops == one.flops + other.flops
    assert found.runs["same"] == 2
    assert "r" not in found.each
    module = both(read_module(program("1")), read_module(program("2")))
    assert module.owners.keys() == {"p0", "same", "dot.1", "dot.2", "r"}
    for name in module.owners:
        assert module.instruction(name) is not None
