"""What a command line takes of the processor: its own time, whatever else the machine is doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "TUNE", "least_seconds", "quick_environ"]

ROOT = Path(__file__).parents[2]
TUNE = "import sys; from tuner.cli import main; sys.exit(main())"
_RUNS = 5
_CLICK_S = 0.075  # what a process that imports click takes on an idle core of a usual server


def quick_environ() -> dict[str, str]:
    """The inherited environment without what a test run puts there, and with this package to import."""
    ours = ("TUNER_", "XLA_", "JAX_", "COV_", "PYTHON")
    return {**{n: v for n, v in os.environ.items() if not n.startswith(ours)}, "PYTHONPATH": str(ROOT)}


def least_seconds(*arguments: str, cwd: Path) -> float:
    """The least of five processes `tune ARGUMENTS`. Where click's import alone takes longer than usual, the machine is
    slow or shares its cores: then the time is told as on a usual one."""
    _seconds(TUNE, *arguments, cwd=cwd)  # compiles the modules
    pairs = [(_seconds(TUNE, *arguments, cwd=cwd), _seconds("import click", cwd=cwd)) for _ in range(_RUNS)]
    ours, click = (min(column) for column in zip(*pairs, strict=True))
    return ours * min(1.0, _CLICK_S / click)


def _seconds(code: str, *arguments: str, cwd: Path) -> float:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=cwd, env=quick_environ(), stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
