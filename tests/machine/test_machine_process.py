from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tuner.machine.process import alive, read_stamp, start_of, this_process


def test_this_process_is_alive_and_names_itself() -> None:
    me = this_process("tune nbody.py")
    assert alive(me)
    assert f"process {os.getpid()} (tune nbody.py), since 2" in str(me)
    assert read_stamp(msgspec.json.encode(me)) == me


def test_a_later_process_with_the_same_pid_is_another() -> None:
    assert not alive(msgspec.structs.replace(this_process(), start="boot:1"))


@pytest.mark.slow
def test_an_ended_process_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    stamp = msgspec.structs.replace(this_process(), pid=child.pid, start=start_of(child.pid))
    assert alive(stamp)
    child.communicate(b"\n")
    assert not alive(stamp)


def test_a_process_of_another_host_counts_as_alive() -> None:
    far = msgspec.structs.replace(this_process(), host="elsewhere", pid=2**22 + 1)
    assert alive(far)
    assert "on elsewhere" in str(far)


def test_a_name_with_parentheses_does_not_shift_the_fields(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(f"7 (a) b (c) S {' '.join(map(str, range(4, 53)))}")
    assert start_of(7, proc=tmp_path) == ":22"
    assert start_of(8, proc=tmp_path) == ""


def test_without_proc_the_creation_time_is_used(tmp_path: Path) -> None:
    assert start_of(os.getpid(), proc=tmp_path / "none").isdecimal()
    assert start_of(2**22 + 1, proc=tmp_path / "none") == ""


@pytest.mark.parametrize("text", [b"", b"{", b"123", b'{"pid": 1}'])
def test_anything_else_is_no_stamp(text: bytes) -> None:
    assert read_stamp(text) is None
