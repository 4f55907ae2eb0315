"""The group: its default command, --version, --debug, and what happens to output nobody takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_line import Tune

import tuner
from tuner.cli.main import cli, main

ROOT = Path(__file__).parents[2]
CONTEXT = click.Context(cli)
COMMANDS = {name: cli.get_command(CONTEXT, name) for name in cli.list_commands(CONTEXT)}
TUNE = "import sys; from tuner.cli import main; sys.exit(main())"


@pytest.mark.parametrize("argv", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_data_and_ends_well(tune: Tune, argv: list[str]) -> None:
    got = tune(*argv)
    assert (got.code, got.err) == (0, "")
    assert got.out.startswith("Usage: tune")


def test_every_command_says_in_one_uncut_line_what_it_does(tune: Tune) -> None:
    listed = tune("--help").out.split("Commands:")[1]
    for name, command in COMMANDS.items():
        line = next(line for line in listed.splitlines() if line.split()[:1] == [name])
        assert line.endswith(".")
        assert not line.endswith("...")
        assert command.get_short_help_str(200) in line


def test_every_option_has_a_help_text() -> None:
    for command in COMMANDS.values():
        for param in command.params:
            assert not isinstance(param, click.Option) or param.help, (command.name, param.name)


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for name in COMMANDS:
        assert f"tune {name}" in text


def test_version_is_the_packages(tune: Tune) -> None:
    got = tune("--version")
    assert (got.code, got.out, got.err) == (0, f"tune {tuner.__version__}\n", "")


def test_nothing_asked_shows_the_help_on_stderr(tune: Tune) -> None:
    got = tune()
    assert (got.code, got.out) == (2, "")
    assert "Usage: tune" in got.err


def test_help_by_click_itself_is_the_same(tune: Tune) -> None:
    assert CliRunner().invoke(cli, ["--help"], prog_name="tune").output == tune("--help").out


def test_an_unknown_option_suggests_the_right_one(tune: Tune) -> None:
    got = tune("f.py", "--bugdet", "3")
    assert (got.code, got.out) == (2, "")
    assert got.err == "tune: error: no such option --bugdet; did you mean --budget?\n  next: tune run --help\n"


def test_an_option_of_another_command_suggests_none_that_is_only_as_long(tune: Tune) -> None:
    assert (
        tune("knobs", "f.py", "--store", "s").err == "tune: error: no such option --store\n  next: tune knobs --help\n"
    )


@pytest.mark.parametrize("argv", [["knosb"], ["knosb", "a", "b"]])
def test_a_mistyped_command_suggests_the_right_one(tune: Tune, argv: list[str]) -> None:
    got = tune(*argv)
    assert got.code == 2
    assert "did you mean `tune knobs`?" in got.err
    assert "where: knosb" in got.err


@pytest.mark.parametrize("argv", [["\u2013budget", "10m", "f.py"], ["f.py", "\u2014budget=10m"], ["\u2212\u2212help"]])
def test_a_typographic_dash_is_named(tune: Tune, argv: list[str]) -> None:
    got = tune(*argv)
    assert got.code == 2
    assert "begins with a typographic dash" in got.err
    assert "next: write --" in got.err


def test_an_unexpected_error_is_one_line_and_debug_shows_the_traceback(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("tuner.cli.config.find_file", broken)
    got = tune("config")
    assert got.code == 1
    assert got.err.startswith("tune: error: RuntimeError: out of luck\n  where: ")
    assert got.err.endswith("  next: run again with --debug to see the traceback\n")
    assert "Traceback" not in got.err
    for argv in (["config", "--debug"], ["--debug", "config"]):
        got = tune(*argv)
        assert got.code == 1
        assert "Traceback" in got.err
        assert "in broken" in got.err
    monkeypatch.setenv("TUNER_DEBUG", "1")
    assert "Traceback" in tune("config").err


def test_debug_in_the_settings_file_counts(tune: Tune, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tuner.toml").write_text("debug = true\n")
    monkeypatch.setattr("tuner.cli.config.stray_variables", lambda _: 1 / 0)
    assert "Traceback" in tune("config").err


def test_ctrl_c_anywhere_ends_with_130(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.cli.config.find_file", interrupted)
    got = tune("config")
    assert got.code == 130
    assert got.err.strip() == "tune: interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_asks_for_an_end_gets_that_of_ctrl_c(tune: Tune, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A scheduler before it kills, a terminal that is lost; afterwards the signal means what it meant."""

    def asked(_: object) -> None:
        os.kill(os.getpid(), number)
        return

    before = signal.signal(number, signal.SIG_DFL)
    try:
        monkeypatch.setattr("tuner.cli.config.find_file", asked)
        got = tune("config")
        assert (got.code, got.err.strip()) == (130, "tune: interrupted")
        assert signal.getsignal(number) == signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)
        assert tune("config").code == 0
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_the_other_signal_right_behind_the_first_leaves_the_end_alone(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    ended = []

    def asked(_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            ended.append(True)

    try:
        monkeypatch.setattr("tuner.cli.config.find_file", asked)
        assert tune("config").code == 130
        assert ended
        assert {signal.getsignal(number) for number in before} == {signal.SIG_DFL}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_folder_that_is_gone_is_said(tune: Tune, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    got = tune("config")
    assert got.code == 2
    assert "the current folder is gone" in got.err


def test_arguments_come_from_the_process_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tune", "config", "--seed", "77"])
    assert main() == 0
    assert "77" in capsys.readouterr().out


def run_tune(stdout: int, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    return subprocess.run(
        [sys.executable, "-c", TUNE, *argv],
        env={**environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_full_disk_under_the_output_is_said_without_traceback(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        got = run_tune(full.fileno(), tmp_path, "config")
    assert got.returncode == 2
    assert "no space is left" in got.stderr
    assert "Traceback" not in got.stderr
    assert "Exception ignored" not in got.stderr


@pytest.mark.slow
def test_a_reader_that_left_is_no_error_text(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        got = run_tune(writing, tmp_path, "config", "--json")
    finally:
        os.close(writing)
    assert got.returncode == 1
    assert "Traceback" not in got.stderr
    assert "error" not in got.stderr
