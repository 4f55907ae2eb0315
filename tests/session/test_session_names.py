"""The package's names, and that using it costs little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tuner.session


def test_every_public_name_can_be_had_and_has_one_home() -> None:
    assert sorted(tuner.session.__all__) == sorted(tuner.session._HOMES)
    for name in tuner.session.__all__:
        assert getattr(tuner.session, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        tuner.session.no_such_name  # noqa: B018  (looking it up is the test)


@pytest.mark.slow
def test_no_session_imports_anything_heavy() -> None:
    code = (
        "import sys, tuner.session as s; [getattr(s, n) for n in s.__all__];"
        "print([m for m in ('jax', 'numpy', 'scipy', 'pandas', 'optuna', 'sqlalchemy') if m in sys.modules])"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
