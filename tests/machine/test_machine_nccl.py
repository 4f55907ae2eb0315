"""NCCL's debug lines, written by hand after its own, and what was asked of it."""

from __future__ import annotations

import pytest

from tuner.machine import read_nccl, requested_and_ran

NAMED = """
I0000 00:00:00.000000 12 client.cc:1] some other line: 3 Bytes -> Algo RING proto LL
node7:4120:4301 [0] NCCL INFO NCCL_PROTO set by environment to Simple
NCCL version 2.27.3+cuda12.9
node7:4120:4301 [0] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 32 p2p channels
node7:4120:4377 [0] NCCL INFO AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}
node7:4120:4377 [1] NCCL INFO AllGather: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
node7:4120:4377 [0] NCCL WARN something
"""
NUMBERED = "node7:1:2 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo 0 proto 1 time 12.0\n"


def test_version_channels_algorithm_and_protocol_are_read() -> None:
    run = read_nccl(NAMED.splitlines())
    assert (run.version, run.channels, run.nvls_channels) == ("2.27.3", 16, 0)
    assert run.ran == {("AllReduce", 4194304): ("RING", "SIMPLE"), ("AllGather", 8192): ("RING", "LL")}


def test_numbers_of_older_versions_are_named() -> None:
    assert read_nccl([NUMBERED]).ran == {("AllReduce", 1024): ("TREE", "LL128")}


def test_a_log_without_its_lines_says_nothing() -> None:
    run = read_nccl(["AllReduce: 4 Bytes -> Algo RING proto LL", ""])
    assert (run.version, run.channels, run.ran) == ("", None, {})
    assert requested_and_ran({"NCCL_PROTO": "LL", "NCCL_MAX_CTAS": "4"}, run) == []


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        ({}, []),
        ({"NCCL_ALGO": "Ring"}, []),
        ({"NCCL_PROTO": "SIMPLE,LL,LL128"}, []),
        ({"NCCL_PROTO": "Simple"}, ["requested NCCL_PROTO=Simple, ran LL for AllGather of 8192 bytes"]),
        (
            {"NCCL_ALGO": "Tree"},
            ["requested NCCL_ALGO=Tree, ran RING for AllGather of 8192 bytes, RING for AllReduce of 4194304 bytes"],
        ),
        ({"NCCL_MAX_CTAS": "8"}, ["requested NCCL_MAX_CTAS=8, ran 16 channels"]),
        ({"NCCL_MAX_CTAS": "16", "NCCL_MIN_NCHANNELS": "16"}, []),
        ({"NCCL_MIN_CTAS": "32"}, ["requested NCCL_MIN_CTAS=32, ran 16 channels"]),
        ({"NCCL_NVLS_ENABLE": "0"}, []),
    ],
)
def test_what_was_asked_for_and_not_done_is_told(settings: dict[str, str], texts: list[str]) -> None:
    assert requested_and_ran(settings, read_nccl(NAMED.splitlines())) == texts


def test_multicast_in_spite_of_being_switched_off_is_told() -> None:
    run = read_nccl([NAMED.replace("0 nvls", "16 nvls").splitlines()[4]])
    assert requested_and_ran({"NCCL_NVLS_ENABLE": "0"}, run) == [
        "requested NCCL_NVLS_ENABLE=0, ran 16 channels of NVLink multicast"
    ]
