"""Reading optimised HLO, as a GPU's compiler writes it."""

from __future__ import annotations

import pytest
from profile_traces import GPU_HLO

from tuner.profile.hlo import Module, Shape, read_module


@pytest.fixture(scope="module")
def module() -> Module:
    return read_module(GPU_HLO)


def test_operations_are_those_that_run_by_themselves(module: Module) -> None:
    assert (module.name, module.entry) == ("jit_train", "main")
    assert {"while.2", "cublas-gemm.3", "loop_gelu_fusion", "more.1"} <= module.owners.keys()
    assert not {"tanh.1", "add.9"} & module.owners.keys()
    assert module.owners["cublas-gemm.3"] == "body"


def test_an_instruction_has_its_shapes_operands_loops_and_line(module: Module) -> None:
    gemm = module.instruction("cublas-gemm.3")
    assert gemm is not None
    assert gemm.shapes == (Shape("bf16", (4096, 768)), Shape("s8", (4194304,)))
    assert (gemm.operands, gemm.target) == (("x.2", "w.1"), "__cublas$gemm")
    assert gemm.source == "/home/me/train.py:12"
    loop = module.instruction("while.2")
    assert loop is not None
    assert loop.trips == 12
    assert loop.called == {"condition": ("cond",), "body": ("body",)}
    assert "cublas-gemm.3" in {inner.name for inner in module.below(loop)}


def test_lines_of_older_texts_and_the_hosts_memory() -> None:
    text = """HloModule jit_f

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %copy.1 = f32[8]{0:S(5)} copy(%x), metadata={op_name="jit(f)/copy" source_file="f.py" source_line=3}
}
"""
    copy = read_module(text).instruction("copy.1")
    assert copy is not None
    assert copy.source == "f.py:3"
    assert copy.shapes == (Shape("f32", (8,), True),)


@pytest.mark.parametrize(
    "text", ["", "no HLO at all", "HloModule x\n\nENTRY %m (a: f32[]) -> f32[] {\n  nonsense\n}\n"]
)
def test_what_is_no_hlo_is_an_empty_module(text: str) -> None:
    assert read_module(text).owners == {}


def test_sizes_of_types() -> None:
    assert Shape("f8e4m3fn", (16,)).bytes == 16
    assert Shape("s4", (16,)).bytes == 8
    assert Shape("token", ()).bytes == 0
    assert Shape("f32", ()).bytes == 4
