"""The README says what is: its example runs, its options and files exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.jax
def test_the_example_workload_steps() -> None:
    """In a process of its own: the example is executed as it stands."""
    (example,) = blocks("python")
    check = "step, args = build()\nout = step(*args)\nprint(out.shape == (1024, 1024))\n"
    done = subprocess.run([sys.executable, "-c", example + check], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_every_option_of_run_is_in_the_readme_and_none_else() -> None:
    from tuner.cli.run import command

    there = {name for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("--")}
    named = set(re.findall(r"`(--(?!xla)[a-z-]+)", README))
    assert there - {"--help", "--seed"} <= named
    assert named - {"--failed", "--env-file"} <= there | {"--debug"}


def test_the_two_commands_do_all_their_own_set_up() -> None:
    tune, tests = blocks("sh")
    for command in (tune, tests):
        assert command.startswith("python3 -m venv .venv && .venv/bin/python -m pip install")
    workload = re.search(r"workloads/\w+\.py", tune)
    assert workload is not None
    assert (ROOT / workload[0]).is_file()


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
