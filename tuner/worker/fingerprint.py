"""Hashes of what is compiled: the program that goes in, and the code that comes out."""

from __future__ import annotations

import hashlib
import math
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import jax

from tuner.protocol.wire import bytes_fields, varint

__all__ = [
    "MachineCode",
    "code_of",
    "collective_bytes_in",
    "collectives_in",
    "digest",
    "in_order",
    "machine_code",
    "program_of",
    "schedule_of",
    "without_name",
]

_PROGBITS, _RELA = 1, 4  # ELF section types: contents, relocations
_SKIPPED_SECTIONS = (".comment", ".note", ".debug", ".eh_frame")
_HEADER = struct.Struct(
    "<QLHHHHHH"
)  # ELF64 header from e_shoff on: shoff flags ehsize phentsize phnum shentsize shnum shstrndx
_SECTION = struct.Struct("<LLQQQQ")  # name type flags addr offset size
# Small loops are compiled as one kernel each whose arguments XLA collects from a hash set of pointers: their order, and
# with it the code, differs from compile to compile (seen on jax 0.10.2, 0.11.2, 0.12.0.1).
_UNSTABLE = b"computation_kernel_emitter"
_TUNING_KNOBS = re.compile(r'("tuning_knobs":\{)([^{}]*)\}')
_KINDS = "all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|ragged-all-to-all|reduce-scatter"
_COLLECTIVE = re.compile(rf"\s({_KINDS})(?:-start)?\(")
_GIVEN = re.compile(rf"^.*? = (.*?)\s({_KINDS})(?:-done)?\(")
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$")
_WRAPPING = re.compile(r"\sasync-start\(.*\bcalls=%?([\w.\-]+)")
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
_WIDTH = re.compile(r"\d+")

_COMMUNICATES = re.compile(r"(?:channel_id|replica_groups|source_target_pairs)=(?:\{\{.*?\}\}|[^\s,]+(?: \{[^}]*\})?)")
_RESULT = re.compile(r"^.*= (.*)$")


def digest(parts: Iterable[str | bytes]) -> str:
    """32 hex digits over the parts, in order, their borders included."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:32]


def program_of(lowered: jax.stages.Lowered, placement: Iterable[str]) -> str:
    """Hash of the lowered step: StableHLO without source locations, avals, donation, and how the inputs are placed."""
    args = [f"{jax.tree_util.keystr(path)} {info}" for path, info in _with_paths(lowered.args_info)]
    outs = [f"{jax.tree_util.keystr(path)} {info}" for path, info in _with_paths(lowered.out_info)]
    return digest([lowered.as_text(), *args, "->", *outs, "@", *placement])


def code_of(
    executable: Any, platform: str, *, hlo: Iterable[str], cached: bool
) -> tuple[str, Literal["hlo", "hlo+codegen"]]:
    """Hash of what the compiler made of a program (`hlo`: its modules' canonical texts), and what the hash covers.

    The first 16 digits stand for the canonical optimised HLO. On the CPU the other 16 stand for the machine code, read
    from the serialised executable: object files without symbol tables and debug sections, in sorted order (they are
    generated in parallel), and the target machine. What differs between two equal compiles (module ids, options, source
    locations) is left out. "hlo": code is missing from the hash. On a GPU it is compressed inside the executable; an
    executable that came from the persistent cache (`cached`) no longer holds it; and kernels that XLA doesn't generate
    twice alike are left out.

    Equal hashes don't mean equal speed: library calls inside a fusion and run-time settings leave no trace here.
    """
    front = digest(in_order(without_name(text)) for text in hlo)[:16]
    code = machine_code(executable.serialize()) if platform == "cpu" and sys.platform == "linux" else None
    if code is None or (cached and not code.objects):
        return front + 16 * "0", "hlo"
    return front + digest([*code.objects, *code.target])[:16], "hlo+codegen" if code.whole else "hlo"


@dataclass(frozen=True)
class MachineCode:
    """`objects`: a digest for each object file, sorted. `target`: target machine and data layout, serialised.
    `whole`: no kernel was left out."""

    objects: tuple[str, ...]
    target: tuple[bytes, ...]
    whole: bool


def machine_code(data: bytes) -> MachineCode | None:
    """The code in a serialised CPU executable; None if it is laid out in another way than known.

    A length-prefixed header, then field 1 of a message: the compilation result. There, fields 8 are the object files
    (1: ELF, 2: name), 9 the target machine, 10 the data layout.
    """
    objects, target, whole = [], [], True
    try:
        length, start = varint(data, 0)
        result = next(content for number, content in bytes_fields(data[start + length :]) if number == 1)
        for number, content in bytes_fields(result):
            if number == 8:
                parts = dict(bytes_fields(content))
                if _UNSTABLE in parts.get(2, b""):
                    whole = False
                else:
                    objects.append(digest(_sections(parts[1])))
            elif number in (9, 10):
                target.append(content)
    except (ValueError, KeyError, StopIteration, struct.error):
        return None
    return MachineCode(tuple(sorted(objects)), tuple(target), whole)


def without_name(hlo: str) -> str:
    """An HLO module's text without the module's own name in its first line."""
    return re.sub(r"\AHloModule [^\s,]+", "HloModule", hlo)


def in_order(hlo: str) -> str:
    """The text of a module with cuDNN's tuning knobs sorted: they come from an unordered map and print in another order
    in every compile (seen on jax 0.11.2, CUDA)."""
    return _TUNING_KNOBS.sub(lambda m: m[1] + ",".join(sorted(m[2].split(","))) + "}", hlo)


def collectives_in(hlo: str) -> dict[str, int]:
    """How many collectives of each kind an optimised module holds; asynchronous pairs count once."""
    counts: dict[str, int] = {}
    for match in _COLLECTIVE.finditer(hlo):
        counts[match[1]] = counts.get(match[1], 0) + 1
    return dict(sorted(counts.items()))


def collective_bytes_in(hlo: str) -> dict[str, int]:
    """Bytes that the collectives of each kind in one computation of a module give on one device, together: those of the
    computation where that is most. An asynchronous pair gives what its second half does, or what it wraps. `hlo`: as
    ``Compiled.as_text()`` has it."""
    found: dict[str, Counter[str]] = {}
    here: Counter[str] = Counter()
    wrapped: list[tuple[Counter[str], str]] = []
    for line in hlo.splitlines():
        if head := _HEAD.match(line):
            here = found.setdefault(head[1], Counter())
        elif match := _GIVEN.match(line):
            here[match[2]] += _bytes(match[1])
        elif match := _WRAPPING.search(line):
            wrapped.append((here, match[1]))
    for into, name in wrapped:
        into.update(found.get(name, {}))
    kinds = sorted({kind for counted in found.values() for kind in counted})
    return {kind: max(counted[kind] for counted in found.values()) for kind in kinds}


def _bytes(shapes: str) -> int:
    """Of all arrays in the text of a result's shape. An element type's width is the number in its name."""
    total = 0
    for name, dims in _SHAPE.findall(shapes):
        width = _WIDTH.search(name)
        bits = int(width[0]) if width else 8
        total += bits * math.prod(int(d.strip("<=")) for d in dims.split(",") if d) // 8
    return total


def schedule_of(hlo: str) -> list[str]:
    """The collectives of a scheduled module in the order of its text, which is that of its schedule: kind, result,
    channel and groups of each. Ranks that differ here wait for each other for ever."""
    schedule = []
    for line in hlo.splitlines():
        if match := _COLLECTIVE.search(line):
            rest = [found[0] for found in _COMMUNICATES.finditer(line[match.end() :])]
            schedule.append(" ".join([match[1], _RESULT.sub(r"\1", line[: match.start()].strip()), *rest]))
    return schedule


def _with_paths(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def _sections(data: bytes) -> list[bytes]:
    """Name and contents of the sections that make up an object's code and constants. Raises ValueError if `data` is no
    64-bit little-endian ELF object."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not an ELF64 object")
    offset, _, _, _, _, size, count, names_index = _HEADER.unpack_from(data, 0x28)
    headers = [_SECTION.unpack_from(data, offset + size * i) for i in range(count)]
    if names_index >= count:
        raise ValueError("an ELF object without section names")
    names = headers[names_index][4]
    kept = []
    for name, kind, _, _, begin, length in headers:
        text = data[names + name : data.index(b"\0", names + name)].decode("latin-1")
        if kind in (_PROGBITS, _RELA) and not text.removeprefix(".rela").startswith(_SKIPPED_SECTIONS):
            kept += [text.encode(), data[begin : begin + length]]
    return kept
