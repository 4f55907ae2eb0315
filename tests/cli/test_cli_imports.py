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


def processor_seconds(*argv: str) -> float:
    """What a process takes of the processor, whatever else the machine is doing."""
    process = start(*argv)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    with process:
        assert process.stdout is not None
        assert ("Usage: tune" in process.stdout.read()) == ("--help" in argv)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_help_takes_less_than_150_ms() -> None:
    """The least of five. Where click alone takes two thirds of that, the machine is slow: the bound grows with it."""
    processor_seconds("-c", TUNE, "--help")  # compiles the modules
    pairs = [(processor_seconds("-c", TUNE, "--help"), processor_seconds("-c", "import click")) for _ in range(5)]
    ours, click_alone = (min(column) for column in zip(*pairs, strict=True))
    assert ours < max(0.150, 1.5 * click_alone)


def test_the_list_of_commands_is_shown_without_importing_them() -> None:
    code = f"import sys\nsys.argv.append('--help')\n{TUNE.replace('sys.exit(main())', 'main()')}\nprint(*sys.modules)"
    out, err = start("-c", code).communicate(timeout=60)
    assert err == ""
    assert "tuner.cli.main" in out
    assert not {"tuner.cli.run", "tuner.cli.compare", "tuner.cli.settings"} & {*out.split()}
