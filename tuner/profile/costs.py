"""FLOPs and bytes of every operation of a module, loop bodies times their trip count, library calls counted.

FLOPs are those of floating-point arithmetic: a multiply-add is two, a transcendental function one, moving data none.
Bytes are what an operation must at least read and write: each operand and result once, of sliced operands the slice.
Caches may save more, and spills cost more. Work on padding of convolutions is counted as if it were done.
"""

from __future__ import annotations

import math
import re

import msgspec

from tuner.profile.hlo import FUSIONS, Computation, Instruction, Module, Shape

__all__ = ["Cost", "ModuleCosts", "launches_nothing", "module_costs", "together"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FREE = _words(
    """parameter constant tuple get-tuple-element bitcast after-all opt-barrier partition-id replica-id domain
    add-dependency while conditional call iota async-update"""
)
_ARITHMETIC = _words(
    """add subtract multiply divide maximum minimum power remainder abs negate sign floor ceil round-nearest-afz
    round-nearest-even exponential exponential-minus-one log log-plus-one logistic tanh tan sine cosine sqrt rsqrt cbrt
    erf atan2 clamp"""
)
_SLICES = ("dynamic-slice", "slice", "gather")
_INTO = ("dynamic-update-slice", "scatter")
_DIGITS = re.compile(r"\d+")
_LABELS = re.compile(r"\bdim_labels=(\w+)_(\w+)->(\w+)")
_FORWARD, _BACKWARD = 4, 10  # FLOPs of fused attention: two, and five, products of query length x key length x head


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of one execution. `dtype`: what its matrix units work on, "" if it uses none; `matrix`: FLOPs of those alone."""

    flops: float = 0.0
    bytes: float = 0.0
    matrix: float = 0.0
    dtype: str = ""


class ModuleCosts(msgspec.Struct, frozen=True, kw_only=True):
    """`each`: operation → cost of one execution; `runs`: operation → executions a step. `unknown`: loops whose trip
    count isn't written down; their bodies, and what is in `guessed`, count once."""

    each: dict[str, Cost]
    runs: dict[str, float]
    unknown: tuple[str, ...] = ()
    guessed: frozenset[str] = frozenset()

    @property
    def flops(self) -> float:
        """Of a whole step."""
        return sum(cost.flops * self.runs[name] for name, cost in self.each.items())

    @property
    def bytes(self) -> float:
        """Of a whole step."""
        return sum(cost.bytes * self.runs[name] for name, cost in self.each.items())


def module_costs(module: Module) -> ModuleCosts:
    """Costs of everything that runs as an operation of its own. Of a branch each side counts as if it ran."""
    each: dict[str, Cost] = {}
    runs: dict[str, float] = {}
    unknown: list[str] = []
    guessed: set[str] = set()

    def walk(computation: Computation, times: float, known: bool) -> None:
        for instruction in computation.instructions.values():
            runs[instruction.name] = runs.get(instruction.name, 0.0) + times
            if not known:
                guessed.add(instruction.name)
            if instruction.name not in each:
                each[instruction.name] = _operation(module, computation, instruction)
            inner, sure = times, known
            if instruction.opcode == "while":
                inner = times * (1 if instruction.trips is None else instruction.trips)
                if instruction.trips is None:
                    unknown.append(instruction.name)
                    sure = False
            for body in module.bodies(instruction):
                walk(body, inner, sure)

    if module.entry in module.computations:
        walk(module.computations[module.entry], 1.0, True)
    return ModuleCosts(each=each, runs=runs, unknown=tuple(dict.fromkeys(unknown)), guessed=frozenset(guessed))


def launches_nothing(instruction: Instruction) -> bool:
    """Whether nothing is left of it when the program runs, or only what it calls or waits for."""
    return instruction.opcode in _FREE or instruction.opcode.endswith("-done")


def together(one: ModuleCosts, other: ModuleCosts) -> ModuleCosts:
    """Costs of two programs of one name, as steps that are jitted lambdas have. Operations of one name that cost
    differently can't be told apart in a trace: their costs count for the whole, and for neither of them."""
    clash = {name for name in one.each.keys() & other.each.keys() if one.each[name] != other.each[name]}

    def named(name: str, number: int) -> str:
        return f"{name} ({number})" if name in clash else name

    each: dict[str, Cost] = {}
    runs: dict[str, float] = {}
    for number, of in enumerate((one, other), 1):
        for name, cost in of.each.items():
            each[named(name, number)] = cost
            runs[named(name, number)] = runs.get(named(name, number), 0.0) + of.runs[name]
    return ModuleCosts(
        each=each, runs=runs, unknown=(*one.unknown, *other.unknown), guessed=one.guessed | other.guessed
    )


def _operation(module: Module, computation: Computation, instruction: Instruction) -> Cost:
    if launches_nothing(instruction) or module.bodies(instruction):
        return Cost()
    worked = _work(module, computation, instruction)
    return msgspec.structs.replace(worked, bytes=_traffic(module, computation, instruction))


def _work(module: Module, computation: Computation, instruction: Instruction) -> Cost:
    """FLOPs; of a fusion those of all that is fused."""
    opcode = instruction.opcode
    if opcode in FUSIONS:
        inner = [module.computations[n] for n in instruction.called.get("calls", ()) if n in module.computations]
        parts = [_work(module, fused, one) for fused in inner for one in fused.instructions.values()]
        heaviest = max(parts, key=lambda cost: cost.matrix, default=Cost())
        return Cost(flops=sum(c.flops for c in parts), matrix=sum(c.matrix for c in parts), dtype=heaviest.dtype)
    operands = computation.operands(instruction)
    if opcode == "dot":
        return _matrix(_dot(instruction, operands), operands)
    if opcode == "convolution":
        return _matrix(_convolution(instruction, operands), operands)
    if opcode == "custom-call":
        return _matrix(_library(instruction, operands), operands)
    if opcode == "fft":
        return Cost(flops=_fourier(instruction, operands))
    result = instruction.shapes[0] if instruction.shapes else Shape("token", ())
    if not _floating(result.dtype):
        return Cost()
    if opcode in _ARITHMETIC:
        return Cost(flops=result.size)
    if opcode in ("reduce", "reduce-window", "all-reduce", "reduce-scatter", "select-and-scatter"):
        arrays = sum(o.shapes[0].size for o in operands[: max(1, len(operands) // 2)] if o.shapes)
        window = _window(instruction, "size") if opcode == "reduce-window" else []
        return Cost(flops=result.size * math.prod(window) if window else arrays)
    return Cost()


def _matrix(flops: float, operands: list[Instruction]) -> Cost:
    dtype = operands[0].shapes[0].dtype if operands and operands[0].shapes else ""
    return Cost(flops=flops, matrix=flops, dtype=dtype if flops else "")


def _floating(dtype: str) -> bool:
    return dtype.startswith(("f", "bf", "c"))


def _numbers(text: str, field: str) -> list[int]:
    found = re.search(rf"\b{field}=\{{([\d,]*)\}}", text)
    return [int(n) for n in _DIGITS.findall(found.group(1))] if found else []


def _dot(instruction: Instruction, operands: list[Instruction]) -> float:
    if not operands or not operands[0].shapes:
        return 0.0
    left = operands[0].shapes[0].dims
    contracted = math.prod(left[d] for d in _numbers(instruction.text, "lhs_contracting_dims") if d < len(left))
    return 2.0 * instruction.shapes[0].size * contracted * _complex(instruction.shapes[0])


def _fourier(instruction: Instruction, operands: list[Instruction]) -> float:
    """As it is usually counted: 5 n log2 n of n complex elements, half of that of real ones."""
    length = math.prod(_numbers(instruction.text, "fft_length"))
    arrays = [shapes[0] for shapes in (instruction.shapes, *(o.shapes for o in operands)) if shapes]
    real = [shape.size for shape in arrays if not shape.dtype.startswith("c")]
    if length < 1 or not arrays:
        return 0.0
    return math.log2(length) * (2.5 * real[0] if real else 5.0 * arrays[0].size)


def _complex(shape: Shape) -> float:
    return 4.0 if shape.dtype.startswith("c") else 1.0


def _window(instruction: Instruction, field: str) -> list[int]:
    found = re.search(rf"\bwindow=\{{[^}}]*\b{field}=([\dx]+)", instruction.text)
    return [int(n) for n in found.group(1).split("x")] if found else []


def _convolution(instruction: Instruction, operands: list[Instruction]) -> float:
    """Result elements x (kernel elements an output feature has) x 2. Zeros that stand between the elements of a dilated
    input take no part."""
    labels = _LABELS.search(instruction.text)
    if labels is None or len(operands) < 2 or not operands[1].shapes:
        return 0.0
    kernel = operands[1].shapes[0]
    place = labels.group(2).find("o")
    features = kernel.dims[place] if 0 <= place < len(kernel.dims) else 1
    holes = math.prod(_window(instruction, "lhs_dilate") or [1])
    return 2.0 * instruction.shapes[0].size * kernel.size / max(features, 1) / holes


def _library(instruction: Instruction, operands: list[Instruction]) -> float:
    """What a library is called for: matrix products, convolutions, fused attention; others count nothing."""
    target = instruction.target.lower()
    if "fmha" in target or "flash" in target:
        return _attention(instruction, operands, backward="backward" in target)
    if "conv" in target:
        # The gradients' results have other shapes than the forward pass, and do as much: count its result's elements.
        return _library_convolution(instruction, operands)
    if any(word in target for word in ("gemm", "matmul", "dot")) and len(operands) >= 2:
        result = instruction.shapes[0]
        left = operands[0].shapes[0]
        found = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', instruction.text)
        dims = [int(n) for n in _DIGITS.findall(found.group(1))] if found else []
        if dims:
            contracted = float(math.prod(left.dims[d] for d in dims if d < len(left.dims)))
        else:  # (batch x rows) x contracted, and (batch x rows) x columns
            contracted = left.size * (result.dims[-1] if result.dims else 1) / max(result.size, 1)
        return 2.0 * result.size * contracted * _complex(result)
    return 0.0


def _library_convolution(instruction: Instruction, operands: list[Instruction]) -> float:
    labels = _LABELS.search(instruction.text)
    shapes = [o.shapes[0] for o in operands[:2] if o.shapes]
    if labels is None or len(shapes) < 2 or not instruction.shapes:
        return 0.0
    target = instruction.target.lower()
    result = instruction.shapes[0]
    # Whichever is computed, the three arrays are the forward pass's input, kernel and output.
    if "backwardinput" in target:
        kernel, output = shapes[1], shapes[0]
    elif "backwardfilter" in target:
        kernel, output = result, shapes[1]
    else:
        kernel, output = shapes[1], result
    place = labels.group(2).find("o")
    features = kernel.dims[place] if 0 <= place < len(kernel.dims) else 1
    return 2.0 * output.size * kernel.size / max(features, 1)


def _attention(instruction: Instruction, operands: list[Instruction], *, backward: bool) -> float:
    scores = re.search(r'"intermediate_tensor_shape":\{[^{}]*"dimensions":\[([^\]]*)\]', instruction.text)
    if scores is None or not operands or not operands[0].shapes:
        return 0.0
    head = operands[0].shapes[0].dims[-1] if operands[0].shapes[0].dims else 1
    size = math.prod(int(n) for n in _DIGITS.findall(scores.group(1)))
    return float((_BACKWARD if backward else _FORWARD) * size * head)


def _traffic(module: Module, computation: Computation, instruction: Instruction) -> float:
    opcode = instruction.opcode
    operands = computation.operands(instruction)
    if opcode in _SLICES:
        return 2.0 * instruction.bytes
    if opcode == "dynamic-update-slice" and len(operands) > 1:
        return 2.0 * operands[1].bytes
    if opcode == "scatter" and len(operands) > 2:
        return 3.0 * operands[-1].bytes
    if opcode.endswith("-start") and opcode not in FUSIONS and len(instruction.shapes) > 1:
        return 2.0 * sum(operand.bytes for operand in operands)
    if opcode not in FUSIONS:
        written = sum(shape.bytes for shape in instruction.shapes if not _scratch(instruction, shape))
        return written + sum(operand.bytes for operand in {o.name: o for o in operands}.values())
    fused = next(
        (module.computations[n] for n in instruction.called.get("calls", ()) if n in module.computations), None
    )
    if fused is None:
        return instruction.bytes + sum(operand.bytes for operand in operands)
    return _read(fused) + _written(fused, instruction)


def _scratch(instruction: Instruction, shape: Shape) -> bool:
    """Room that a library asks for beside its results."""
    several = instruction.opcode == "custom-call" and len(instruction.shapes) > 1
    return several and len(shape.dims) == 1 and shape.dtype in ("s8", "u8")


def _read(fused: Computation) -> float:
    """Of parameters of which only slices are asked for, directly or element by element, the slices, which may overlap:
    once what they are of is enough. Of those that are only written into, nothing."""
    asked = _asked(fused)
    return sum(one.bytes * asked[one.name] for one in fused.instructions.values() if one.opcode == "parameter")


def _asked(fused: Computation) -> dict[str, float]:
    """What share of each instruction's elements has to be known for the results, at most 1."""
    results = {part.name for part in _results(fused)}
    asked = dict.fromkeys(fused.instructions, 0.0)
    for one in reversed(fused.instructions.values()):  # what reads it stands behind it
        asked[one.name] = 1.0 if one.root else min(1.0, asked[one.name])
        in_place = one.opcode in _INTO and one.name in results
        for place, name in enumerate(one.operands):
            if name not in fused.instructions or (in_place and place == 0):
                continue
            sliced = one.opcode in _SLICES and place == 0
            asked[name] += asked[one.name] * (_share(one, fused.instructions[name]) if sliced else 1.0)
    return asked


def _share(part: Instruction, whole: Instruction) -> float:
    return part.bytes / whole.bytes if whole.bytes else 0.0


def _written(fused: Computation, instruction: Instruction) -> float:
    """The results; where one only updates something in place, the updates, and what a scatter reads there first."""
    if fused.root is None:
        return instruction.bytes
    total = 0.0
    for part in _results(fused):
        inner = fused.operands(part)
        if part.opcode == "dynamic-update-slice" and len(inner) > 1:
            total += inner[1].bytes
        elif part.opcode == "scatter" and len(inner) > 2:
            total += 2.0 * inner[-1].bytes
        else:
            total += part.bytes
    return total


def _results(fused: Computation) -> list[Instruction]:
    """What a fusion leaves behind, seen through bitcasts."""
    root = fused.root
    if root is None:
        return []
    return [_through(fused, part) for part in (fused.operands(root) if root.opcode == "tuple" else [root])]


def _through(fused: Computation, instruction: Instruction) -> Instruction:
    while instruction.opcode == "bitcast" and fused.operands(instruction):
        instruction = fused.operands(instruction)[0]
    return instruction
