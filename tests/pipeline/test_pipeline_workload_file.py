"""What is known of a workload file without executing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import WorkloadError
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


@pytest.mark.parametrize(
    ("given", "meant"),
    [("pack.train", "pack/train.py"), ("pack", "pack/__main__.py"), ("pack/trian.py", "pack/train.py")],
)
def test_a_module_and_a_package_are_answered_with_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pack").mkdir()
    for name in ("train", "__main__"):
        Path("pack", f"{name}.py").write_text("")
    with pytest.raises(WorkloadError) as caught:
        inspect(Path(given))
    assert caught.value.next == f"did you mean {meant}?"


@pytest.mark.parametrize("given", ["...", "....", "/..."])
def test_dots_alone_are_a_path_that_is_no_file(given: str) -> None:
    with pytest.raises(WorkloadError, match="no such file"):
        inspect(Path(given))
