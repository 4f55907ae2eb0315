"""Command lines of NVIDIA's profilers: which kernel Nsight Compute is told to look at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.profile import nsight_compute

CUTLASS = (
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>"
    "(cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8::Params)"
)
FFT = (
    "void regular_fft_factor<4096u, EPT<16u>, 4u, 0u, (padding_t)14, (twiddle_t)0, unsigned int, float>"
    "(kernel_arguments_t<unsigned int>)"
)


@pytest.mark.parametrize(
    ("traced", "base", "as_ncu_knows_it", "others"),
    [
        ("gemm_fusion_dot_1", "", "gemm_fusion_dot_1", ("gemm_fusion_dot_11", "a_gemm_fusion_dot_1")),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "", "ncclDevKernel_SendRecv", ("SendRecv",)),
        ("void cub::scan(int)", "", "scan", ("cub::scan",)),
        (CUTLASS, "demangled", CUTLASS, ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_other_align8>()", "Kernel")),
        (
            FFT,
            "demangled",
            FFT.replace("4096u", "(unsigned int)4096").replace("16u", "(unsigned int)16"),
            ("void vector_fft<EPT<(unsigned int)16>, (padding_t)14>()", "regular_fft_factor"),
        ),
        (
            "_ZN17cutlass6KernelILi4EEEvT_",
            "mangled",
            "_ZN17cutlass6KernelILi4EEEvT_",
            ("_ZN17cutlass6KernelILi8EEEvT_",),
        ),
    ],
    ids=["own", "parameters", "namespace", "template", "numbers", "mangled"],
)
def test_a_kernel_is_told_from_others_of_its_kind(
    traced: str, base: str, as_ncu_knows_it: str, others: tuple[str, ...]
) -> None:
    command = nsight_compute(["python", "train.py"], traced, output=Path("ncu"))
    told = [word for word in command if word.startswith("--kernel-name-base=")]
    assert told == ([f"--kernel-name-base={base}"] if base else [])
    (pattern,) = (word.split("=regex:", 1)[1] for word in command if word.startswith("--kernel-name="))
    assert re.search(pattern, as_ncu_knows_it)
    assert not any(re.search(pattern, other) for other in others)
    assert command[-2:] == ("python", "train.py")
