"""Hashes of compiled code, on small inputs made here."""

from __future__ import annotations

import struct

import pytest

from tuner.protocol.wire import bytes_fields, varint
from tuner.worker.fingerprint import (
    MachineCode,
    collective_bytes_in,
    collectives_in,
    digest,
    in_order,
    machine_code,
    without_name,
)

HLO = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %r = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %all-reduce.1 = f32[8]{0} all-reduce(f32[8]{0} %p), replica_groups={{0,1}}, to_apply=%add
  %s = (f32[8]{0}, f32[16]{0}) all-gather-start(f32[8]{0} %all-reduce.1), dimensions={0}
  %d = f32[16]{0} all-gather-done((f32[8]{0}, f32[16]{0}) %s)
  %q = f32[8]{0} ragged-all-to-all(f32[8]{0} %p)
  ROOT %c = f32[8]{0} all-reduce(f32[8]{0} %q), to_apply=%add
}
"""


def elf(sections: dict[str, tuple[int, bytes]]) -> bytes:
    """A little ELF64 object: name → (type, contents), a table of section names at the end."""
    names, offsets = b"\0", {}
    for name in (*sections, ".shstrtab"):
        offsets[name] = len(names)
        names += name.encode() + b"\0"
    body, headers, at = b"", [struct.pack("<LLQQQQLLQQ", *[0] * 10)], 64
    for name, (kind, contents) in {**sections, ".shstrtab": (3, names)}.items():
        headers.append(struct.pack("<LLQQQQLLQQ", offsets[name], kind, 0, 0, at + len(body), len(contents), 0, 0, 1, 0))
        body += contents
    count = len(headers)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = ident + struct.pack("<HHLQQQLHHHHHH", 1, 62, 1, 0, 0, at + len(body), 0, 64, 0, 0, 64, count, count - 1)
    return head + body + b"".join(headers)


CODE = {
    ".text": (1, b"code"),
    ".comment": (1, b"made by"),
    ".symtab": (2, b"symbols"),
    ".rela.eh_frame": (4, b"unwind"),
}


def _field(number: int, content: bytes) -> bytes:
    length, size = b"", len(content)
    while size >= 0x80:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def executable(*objects: bytes, names: tuple[str, ...] = (), options: bytes = b"options") -> bytes:
    """A serialised CPU executable around object files."""
    padded = (*names, *["loop_fusion"] * len(objects))
    files = [_field(8, _field(1, data) + _field(2, name.encode())) for data, name in zip(objects, padded, strict=False)]
    result = _field(1, b"module") + b"".join(files) + _field(9, b"x86 avx2") + _field(10, b"layout")
    return b"\x03abc" + _field(1, result) + _field(2, options)


def code(data: bytes) -> MachineCode:
    found = machine_code(data)
    assert found is not None
    return found


def test_code_counts_and_comments_symbols_unwind_tables_and_options_do_not() -> None:
    plain = code(executable(elf(CODE)))
    assert len(plain.objects) == 1
    assert plain.target == (b"x86 avx2", b"layout")
    assert plain.whole
    assert code(executable(elf(CODE), options=b"others")) == plain
    for name in (".comment", ".symtab", ".rela.eh_frame"):
        assert code(executable(elf(CODE | {name: (CODE[name][0], b"another")}))) == plain
    for name, kind in ((".text", 1), (".rela.text", 4), (".rodata", 1)):
        assert code(executable(elf(CODE | {name: (kind, b"another")}))) != plain


def test_the_order_of_objects_does_not_matter_their_number_does() -> None:
    one, other = elf(CODE), elf({".text": (1, b"more code")})
    assert code(executable(one, other)) == code(executable(other, one))
    assert code(executable(one, other)) != code(executable(one, other, other))
    assert code(executable()).objects == ()


def test_kernels_that_never_come_out_twice_alike_are_left_out_and_that_is_said() -> None:
    names = ("xla_cpu_emitter__computation_kernel_emitter__hlo_opcode__call",)
    found = code(executable(elf({".text": (1, b"arguments in this order")}), elf(CODE), names=names))
    again = code(executable(elf({".text": (1, b"arguments in that order")}), elf(CODE), names=names))
    assert found == again
    assert not found.whole
    assert found.objects == code(executable(elf(CODE))).objects


@pytest.mark.parametrize("data", [b"", b"\xff" * 20, b"\x00", executable(b"no object"), executable(b"\x7fELF\x02\x01")])
def test_a_layout_that_is_not_known_gives_no_code(data: bytes) -> None:
    assert machine_code(data) is None


def test_the_modules_own_name_is_cut_and_nothing_else() -> None:
    assert without_name(HLO) == HLO.replace("HloModule jit_step,", "HloModule,")
    assert without_name(HLO.replace("jit_step", "jit_other")) == without_name(HLO)


def test_collectives_are_counted_by_kind_asynchronous_pairs_once() -> None:
    assert collectives_in(HLO) == {"all-gather": 1, "all-reduce": 2, "ragged-all-to-all": 1}
    assert collectives_in("ENTRY %m { ROOT %p = f32[] parameter(0) }") == {}


def test_borders_between_parts_count() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest([b"a"]) == digest(["a"])


def test_wire_fields_of_every_type_are_walked() -> None:
    message = b"\x08\x96\x01" + _field(2, b"two") + b"\x19" + bytes(8) + b"\x25" + bytes(4) + _field(2, b"again")
    assert list(bytes_fields(message)) == [(2, b"two"), (2, b"again")]
    assert varint(b"\x96\x01", 0) == (150, 2)


@pytest.mark.parametrize("message", [b"\x12\x05ab", b"\x0b", b"\x02\x00", b"\x80"])
def test_malformed_wire_data_is_an_error(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|wire type|varint"):
        list(bytes_fields(message))


def test_the_order_in_which_cudnns_knobs_print_does_not_matter() -> None:
    one = 'conv = custom-call(a, b), backend_config={"x":1,"tuning_knobs":{"2":"3","0":"1"},"y":"z"}'
    other = 'conv = custom-call(a, b), backend_config={"x":1,"tuning_knobs":{"0":"1","2":"3"},"y":"z"}'
    assert in_order(one) == in_order(other) == other
    assert in_order(one.replace('"3"', '"4"')) != other
    assert in_order('backend_config={"tuning_knobs":{},"y":{}}') == 'backend_config={"tuning_knobs":{},"y":{}}'


LAYERS = """HloModule jit_step, is_scheduled=true

%wrapped (p: f32[16]) -> f32[4] {
  %p = f32[16]{0} parameter(0)
  ROOT %reduce-scatter.1 = f32[4]{0} reduce-scatter(%p), dimensions={0}, to_apply=%sum
}

%body (p: (bf16[8,4], f32[16])) -> (bf16[8,4], f32[16]) {
  %all-gather-start.1 = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) all-gather-start(%a), dimensions={0}
  %all-gather-done.1 = bf16[8,4]{1,0} all-gather-done(%all-gather-start.1)
  %all-gather.2 = f8e4m3fn[8]{0} all-gather(%b), dimensions={0}
  %async-start.1 = ((f32[16]{0}), f32[4]{0}) async-start(%c), calls=%wrapped
  %async-done.1 = f32[4]{0} async-done(%async-start.1)
  %async-start.2 = ((f32[16]{0}), f32[4]{0}) async-start(%d), calls=%wrapped
}

ENTRY %main {
  %all-gather.9 = pred[8]{0} all-gather(%x), dimensions={0}
  %all-reduce.1 = (f32[10]{0}, f32[]) all-reduce(%y, %z), to_apply=%sum
  %all-reduce-done.1 = s32[2]{0} all-reduce-done(%all-reduce-start.1)
}
"""


def test_bytes_of_collectives_are_counted_by_computation() -> None:
    """64 bytes in bf16 and 8 of an 8-bit float in the loop, 8 in the entry; two wrapped ones of 16 bytes each."""
    assert collective_bytes_in(LAYERS) == {"all-gather": 72, "all-reduce": 52, "reduce-scatter": 32}
    assert collective_bytes_in("") == {}
