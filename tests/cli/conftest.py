"""A command line in a folder of its own, without the user's settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import Served, Tune

from tuner.cli.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: empty, with no settings file above it, no TUNER_* variable, and nobody's COLUMNS."""
    for name in [name for name in os.environ if name.startswith("TUNER_") or name == "COLUMNS"]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tune(folder: Path, capsys: pytest.CaptureFixture[str]) -> Tune:
    def serve(*argv: str) -> Served:
        capsys.readouterr()
        code = main(argv)
        captured = capsys.readouterr()
        return Served(code, captured.out, captured.err)

    return serve
