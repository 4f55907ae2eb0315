"""Studies run the whole pipeline, count what they should, go on where they were stopped, and see a tuner that errs."""

from __future__ import annotations

from pathlib import Path

import calibrate
import msgspec
import pytest
import real_aa
import studies
from fit import Fitted
from made_up import FAST, HARM, space
from studies import Design, Interval, Row, run_studies, run_study, share, summary

from tuner.knobs import load_spaces
from tuner.measure import Verdict
from tuner.session.noise import NoiseModel

QUIET = Fitted(
    name="quiet",
    noise=NoiseModel(block_sd=0.001, block_tail=0.2, process_sd=0.0005, compile_sd=0.0005, machine_sd=0.005),
    platform="cpu",
    cores=4,
    step_ms=20.0,
    compile_s=0.05,
    start_s=0.5,
    recording="",
    workload="",
    device="cpu",
    machine="",
    jax="",
    note="",
    check={},
)
NOISY = msgspec.structs.replace(
    QUIET, name="noisy", noise=NoiseModel(block_sd=0.02, process_sd=0.01, compile_sd=0.01, machine_sd=0.02)
)


def interval(truth: float, low: float, high: float) -> Interval:
    return Interval(settings={FAST: "true"}, truth=truth, gain=(low + high) / 2, low=low, high=high, pairs=6)


@pytest.mark.slow
def test_a_handful_of_studies_finds_what_is_there_and_nothing_else(tmp_path: Path) -> None:
    nothing = Design(model=QUIET, budget_s=60.0)
    found = summary(nothing, run_studies(nothing, 3, rows=tmp_path))
    assert (found.studies, found.errors, found.over_budget) == (3, 0, 0)
    assert found.false_winners.count == 0
    assert found.found.of == 0
    faster = Design(model=QUIET, gain=0.02, budget_s=60.0)
    found = summary(faster, run_studies(faster, 3, workers=2, rows=tmp_path))
    assert (found.found.count, found.alone.count, found.errors) == (3, 3, 0)
    assert found.covered.count >= 2
    assert found.half_width is not None
    assert 0 < found.half_width < 0.005
    assert sorted(p.name.split(".")[0] for p in tmp_path.iterdir()) == ["quiet", "quiet"]


@pytest.mark.slow
def test_a_tuner_that_calls_everything_faster_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.measure.confirmation.verdict", lambda *_: Verdict.FASTER)
    design = Design(model=NOISY, budget_s=60.0)
    found = summary(design, run_studies(design, 3, rows=tmp_path))
    assert found.errors == 0
    assert found.false_winners.count >= 1
    assert "MISSED" in calibrate.verdicts([found], frozenset())[0]


@pytest.mark.slow
def test_equal_seeds_are_equal_studies() -> None:
    design = Design(model=NOISY, gain=0.05, budget_s=40.0)
    first, again, other = run_study(design, 1), run_study(design, 1), run_study(design, 2)
    assert first == again
    assert first != other


def test_studies_go_on_where_they_were_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    stop = {3}

    class Stopped(Exception):
        pass

    def fake(design: Design, seed: int) -> Row:
        if seed in stop:
            raise Stopped
        ran.append(seed)
        return Row(seed=seed, code="c", verdict="same")

    monkeypatch.setattr(studies, "run_study", fake)
    design = Design(model=QUIET)
    with pytest.raises(Stopped):
        run_studies(design, 5, rows=tmp_path)
    stop.clear()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b'{"seed":3,"co\n')  # cut short
    assert [r.seed for r in run_studies(design, 5, rows=tmp_path)] == [0, 1, 2, 3, 4]
    assert ran == [0, 1, 2, 3, 4]
    assert [r.seed for r in run_studies(design, 2, rows=tmp_path)] == [0, 1]
    assert len(ran) == 5
    run_studies(Design(model=NOISY), 1, rows=tmp_path)  # another noise: another file
    assert len(ran) == 6


def test_a_run_that_ends_in_an_exception_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the tuner fell over")

    monkeypatch.setattr(studies, "tune", broken)
    design = Design(model=QUIET)
    row = run_study(design, 0)
    assert "the tuner fell over" in row.error
    found = summary(design, [row])
    assert (found.errors, found.false_winners.of) == (1, 0)


def test_both_spaces_load(tmp_path: Path) -> None:
    for name, text in (("one", space(0)), ("other", space(1)), ("real", real_aa.SPACE)):
        (tmp_path / f"{name}.toml").write_text(text)
    one, other, real = (load_spaces([str(tmp_path / f"{n}.toml")]).knobs for n in ("one", "other", "real"))
    assert len(one) == len({k.name for k in one}) == 30
    assert {k.name for k in one} == {k.name for k in other}
    assert [k.name for k in one] != [k.name for k in other]
    assert sum(k.lane == "environment" for k in one) == 1
    assert sum(k.lane == "environment" for k in real) == 3


def test_shares_have_exact_intervals() -> None:
    assert share([False] * 30).high == pytest.approx(0.1157, abs=1e-4)
    assert share([True] * 30).low == pytest.approx(1 - 0.1157, abs=1e-4)
    some = share([True] * 20 + [False] * 2980)
    assert (some.low, some.high) == pytest.approx((0.00408, 0.01028), abs=2e-5)
    assert str(some) == "20/3000 = 0.67 % (0.41 to 1.03)"
    assert str(share([])) == "none"


def test_a_summary_counts_what_it_says() -> None:
    slow = next(iter(HARM))
    rows = [
        Row(
            seed=0,
            code="c",
            verdict="faster",
            chosen={FAST: "true"},
            intervals=[interval(0.01, 0.008, 0.012)],
            again=0.009,
            predicted=True,
        ),
        Row(
            seed=1,
            code="c",
            verdict="faster",
            chosen={FAST: "true", "x": "1"},
            intervals=[interval(0.01, 0.011, 0.02)],
            again=0.02,
            predicted=True,
        ),
        Row(
            seed=2,
            code="c",
            verdict="faster",
            chosen={slow: "true"},
            intervals=[interval(-0.005, 0.001, 0.009)],
            again=0.03,
        ),
        Row(seed=3, code="d", verdict="unclear", intervals=[interval(0.01, -0.02, 0.02), interval(0.0, 0.01, 0.02)]),
        Row(seed=4, code="d", verdict="same", trials=4, trials_held=3, seconds=700.0),
    ]
    found = summary(Design(model=QUIET, gain=0.01), rows)
    assert (found.false_winners.count, found.false_winners.of) == (1, 5)
    assert (found.found.count, found.alone.count, found.found.of) == (2, 1, 5)
    assert (found.covered.count, found.covered.of) == (2, 4)
    assert (found.covered_all.count, found.covered_all.of) == (1, 4)
    assert (found.predicted.count, found.predicted.of) == (2, 3)
    assert found.gap == pytest.approx(0.0045)
    assert (found.trials.count, found.trials.of) == (3, 4)
    assert (found.code, found.over_budget) == ({"c": 3, "d": 2}, 1)
    assert found.verdicts == {"faster": 3, "unclear": 1, "same": 1}


def test_targets_are_held_against_counts() -> None:
    def of(gain: float, *rows: Row) -> studies.Summary:
        return summary(Design(model=QUIET, gain=gain), rows)

    won = Row(seed=0, code="", verdict="faster", chosen={"x": "1"}, intervals=[interval(0.0, 0.001, 0.01)])
    none = Row(seed=1, code="", verdict="same")
    good = Row(seed=2, code="", verdict="faster", chosen={FAST: "true"}, intervals=[interval(0.01, 0.008, 0.012)])
    lines = calibrate.verdicts([of(0.0, *[none] * 99, won), of(0.01, *[good] * 30)], frozenset({"quiet.gain-1"}))
    assert [line.split(":")[0].strip() for line in lines] == ["met", "met", "met"]
    lines = calibrate.verdicts([of(0.0, *[none] * 48, won), of(0.01, none, good)], frozenset({"quiet.gain-1"}))
    assert [line.split(":")[0].strip() for line in lines] == ["MISSED", "MISSED", "MISSED"]
    assert len(calibrate.verdicts([of(0.01, none)], frozenset())) == 2  # power counts on quiet machines


def test_the_readme_has_the_table_of_what_was_found() -> None:
    found = calibrate.stored()
    assert found
    assert calibrate.table(found) in Path(calibrate.__file__).with_name("README.md").read_text()
