"""The worker's pipe. None of these workers imports jax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from worker_driver import NONCE

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Compile, Variant

pytestmark = pytest.mark.slow

NOISY = """
import ctypes, os, subprocess, sys
print("from print")
os.write(1, b"from fd 1\\n")
ctypes.CDLL(None).printf(b"from printf\\n"); ctypes.CDLL(None).fflush(None)
subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
print("stdin is empty:", repr(sys.stdin.read()))
sys.stderr.write("{" + "x" * 300_000 + "}\\n")
"""


def test_hello_carries_the_nonce_and_hides_it_from_the_workload(start_worker) -> None:
    worker = start_worker()
    assert worker.hello.nonce == NONCE
    assert worker.hello.pid == worker.process.pid
    worker.load("import os; print('left:', 'TUNER_WORKER_NONCE' in os.environ)")
    assert "left: False" in worker.text()


def test_whatever_a_workload_prints_goes_to_the_log_and_not_to_the_pipe(start_worker) -> None:
    worker = start_worker()
    failure = worker.load(NOISY)
    assert failure.kind is FailureClass.WORKLOAD
    log = worker.text()
    for text in ("from print", "from fd 1", "from printf", "from a child", "stdin is empty: ''", "x" * 300_000):
        assert text in log


def test_end_of_the_pipe_ends_a_worker_whose_main_thread_is_busy(start_worker) -> None:
    worker = start_worker()
    path = worker.folder / "sleeper.py"
    path.write_text("import time\nprint('asleep', flush=True)\ntime.sleep(1000)\n")
    worker.post({"id": 1, "op": "load", "workload": str(path), "argv": [], "platform": None, "knobs": {}})
    while "asleep" not in worker.text():
        assert worker.process.poll() is None
    worker.process.stdin.close()
    assert worker.process.wait(timeout=10) == 0


def test_a_worker_that_was_asked_to_close_ends_in_its_own_time(start_worker) -> None:
    """The end of the pipe follows the request at once, and a reference may still be on its way to the disk."""
    worker = start_worker()
    path = worker.folder / "sleeper.py"
    path.write_text("import time\nprint('asleep', flush=True)\ntime.sleep(1)\nprint('awake', flush=True)\n")
    worker.post({"id": 1, "op": "load", "workload": str(path), "argv": [], "platform": None, "knobs": {}})
    while "asleep" not in worker.text():
        assert worker.process.poll() is None
    worker.post({"id": 2, "op": "close"})
    worker.process.stdin.close()
    assert worker.process.wait(timeout=10) == 0
    assert "awake" in worker.text()


def test_a_request_before_load_is_refused_and_the_worker_goes_on(start_worker) -> None:
    worker = start_worker()
    failure = worker.ask(Compile(variants=(Variant(id="c"),)))
    assert failure.kind is FailureClass.PROTOCOL
    assert "before a workload was loaded" in failure.message
    worker.post({"id": "x", "op": "nonsense"})
    assert worker.line()["failure"]["message"] == "unknown op 'nonsense'"
    worker.post({"id": 9, "op": "round", "arms": 3})
    assert worker.line()["failure"]["kind"] == "protocol"
    assert worker.close() == 0


def test_importing_the_entry_point_imports_no_jax_and_no_numpy() -> None:
    code = "import sys, tuner.worker.main; print(sorted({'jax', 'numpy', 'msgspec'} & sys.modules.keys()))"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
