"""What kind of work an operation or a kernel does: from its HLO where that is known, else from the kernel's name."""

from __future__ import annotations

import re
from typing import Literal

from tuner.profile.hlo import FUSIONS, Instruction, Module

__all__ = ["CATEGORIES", "COPIES", "Category", "category_of", "family", "is_control", "kernel_category"]

Category = Literal[
    "matrix multiply",
    "attention",
    "convolution",
    "Fourier transform",
    "elementwise",
    "reduction",
    "data movement",
    "random numbers",
    "host callback",
    "library",
    "other",
    "collective",
    "copy host to device",
    "copy device to host",
    "copy on device",
    "loop control",
]

CATEGORIES: tuple[Category, ...] = (
    "matrix multiply",
    "attention",
    "convolution",
    "Fourier transform",
    "elementwise",
    "reduction",
    "data movement",
    "random numbers",
    "library",
    "other",
    "loop control",
    "copy on device",
    "copy host to device",
    "copy device to host",
    "host callback",
    "collective",
)
"""In the order in which they are shown."""

COPIES: tuple[Category, ...] = ("copy on device", "copy host to device", "copy device to host")
"""What a trace names by itself, whatever operation it is for."""

_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
    "send",
    "recv",
)
_MOVES = frozenset(
    [
        "copy",
        "copy-start",
        "transpose",
        "reshape",
        "slice",
        "dynamic-slice",
        "dynamic-update-slice",
        "concatenate",
        "pad",
        "gather",
        "scatter",
        "reverse",
        "broadcast",
        "iota",
        "convert",
        "bitcast",
        "bitcast-convert",
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
    ]
)
_REDUCTIONS = frozenset(["reduce", "reduce-window", "select-and-scatter", "sort", "topk"])
_ATTENTION = re.compile(r"attention|\battn|_attn|fmha|flash", re.IGNORECASE)
_TARGETS: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"fmha|flash|attention", re.IGNORECASE)),
    ("convolution", re.compile(r"conv(?!ert)", re.IGNORECASE)),
    ("matrix multiply", re.compile(r"gemm|matmul|dot|blas", re.IGNORECASE)),
    ("host callback", re.compile(r"callback", re.IGNORECASE)),
    ("random numbers", re.compile(r"threefry|rng", re.IGNORECASE)),
    ("collective", re.compile(r"nccl|allreduce|all_reduce|allgather|nvshmem|collective", re.IGNORECASE)),
)
# By kernel name, the first that matches.
_KERNELS: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("copy host to device", re.compile(r"^MemcpyH2D", re.IGNORECASE)),
    ("copy device to host", re.compile(r"^MemcpyD2H", re.IGNORECASE)),
    ("copy on device", re.compile(r"^(Memcpy|Memset)", re.IGNORECASE)),
    ("collective", re.compile(r"nccl|allreduce|all_reduce|all-reduce|allgather|reducescatter|nvshmem", re.IGNORECASE)),
    ("attention", re.compile(r"fmha|flash|attention|mha_", re.IGNORECASE)),
    ("convolution", re.compile(r"conv(?!ert)|fprop|dgrad|wgrad|winograd|implicit_gemm", re.IGNORECASE)),
    ("matrix multiply", re.compile(r"gemm|gemv|cutlass|nvjet|cublas|matmul|splitkreduce|_dot|^dot", re.IGNORECASE)),
    ("Fourier transform", re.compile(r"(?<![a-z])fft(?![a-z])|cufft", re.IGNORECASE)),
    ("random numbers", re.compile(r"threefry|philox|rng", re.IGNORECASE)),
    ("data movement", re.compile(r"transpose|concatenate|scatter|gather|dynamic_(update_)?slice|^copy|slice_fus|pad")),
    ("reduction", re.compile(r"reduce|softmax|argmax|sort|topk|scan", re.IGNORECASE)),
    ("elementwise", re.compile(r"fusion|elementwise|wrapped_|broadcast|select|convert|add|multiply|tanh|exp")),
)


def is_control(opcode: str) -> bool:
    """A loop, a branch or a call: its time is that of what it runs, and what is left is its own."""
    return opcode in ("while", "conditional", "call")


def category_of(module: Module, instruction: Instruction) -> Category:
    """Of an operation. A fusion is what is heaviest in it: convolution and product, then reduction, then arithmetic.
    Products inside a named scope that speaks of attention count as attention."""
    if is_control(instruction.opcode):
        return "loop control"
    opcodes = [instruction.opcode]
    if instruction.opcode in (*FUSIONS, "async-start"):
        inner = [module.computations[n] for n in instruction.called.get("calls", ()) if n in module.computations]
        opcodes = [one.opcode for computation in inner for one in computation.instructions.values()]
    if any(opcode.startswith(_COLLECTIVES) for opcode in opcodes):
        return "collective"
    if instruction.opcode == "custom-call":
        return _called(instruction)
    if _on_host(instruction):
        return "copy device to host"
    kinds = set(opcodes)
    if kinds & {"convolution"}:
        return "convolution"
    if kinds & {"dot", "ragged-dot"}:
        return "attention" if _ATTENTION.search(instruction.op_name) else "matrix multiply"
    if "fft" in kinds:
        return "Fourier transform"
    if any("fusion" not in opcode and opcode.startswith(("rng", "threefry")) for opcode in kinds):
        return "random numbers"
    if kinds & _REDUCTIONS and not _inlined(module, instruction):
        return "reduction"
    if kinds <= _MOVES:
        return "data movement"
    if kinds & {"infeed", "outfeed"}:
        return "copy host to device"
    return "elementwise"


def _inlined(module: Module, instruction: Instruction) -> bool:
    """Whether all reducing in a fusion is done by the way, element by element, as of a product's few partial sums."""
    if "kind=kLoop" not in instruction.text:
        return False
    results: list[Instruction] = []
    for name in instruction.called.get("calls", ()):
        fused = module.computations.get(name)
        if fused is not None and fused.root is not None:
            results += fused.operands(fused.root) if fused.root.opcode == "tuple" else [fused.root]
    return bool(results) and not any(one.opcode in _REDUCTIONS for one in results)


def _called(instruction: Instruction) -> Category:
    return next((kind for kind, pattern in _TARGETS if pattern.search(instruction.target)), "library")


def _on_host(instruction: Instruction) -> bool:
    """Whether it moves its result into the host's memory."""
    moves = instruction.opcode in ("copy", "copy-start")
    return moves and any(shape.on_host for shape in instruction.shapes)


def kernel_category(name: str) -> Category:
    """Of a kernel or a copy of which nothing but the name is known."""
    return next((kind for kind, pattern in _KERNELS if pattern.search(name)), "other")


def family(category: Category) -> Category:
    """What kernels' names tell apart: attention is products in a scope of that name, too."""
    return "matrix multiply" if category == "attention" else category
