"""What `tune --help` costs: no heavy import, and little time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HEAVY = ("jax", "jaxlib", "numpy", "optuna", "pandas", "rich", "scipy", "sqlalchemy")
TUNE = "import sys; from tuner.cli import main; sys.exit(main())"


def start(*argv: str) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TUNER_", "COV_", "PYTHON"))}
    return subprocess.Popen(
        [sys.executable, *argv],
        env={**environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = "import sys, tuner, tuner.cli, tuner.cli.main; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    out, err = start("-c", code).communicate(timeout=60)
    assert err == ""
    loaded = set(out.split())
    assert {"tuner", "click"} <= loaded
    assert loaded.isdisjoint(HEAVY)


def test_help_takes_less_than_150_ms() -> None:
    """The least processor time of five: what it takes on an idle machine, whatever else this one is doing."""
    seconds = []
    for _ in range(6):
        process = start("-c", TUNE, "--help")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        with process:
            assert process.stdout is not None
            assert "Usage: tune" in process.stdout.read()
        assert process.returncode == 0
        seconds.append(usage.ru_utime + usage.ru_stime)
    assert min(seconds[1:]) < 0.150  # the first one compiles the modules
