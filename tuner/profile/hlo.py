"""Reads the text of an optimised HLO module: its computations, instructions, shapes, loops and source lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

__all__ = ["FUSIONS", "Computation", "Instruction", "Module", "Shape", "both", "read_module"]

FUSIONS = ("fusion", "fusion-start")
"""Opcodes of what is one kernel, or one copy, for several instructions; the latter beside what comes next."""

_BYTES = {
    "pred": 1.0,
    "s4": 0.5,
    "u4": 0.5,
    "s8": 1.0,
    "u8": 1.0,
    "s16": 2.0,
    "u16": 2.0,
    "bf16": 2.0,
    "f16": 2.0,
    "s32": 4.0,
    "u32": 4.0,
    "f32": 4.0,
    "s64": 8.0,
    "u64": 8.0,
    "f64": 8.0,
    "c64": 8.0,
    "c128": 16.0,
}
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\](?:\{([^{}]*)\})?")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r"([a-z][\w\-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation|branch_computations)="
    r"(?:%([\w.\-]+)|\{([^{}]*)\})"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"\bstack_frame_id=(\d+)")
_SOURCE = re.compile(r'\bsource_file="([^"]*)"(?: source_line=(\d+))?')
_TARGET = re.compile(r'\bcustom_call_target="([^"]*)"')
_COMMENT = re.compile(r"/\*.*?\*/")
_ROW = re.compile(r'^(\d+) (?:"([^"]*)"|\{([^}]*)\})$')


class Shape(msgspec.Struct, frozen=True):
    """An array's element type, dimensions, and whether it lies in the host's memory."""

    dtype: str
    dims: tuple[int, ...]
    on_host: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> float:
        """Types of 8-bit floats, and unknown ones, count a byte an element; tokens nothing."""
        if self.dtype == "token":
            return 0.0
        return self.size * _BYTES.get(self.dtype, 1.0)


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """`shapes`: its result's arrays, several for a tuple. `called`: role (calls, body, …) → computations. `text`: what
    stands behind the operands. `trips`: how often a loop runs, None if it isn't known. `source`: file and line."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    called: dict[str, tuple[str, ...]]
    text: str
    trips: int | None = None
    op_name: str = ""
    source: str = ""
    root: bool = False

    @property
    def target(self) -> str:
        """Of a custom call, which function it calls."""
        found = _TARGET.search(self.text)
        return found.group(1) if found else ""

    @property
    def bytes(self) -> float:
        return sum(shape.bytes for shape in self.shapes)


class Computation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    instructions: dict[str, Instruction]

    @property
    def root(self) -> Instruction | None:
        return next((i for i in self.instructions.values() if i.root), None)

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that it reads, as far as they are of this computation."""
        return [self.instructions[name] for name in instruction.operands if name in self.instructions]


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """`entry`: the computation that runs; "" in a text that has none. `owners`: instruction → its computation, for
    everything that runs as an operation of its own (not what is inside a fusion)."""

    name: str
    entry: str
    computations: dict[str, Computation]
    owners: dict[str, str]

    def instruction(self, name: str) -> Instruction | None:
        """The operation of this name."""
        owner = self.owners.get(name)
        return self.computations[owner].instructions[name] if owner is not None else None

    def below(self, instruction: Instruction) -> Iterator[Instruction]:
        """What runs as an operation of its own inside a loop, a branch or a call, at any depth."""
        for computation in self.bodies(instruction):
            for inner in computation.instructions.values():
                yield inner
                yield from self.below(inner)

    def bodies(self, instruction: Instruction) -> list[Computation]:
        """The computations that a loop, a branch or a call runs operation by operation; none for a fusion."""
        if instruction.opcode not in _CONTROL:
            return []
        names = [name for of in instruction.called.values() for name in of]
        return [self.computations[name] for name in names if name in self.computations]


_CONTROL = ("while", "conditional", "call", "async-start")


def read_module(text: str) -> Module:
    """The module in `text`, as `Compiled.as_text()` gives it. What can't be read is left out, never an error."""
    lines = text.splitlines()
    header = lines[0] if lines else ""
    name = header.removeprefix("HloModule ").split(",")[0].strip() if header.startswith("HloModule ") else ""
    sources = _Sources(lines)
    computations: dict[str, Computation] = {}
    entry, inside, found = "", "", dict[str, Instruction]()
    for line in lines:
        if inside:
            if line.startswith("}"):
                computations[inside] = Computation(name=inside, instructions=found)
                inside = ""
            elif instruction := _instruction(line, sources):
                found[instruction.name] = instruction
        elif begun := _COMPUTATION.match(line):
            inside, found = begun.group(2), {}
            entry = inside if begun.group(1) else entry
    bare = Module(name=name, entry=entry, computations=computations, owners={})
    return msgspec.structs.replace(bare, owners=_owners(bare))


def both(one: Module, other: Module) -> Module:
    """Two programs of one name as one: of operations that both have, the first one's count."""
    mark = f"{other.name}+"
    renamed = {f"{mark}{name}": _marked(found, mark) for name, found in other.computations.items()}
    owners = {name: f"{mark}{owner}" for name, owner in other.owners.items()}
    return msgspec.structs.replace(one, computations=renamed | one.computations, owners=owners | one.owners)


def _marked(computation: Computation, mark: str) -> Computation:
    """The computation under a name of its own, and what it calls too."""
    instructions = {
        name: msgspec.structs.replace(
            found, called={role: tuple(f"{mark}{n}" for n in names) for role, names in found.called.items()}
        )
        for name, found in computation.instructions.items()
    }
    return Computation(name=f"{mark}{computation.name}", instructions=instructions)


def _owners(module: Module) -> dict[str, str]:
    owners: dict[str, str] = {}
    todo = [module.entry] if module.entry in module.computations else []
    while todo:
        computation = module.computations[todo.pop()]
        for instruction in computation.instructions.values():
            if instruction.name not in owners:
                owners[instruction.name] = computation.name
                todo += [body.name for body in module.bodies(instruction)]
    return owners


def _instruction(line: str, sources: _Sources) -> Instruction | None:
    begun = _INSTRUCTION.match(line)
    if begun is None:
        return None
    rest = _COMMENT.sub("", line[begun.end() :])
    type_end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    opcode = _OPCODE.match(rest, type_end + 1)
    if type_end <= 0 or opcode is None:
        return None
    closed = _closing(rest, opcode.end() - 1)
    inner, text = rest[opcode.end() : closed], rest[closed + 1 :]
    trips = _TRIPS.search(text) if opcode.group(1) == "while" else None
    op_name = _OP_NAME.search(text)
    return Instruction(
        name=begun.group(1),
        opcode=opcode.group(1),
        shapes=_shapes(rest[:type_end]),
        operands=tuple(_NAME.findall(inner)),
        called=_called(text),
        text=text,
        trips=int(trips.group(1)) if trips else None,
        op_name=op_name.group(1) if op_name else "",
        source=sources.of(text),
        root="ROOT " in begun.group(0),
    )


def _called(text: str) -> dict[str, tuple[str, ...]]:
    called: dict[str, tuple[str, ...]] = {}
    for role, one, many in _CALLED.findall(text):
        called[role] = (one,) if one else tuple(_NAME.findall(many))
    return called


def _shapes(text: str) -> tuple[Shape, ...]:
    shapes = []
    for dtype, dims, layout in _SHAPE.findall(text):
        sizes = tuple(int(d.lstrip("<=")) for d in dims.split(",") if d.lstrip("<="))
        shapes.append(Shape(dtype, sizes, "S(5)" in layout))
    return tuple(shapes)


def _closing(text: str, start: int) -> int:
    """Where the parenthesis at `start` closes; quoted text doesn't count. The last character if it never does."""
    depth, quoted, at = 0, False, start
    while at < len(text):
        letter = text[at]
        if letter == '"':
            quoted = not quoted
        elif letter == "\\" and quoted:
            at += 1
        elif not quoted and letter == "(":
            depth += 1
        elif not quoted and letter == ")":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(text) - 1


class _Sources:
    """Where instructions come from: tables of files and stack frames at the module's head, or words of the instruction
    itself in older texts."""

    def __init__(self, lines: list[str]) -> None:
        self._tables: dict[str, dict[int, str]] = {}
        table: dict[int, str] = {}
        for line in lines:
            if _COMPUTATION.match(line):
                break
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                table = self._tables.setdefault(line, {})
            elif row := _ROW.match(line):
                table[int(row.group(1))] = row.group(2) if row.group(2) is not None else row.group(3)

    def of(self, text: str) -> str:
        if named := _SOURCE.search(text):
            return f"{named.group(1)}:{named.group(2)}" if named.group(2) else named.group(1)
        frame = _FRAME.search(text)
        location = self._number("StackFrames", int(frame.group(1)), "file_location_id") if frame else 0
        file = self._number("FileLocations", location, "file_name_id")
        line = self._number("FileLocations", location, "line")
        name = self._tables.get("FileNames", {}).get(file, "")
        return f"{name}:{line}" if name and line else name

    def _number(self, table: str, row: int, field: str) -> int:
        found = re.search(rf"\b{field}=(\d+)", self._tables.get(table, {}).get(row, ""))
        return int(found.group(1)) if found else 0
