"""Durations, fractions, NAME=VALUE and the other kinds of values."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cli.params import (
    ASSIGNMENT,
    COUNT,
    DURATION,
    FRACTION,
    INTERPRETER,
    MEMORY,
    STORE,
    VARIABLE,
    Count,
    ParamType,
    duration_text,
    fraction_text,
    memory_text,
)


def refusal(kind: ParamType, text: str) -> str:
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("10min", 600),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("600", 600),
        ("1.5h", 5400),
        ("0.5", 0.5),
        (" 10M ", 600),
        ("1h5s", 3605),
    ],
)
def test_duration_is_in_seconds(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["10x", "", " ", "m", "10m1h", "-5", "1e3", "ten", "10mm", "nan", "inf", "5m5"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    message = refusal(DURATION, text)
    assert repr(text) in message
    assert "1h30m" in message


@pytest.mark.parametrize("text", ["0", "0s", "0h0m", "0.0"])
def test_no_time_at_all_is_refused(text: str) -> None:
    assert "leaves no time" in refusal(DURATION, text)


def test_an_endless_number_is_refused() -> None:
    assert "too long" in refusal(DURATION, "9" * 400)


@given(st.integers(min_value=1, max_value=10**6))
def test_duration_text_is_read_back(seconds: int) -> None:
    assert seconds == DURATION.convert(duration_text(float(seconds)), None, None)


def test_duration_text_is_the_usual_spelling() -> None:
    assert [duration_text(s) for s in (600.0, 5400.0, 90.0, 0.5)] == ["10m", "1h30m", "1m30s", "0.5s"]


@pytest.mark.parametrize(
    ("text", "share"), [("0.5%", 0.005), ("0.005", 0.005), ("2 %", 0.02), ("50%", 0.5), (".1", 0.1)]
)
def test_fraction_reads_percent_and_plain(text: str, share: float) -> None:
    assert FRACTION.convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "half", "nan", "inf%"])
def test_what_is_no_fraction_is_refused(text: str) -> None:
    assert "is not a fraction" in refusal(FRACTION, text)


@pytest.mark.parametrize("text", ["0", "-1%", "0%"])
def test_a_fraction_is_above_zero(text: str) -> None:
    assert "not above zero" in refusal(FRACTION, text)


@pytest.mark.parametrize(("text", "meanings"), [("0.5", "0.5% or 50%"), ("2", "2% or 200%")])
def test_a_bare_number_that_could_be_percent_is_refused(text: str, meanings: str) -> None:
    assert meanings in refusal(FRACTION, text)


def test_a_fraction_is_below_one() -> None:
    assert "not below 100%" in refusal(FRACTION, "100%")


def test_fraction_text_is_percent() -> None:
    assert fraction_text(0.005) == "0.5%"


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("batch=8", ("batch", "8")),
        ("--xla_gpu_enable_triton_gemm=false", ("xla_gpu_enable_triton_gemm", "false")),
        ("NCCL_PROTO=", ("NCCL_PROTO", "")),
        ("a=b=c", ("a", "b=c")),
        ("a= b ", ("a", " b ")),
    ],
)
def test_assignment_keeps_the_value_to_the_letter(text: str, pair: tuple[str, str]) -> None:
    assert ASSIGNMENT.convert(text, None, None) == pair


def test_assignment_without_value_names_the_form() -> None:
    assert "write batch=VALUE" in refusal(ASSIGNMENT, "batch")


@pytest.mark.parametrize("text", ["=8", "1a=8", "a b=8", "–xla_x=1"])
def test_assignment_needs_a_name(text: str) -> None:
    assert "can't be the name of a knob" in refusal(ASSIGNMENT, text)


def test_variable_takes_a_name_alone() -> None:
    assert VARIABLE.convert("NCCL_PROTO", None, None) == "NCCL_PROTO"
    assert "write NCCL_PROTO" in refusal(VARIABLE, "NCCL_PROTO=LL")
    assert "is not the name of a variable" in refusal(VARIABLE, "NCCL PROTO")


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_count_is_a_whole_number_from_one(text: str) -> None:
    assert COUNT.convert("12", None, None) == 12
    assert repr(text) in refusal(COUNT, text)


def test_count_may_begin_and_end_elsewhere() -> None:
    assert [Count(0, 100).convert(text, None, None) for text in ("0", "100")] == [0, 100]
    assert "'101' is not a whole number from 0 to 100" in refusal(Count(0, 100), "101")
    assert "'x' is not a whole number of at least 0" in refusal(Count(0), "x")


def test_interpreter_is_found_by_path_and_keeps_links(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert INTERPRETER.convert(str(link), None, None) == str(link)


def test_interpreter_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python9").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert INTERPRETER.convert("python9", None, None) == str(tmp_path / "python9")


def test_interpreter_that_cannot_run_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    assert "is not there" in refusal(INTERPRETER, str(tmp_path / "python7"))
    assert "is not executable" in refusal(INTERPRETER, str(plain))
    assert "bin/python" in refusal(INTERPRETER, str(tmp_path))


def test_store_is_a_folder_or_a_url(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert STORE.convert(str(tmp_path / "new"), None, None) == str(tmp_path / "new")
    assert STORE.convert("postgresql://host/db", None, None) == "postgresql://host/db"
    assert "is a file" in refusal(STORE, str(file))
    assert "names no folder" in refusal(STORE, "")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("70GiB", 70 * 2**30),
        ("1.5 gib", 3 * 2**29),
        ("500MB", 500_000_000),
        ("4096", 4096),
        ("8kB", 8000),
        ("16B", 16),
        ("90%", 0.9),
        ("100 %", 1.0),
        ("0.5%", 0.005),
    ],
)
def test_memory_is_bytes_or_a_share(text: str, limit: float) -> None:
    read = MEMORY.convert(text, None, None)
    assert read == pytest.approx(limit)
    assert isinstance(read, type(limit))
    assert MEMORY.convert(memory_text(read), None, None) == pytest.approx(read)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lots", "is not a size"),
        ("", "is not a size"),
        ("-1GiB", "is not a size"),
        ("10G", "is not a size"),
        ("0.9", "no whole number of bytes; write 80GiB, or 90%"),
        ("0", "leaves no memory"),
        ("0%", "not above 0%"),
        ("120%", "at most 100%"),
        ("nan%", "is not a size"),
    ],
)
def test_what_is_no_memory_is_refused_with_examples(text: str, says: str) -> None:
    message = refusal(MEMORY, text)
    assert says in message
    assert repr(text) in message
