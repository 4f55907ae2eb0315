"""What is known of a workload file without executing it."""

from __future__ import annotations

from pathlib import Path

from tuner.pipeline.workload_file import inspect

FILE = """
SIZE = 4
raise RuntimeError("never executed")

def build(seed, batch: int = 16, *, rate=0.5, fused=True, remat="none", size=SIZE, cut=-1, dtype=None, more=[1]):
    ...
"""


def test_parameters_and_the_defaults_that_are_literals(tmp_path: Path) -> None:
    """Texts as KNOBS would have them; what has to be executed to be known, and what no knob can be, is left out."""
    path = tmp_path / "workload.py"
    path.write_text(FILE)
    found = inspect(path)
    assert found.parameters == ("seed", "batch", "rate", "fused", "remat", "size", "cut", "dtype", "more")
    assert found.defaults == {"batch": "16", "rate": "0.5", "fused": "true", "remat": "none", "cut": "-1"}
