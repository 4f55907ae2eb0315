"""What `tune --help` costs: no heavy import, and little time."""

from __future__ import annotations

import subprocess
import sys

import pytest
from processor_time import ROOT, TUNE, least_seconds, quick_environ

pytestmark = pytest.mark.slow

HEAVY = ("jax", "jaxlib", "numpy", "optuna", "pandas", "rich", "scipy", "sqlalchemy")


def printed(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], env=quick_environ(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    loaded = printed(
        "import sys, tuner, tuner.cli, tuner.cli.main; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    assert {"tuner", "click"} <= {*loaded}
    assert {*loaded}.isdisjoint(HEAVY)


def test_help_takes_less_than_150_ms() -> None:
    assert least_seconds("--help", cwd=ROOT) < 0.150


def test_the_list_of_commands_is_shown_without_importing_them() -> None:
    shown = printed(
        f"import sys\nsys.argv.append('--help')\n{TUNE.replace('sys.exit(main())', 'main()')}\nprint(*sys.modules)"
    )
    assert {"Usage:", "compare", "tuner.cli.main"} <= {*shown}
    assert {"tuner.cli.run", "tuner.cli.compare", "tuner.cli.settings"}.isdisjoint(shown)
