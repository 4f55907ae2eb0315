"""`tune report`: both forms into the run's folder, or one of them where it is wanted."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from command_line import Tune

ASSET = Path(__file__).parents[1] / "store" / "assets" / "events-v1.jsonl"


@pytest.fixture
def run(folder: Path) -> Path:
    made = folder / ".tuner" / "runs" / "nbody-aaaaaa"
    made.mkdir(parents=True)
    (made / "events.jsonl").write_bytes(ASSET.read_bytes())
    return made


def test_the_newest_runs_report_is_written_again(tune: Tune, run: Path) -> None:
    other = run.with_name("nbody-bbbbbb")
    other.mkdir()
    (other / "events.jsonl").write_bytes(ASSET.read_bytes())
    os.utime(run / "events.jsonl", (0, 0))
    got = tune("report")
    assert (got.code, got.err) == (0, "")
    assert got.out.split() == [str(other / "report.html"), str(other / "report.md")]
    html = (other / "report.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert 'href="events.jsonl"' in html
    assert not (run / "report.html").exists()


def test_one_form_alone(tune: Tune, run: Path) -> None:
    got = tune("report", "nbody", "--md")
    assert (got.code, got.out.strip()) == (0, str(run / "report.md"))
    assert not (run / "report.html").exists()
    assert (run / "report.md").read_text().startswith("# tune: ")


def test_elsewhere_by_the_files_name(tune: Tune, run: Path, folder: Path) -> None:
    got = tune("report", str(run), "--out", "x.html")
    assert (got.code, got.out) == (0, "x.html\n")
    text = (folder / "x.html").read_text()
    assert 'href=".tuner/runs/nbody-aaaaaa/events.jsonl"' in text
    assert not (run / "report.html").exists()


def test_standard_output_holds_the_report_alone(tune: Tune, run: Path) -> None:
    got = tune("report", "--md", "--out", "-")
    assert (got.code, got.err) == (0, "")
    assert got.out.startswith("# tune: ")
    assert f"(<{run}/events.jsonl>)" in got.out  # absolute: nobody knows where it will lie


def test_a_packed_log_needs_a_place_to_write_to(tune: Tune, folder: Path) -> None:
    packed = folder / "run.events.jsonl.gz"
    packed.write_bytes(gzip.compress(ASSET.read_bytes()))
    got = tune("report", str(packed))
    assert got.code == 2
    assert "--out FILE" in got.err
    assert tune("report", str(packed), "--out", "x.md").code == 0


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["nobody"], 2, "unknown run 'nobody'"),
        (["--out", "x.pdf"], 2, "it isn't clear which form is wanted"),
        (["--out", "nowhere/x.html"], 2, "can't be written: No such file"),
        (["."], 2, "is no run; it holds 1"),
        (["a", "b"], 2, "unexpected extra argument"),
    ],
)
def test_wrong_input_is_told(tune: Tune, run: Path, argv: list[str], code: int, message: str) -> None:
    got = tune("report", *argv)
    assert (got.code, got.out) == (code, "")
    assert message in got.err


def test_without_runs_nothing_is_found(tune: Tune, folder: Path) -> None:
    got = tune("report")
    assert (got.code, got.out) == (4, "")
    assert list(folder.iterdir()) == []
