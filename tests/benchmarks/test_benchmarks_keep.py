"""What is kept of a run names no folder of the machine, and its facts are the log's."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from keep import facts, portable

from tuner.store.lines import decode

RESULTS = Path(__file__).parent / "results"


def test_the_longest_folder_goes_first_and_names_stay() -> None:
    text = '{"a": "/home/me/code/workloads/gpt.py", "b": "/home/me/x", "c": "/home/metal/y"}'
    cut = portable(text, [Path("/home/me"), Path("/home/me/code")])
    assert cut == '{"a": "workloads/gpt.py", "b": "x", "c": "/home/metal/y"}'


def test_the_facts_of_a_stored_run() -> None:
    data = gzip.decompress((RESULTS / "h100" / "gpt-jax0.11.2.events.jsonl.gz").read_bytes())
    lines = facts([decode(line) for line in data.splitlines()])
    assert lines[0].startswith("took ")
    assert lines[1].startswith("faster: 1.0")
    assert "xla_gpu_triton_gemm_any=false" in lines[1]
    assert lines[2].startswith("best single setting of the same run: 1.01")


@pytest.mark.parametrize("data", sorted(p for p in RESULTS.rglob("*.*") if p.is_file()), ids=lambda p: p.name)
def test_no_stored_data_names_a_folder_of_the_machine_that_made_it(data: Path) -> None:
    raw = data.read_bytes()
    text = (gzip.decompress(raw) if data.suffix == ".gz" else raw).decode()
    assert not re.findall(r'"/(?!usr/|lib/|etc/)[^"]*', text)
    assert not re.findall(r"(?<![\w.])/(?:home|mnt|opt|root|tmp|work)/[^\s\"]*", text)
