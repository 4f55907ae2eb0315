"""The package's surface."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tuner.measure


def test_every_public_name_is_there() -> None:
    for name in set(tuner.measure.__all__) - {"Gains"}:  # an alias has no name, and neither have values
        assert name.isupper() or getattr(tuner.measure, name).__name__ == name
    assert tuner.measure.Gains
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tuner.measure.no_such_name


@pytest.mark.slow
def test_the_plain_values_cost_no_heavy_import() -> None:
    """`tune --help` must not wait for scipy because a record holds an Estimate."""
    heavy = "not {'numpy', 'scipy'}.isdisjoint(sys.modules)"
    code = f"import sys; from tuner.measure import Estimate, Verdict; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
