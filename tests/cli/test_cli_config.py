"""`tune config`: every setting, its value and where it came from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Tune

from tuner.cli.settings import SETTINGS


def test_every_setting_is_shown_with_its_source(tune: Tune, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tuner.toml").write_text("seed = 7\n")
    monkeypatch.setenv("TUNER_MIN_GAIN", "1%")
    got = tune("config", "--budget", "1h30m", "--knob", "b=2", "--knob", "a=", "--max-memory", "3GiB")
    assert got.code == 0
    lines = {line.split()[0]: line for line in got.out.splitlines()}
    assert set(lines) == set(SETTINGS)
    assert lines["budget"].split()[1:] == ["1h30m", "--budget"]
    assert lines["min-gain"].split()[1:] == ["1%", "TUNER_MIN_GAIN"]
    assert lines["max-memory"].split()[1:] == ["3GiB", "--max-memory"]
    assert lines["seed"].split()[1] == "7"
    assert lines["seed"].endswith(f"{folder / 'tuner.toml'}: seed")
    assert "b=2 a=" in lines["knob"]
    assert lines["trials"].split(None, 1)[1].split("  ")[0] == "(no limit)"
    assert lines["store"].split()[1:] == [".tuner", "default"]


def test_json_is_one_document_in_base_units(tune: Tune, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.tuner]\nbudget = "2m"\n')
    got = tune("config", "--json", "--knob", "a=1")
    document = json.loads(got.out)
    assert document["schema"] == "tuner/config/1"
    assert document["file"] == str(folder / "pyproject.toml")
    settings = {entry["name"]: entry for entry in document["settings"]}
    assert list(settings) == list(SETTINGS)
    place = f"{folder / 'pyproject.toml'}: tool.tuner.budget"
    assert settings["budget"] == {"name": "budget", "value": 120.0, "source": "file", "where": place}
    assert settings["knob"]["value"] == {"a": "1"}
    assert settings["trials"] == {"name": "trials", "value": None, "source": "default", "where": ""}


def test_what_is_not_there_or_ignored_is_said_on_stderr(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_GUITAR_HERTZ", "440")
    got = tune("config")
    assert "no tuner.toml" in got.err
    assert "TUNER_GUITAR_HERTZ is no setting of tune and is ignored" in got.err
    assert json.loads(tune("config", "--json").out)["ignored"] == ["TUNER_GUITAR_HERTZ"]


def test_a_wrong_file_ends_with_usage_code_and_its_place(tune: Tune, folder: Path) -> None:
    (folder / "tuner.toml").write_text("budgte = 3\n")
    got = tune("config")
    assert (got.code, got.out) == (2, "")
    assert "did you mean budget?" in got.err
    assert f"where: {folder / 'tuner.toml'}" in got.err
    assert "next: " in got.err
