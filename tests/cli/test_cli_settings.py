"""Where a setting comes from: option, variable, settings file, default."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tuner.cli.settings import SETTINGS, choose, find_file, stray_variables
from tuner.errors import UsageError
from tuner.measure.objective import OBJECTIVES


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_sources_the_defaults_hold(tmp_path: Path) -> None:
    settings = choose({}, {}, tmp_path)
    assert {name: one.value for name, one in settings.items()} == {
        "space": (),
        "budget": 600.0,
        "trials": None,
        "min-gain": 0.005,
        "objective": "mean",
        "max-memory": None,
        "first": (),
        "knob": {},
        "platform": None,
        "allow": (),
        "launch": None,
        "seal-with": None,
        "seal-time": 120.0,
        "pgle": "cache",
        "install-path": None,
        "require-gain": False,
        "override": (),
        "python": sys.executable,
        "store": ".tuner",
        "seed": 0,
        "quiet": False,
        "debug": False,
    }
    assert {one.source for one in settings.values()} == {"default"}


def test_option_beats_variable_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(tmp_path / "tuner.toml", 'budget = "1m"\ntrials = 3\nseed = 5\n')
    environ = {"TUNER_BUDGET": "2m", "TUNER_TRIALS": "4"}
    settings = choose({"budget": 180.0}, environ, tmp_path)
    got = {name: (settings[name].value, settings[name].source, settings[name].where) for name in SETTINGS}
    assert got["budget"] == (180.0, "option", "--budget")
    assert got["trials"] == (4, "variable", "TUNER_TRIALS")
    assert got["seed"] == (5, "file", f"{file}: seed")
    assert got["min-gain"] == (0.005, "default", "")


def test_a_source_replaces_lists_of_later_ones(tmp_path: Path) -> None:
    write(tmp_path / "tuner.toml", 'space = ["cpu", "precision"]\n[knob]\na = 1\nb = "2"\n')
    assert choose({}, {}, tmp_path)["space"].value == ("cpu", "precision")
    assert choose({}, {}, tmp_path)["knob"].value == {"a": "1", "b": "2"}
    assert choose({"space": ("gpu",), "knob": (("c", "3"),)}, {}, tmp_path)["space"].value == ("gpu",)
    assert choose({"space": ("gpu",), "knob": (("c", "3"),)}, {}, tmp_path)["knob"].value == {"c": "3"}


def test_a_variable_holds_words_as_a_shell_reads_them(tmp_path: Path) -> None:
    settings = choose({}, {"TUNER_SPACE": "cpu 'my space.toml'", "TUNER_KNOB": "a=1 b='x y'"}, tmp_path)
    assert settings["space"].value == ("cpu", "my space.toml")
    assert settings["knob"].value == {"a": "1", "b": "x y"}


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    assert choose({}, {"TUNER_BUDGET": ""}, tmp_path)["budget"].source == "default"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("yes", True), ("0", False), ("off", False)])
def test_a_switch_can_be_turned_on_and_off_by_a_variable(tmp_path: Path, text: str, value: bool) -> None:
    write(tmp_path / "tuner.toml", f"quiet = {'false' if value else 'true'}\n")
    assert choose({}, {"TUNER_QUIET": text}, tmp_path)["quiet"].value is value


def test_the_nearest_file_upwards_counts(tmp_path: Path) -> None:
    write(tmp_path / "tuner.toml", "seed = 1\n")
    write(tmp_path / "a" / "pyproject.toml", "[tool.tuner]\nseed = 2\n")
    write(tmp_path / "a" / "b" / "pyproject.toml", "[tool.other]\nseed = 3\n")
    (tmp_path / "a" / "b" / "c").mkdir()
    assert choose({}, {}, tmp_path / "a" / "b" / "c")["seed"].value == 2
    assert choose({}, {}, tmp_path)["seed"].value == 1


def test_tuner_toml_counts_before_pyproject_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.tuner]\nseed = 2\n")
    write(tmp_path / "tuner.toml", "seed = 1\n")
    assert choose({}, {}, tmp_path)["seed"].value == 1


def test_underscores_and_hyphens_are_the_same_in_a_file(tmp_path: Path) -> None:
    write(tmp_path / "tuner.toml", "min_gain = 0.01\nrequire-gain = true\n")
    settings = choose({}, {}, tmp_path)
    assert (settings["min-gain"].value, settings["require-gain"].value) == (0.01, True)


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "python").symlink_to(sys.executable)
    write(tmp_path / "tuner.toml", 'store = "runs"\npython = "venv/python"\nspace = ["cpu", "mine.toml"]\n')
    (tmp_path / "below").mkdir()
    settings = choose({}, {}, tmp_path / "below")
    assert settings["store"].value == str(tmp_path / "runs")
    assert settings["python"].value == str(tmp_path / "venv" / "python")
    assert settings["space"].value == ("cpu", str(tmp_path / "mine.toml"))


def test_a_store_url_in_a_file_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "tuner.toml", 'store = "postgresql://host/db"\n')
    assert choose({}, {}, tmp_path)["store"].value == "postgresql://host/db"


@pytest.mark.parametrize(
    ("text", "what", "place"),
    [
        ("seed = \n", "malformed TOML", ""),
        ("budgte = 3\n", "unknown setting 'budgte'; did you mean budget?", ""),
        ("zzz = 3\n", "unknown setting 'zzz'", ""),
        ('budget = "10x"\n', "'10x' is not a duration", ": budget"),
        ("budget = true\n", "'true' is not a duration", ": budget"),
        ("budget = [1, 2]\n", "takes one value, not a list", ": budget"),
        ("seed = 2024-01-01\n", "is neither a text nor a number", ": seed"),
        ('knob = "a=1"\n', "is not a table", ": knob"),
        ("knob = {a = [1]}\n", "is neither a text nor a number", ": knob"),
        ('platform = "tpu"\n', "'tpu' is not one of", ": platform"),
        ("min_gain = 1\nmin-gain = 1\n", "min-gain is given twice", ": min-gain"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_place(tmp_path: Path, text: str, what: str, place: str) -> None:
    file = write(tmp_path / "tuner.toml", text)
    with pytest.raises(UsageError) as caught:
        choose({}, {}, tmp_path)
    assert what in caught.value.what
    assert caught.value.where == f"{file}{place}"
    assert caught.value.next


def test_a_wrong_pyproject_names_the_table(tmp_path: Path) -> None:
    file = write(tmp_path / "pyproject.toml", '[tool.tuner]\ntrials = "few"\n')
    with pytest.raises(UsageError) as caught:
        choose({}, {}, tmp_path)
    assert caught.value.where == f"{file}: tool.tuner.trials"


@pytest.mark.parametrize("text", ["tool = 3\n", "[tool]\ntuner = 3\n"])
def test_a_pyproject_of_another_shape_does_not_break(tmp_path: Path, text: str) -> None:
    write(tmp_path / "pyproject.toml", text)
    if text.startswith("tool"):
        assert find_file(tmp_path) is None
    else:
        with pytest.raises(UsageError, match="is not a table"):
            find_file(tmp_path)


def test_a_file_that_is_not_utf8_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "tuner.toml").write_bytes(b'store = "\xff"\n')
    with pytest.raises(UsageError, match="malformed TOML"):
        find_file(tmp_path)


@pytest.mark.parametrize(
    ("variable", "text", "what"),
    [
        ("TUNER_BUDGET", "0", "leaves no time"),
        ("TUNER_KNOB", "batch", "has no value"),
        ("TUNER_KNOB", "a='", "can't be split into words"),
        ("TUNER_QUIET", "perhaps", "not a valid boolean"),
    ],
)
def test_a_wrong_variable_is_an_error_that_names_it(tmp_path: Path, variable: str, text: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose({}, {variable: text}, tmp_path)
    assert what in caught.value.what
    assert caught.value.where == variable


def test_one_knob_with_two_values_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a is given twice, as '1' and as '2'"):
        choose({"knob": (("a", "1"), ("a", "2"))}, {}, tmp_path)
    assert choose({"knob": (("a", "1"), ("a", "1"))}, {}, tmp_path)["knob"].value == {"a": "1"}


def test_a_mistyped_variable_is_an_error_and_a_foreign_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown variable TUNER_BUDGTE; did you mean TUNER_BUDGET"):
        choose({}, {"TUNER_BUDGTE": "5m"}, tmp_path)
    foreign = {"TUNER_GUITAR_HERTZ": "440", "OTHER": "1"}
    assert stray_variables(foreign) == {"TUNER_GUITAR_HERTZ": ""}
    assert choose({}, foreign, tmp_path)["budget"].source == "default"


def test_the_objectives_offered_are_those_there_are(tmp_path: Path) -> None:
    assert tuple(SETTINGS["objective"].type.choices) == OBJECTIVES  # type: ignore[attr-defined]
    write(tmp_path / "tuner.toml", 'objective = "p95"\n')
    with pytest.raises(UsageError, match="p95") as caught:
        choose({}, {}, tmp_path)
    assert "mean" in caught.value.what
