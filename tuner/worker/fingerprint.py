"""Hashes of what is compiled: the program that goes in, and the code that comes out."""

from __future__ import annotations

import hashlib
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import jax

from tuner.worker.wire import bytes_fields, varint

__all__ = ["code_of", "collectives_in", "digest", "machine_code", "program_of", "target_machine", "without_name"]

_PROGBITS, _RELA = 1, 4  # ELF section types: contents, relocations
_SKIPPED_SECTIONS = (".comment", ".note", ".debug", ".eh_frame")
_HEADER = struct.Struct(
    "<QLHHHHHH"
)  # ELF64 header from e_shoff on: shoff flags ehsize phentsize phnum shentsize shnum shstrndx
_SECTION = struct.Struct("<LLQQQQ")  # name type flags addr offset size
_COLLECTIVE = re.compile(
    r"\s(all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|ragged-all-to-all|reduce-scatter)"
    r"(?:-start)?\("
)


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


def code_of(executable: Any, platform: str, *, hlo: Iterable[str]) -> tuple[str, Literal["hlo", "hlo+codegen"]]:
    """Hash of what the compiler made of a program (`hlo`: its modules' canonical texts), and what the hash covers.

    Always the canonical optimised HLO. On the CPU also the machine code, read from the serialised executable: object
    files without symbol tables and debug sections, in sorted order (they are generated in parallel), and the target
    machine. What differs between two equal compiles (module ids, options, source locations) is left out. On a GPU the
    code is compressed inside the executable: there the HLO stands alone.

    Equal hashes don't mean equal speed: library calls inside a fusion and run-time settings leave no trace here.
    """
    texts = [without_name(text) for text in hlo]
    if platform != "cpu" or sys.platform != "linux":
        return digest(texts), "hlo"
    data = executable.serialize()
    return digest([*texts, *machine_code(data), *target_machine(data)]), "hlo+codegen"


def without_name(hlo: str) -> str:
    """An HLO module's text without the module's own name in its first line."""
    return re.sub(r"\AHloModule [^\s,]+", "HloModule", hlo)


def collectives_in(hlo: str) -> dict[str, int]:
    """How many collectives of each kind an optimised module holds; asynchronous pairs count once."""
    counts: dict[str, int] = {}
    for match in _COLLECTIVE.finditer(hlo):
        counts[match[1]] = counts.get(match[1], 0) + 1
    return dict(sorted(counts.items()))


def machine_code(data: bytes) -> list[str]:
    """One digest per ELF object found anywhere in `data`, sorted."""
    return sorted(digest(sections) for sections in _objects(data))


def target_machine(data: bytes) -> list[bytes]:
    """Target machine and data layout of a serialised CPU executable; empty where its layout is another."""
    try:
        length, start = varint(data, 0)
        result = next(content for number, content in bytes_fields(data[start + length :]) if number == 1)
        return [content for number, content in bytes_fields(result) if number in (9, 10)]
    except (ValueError, StopIteration):
        return []


def _with_paths(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def _objects(data: bytes) -> Iterator[list[bytes]]:
    start = data.find(b"\x7fELF")
    while start >= 0:
        sections = _sections(data[start:])
        if sections is not None:
            yield sections
        start = data.find(b"\x7fELF", start + 4)


def _sections(data: bytes) -> list[bytes] | None:
    """Name and contents of the sections that make up an object's code and constants; None if it is no ELF64 object."""
    if len(data) < 64 or data[4:6] != b"\x02\x01":  # 64 bits, little-endian
        return None
    offset, _, _, _, _, size, count, names_index = _HEADER.unpack_from(data, 0x28)
    if size != 64 or names_index >= count or offset + size * count > len(data):
        return None
    headers = [_SECTION.unpack_from(data, offset + size * i) for i in range(count)]
    names = headers[names_index][4]
    kept = []
    for name, kind, _, _, begin, length in headers:
        text = data[names + name : data.index(b"\0", names + name)].decode("latin-1")
        if kind in (_PROGBITS, _RELA) and not text.removeprefix(".rela").startswith(_SKIPPED_SECTIONS):
            kept += [text.encode(), data[begin : begin + length]]
    return kept
