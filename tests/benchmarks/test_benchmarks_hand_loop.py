"""What is made of the arms of a comparison with the loop by hand."""

from __future__ import annotations

import argparse
import copy
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hand_loop import best_so_far, between_processes, pace, programs, report, widen

GOOD, BAD = {"xla_good": "true"}, {"xla_bad": "true"}
HAND = {
    "arm": "hand",
    "seed": 0,
    "workload": "step.py",
    "seconds": 100.0,
    "winner": BAD,
    "trials": [
        {"settings": {}, "ended_s": 20.0, "ms": 10.0, "half_width": 0.01, "fingerprint": "a"},
        {"settings": BAD, "ended_s": 40.0, "ms": 9.9, "half_width": 0.01, "fingerprint": "b"},  # by luck
        {"settings": {}, "ended_s": 60.0, "ms": 10.1, "half_width": 0.01, "fingerprint": "a"},
    ],
}
OURS = {
    "arm": "ours",
    "seed": 0,
    "workload": "step.py",
    "seconds": 100.0,
    "winner": GOOD,
    "trials": [
        {"settings": {}, "ended_s": 10.0, "gain": 0.0, "half_width": 0.001, "fingerprint": "a"},
        {"settings": GOOD, "ended_s": 12.0, "gain": 0.1, "half_width": 0.001, "fingerprint": "c"},
        {"settings": BAD, "ended_s": 14.0, "gain": -0.1, "half_width": 0.05, "fingerprint": "b"},  # too wide to count
    ],
}
ROUNDS = [{"{}": 10.0, '{"xla_good": "true"}': 9.0 + i / 100, '{"xla_bad": "true"}': 11.0} for i in range(3)]


def test_what_was_best_is_told_as_judged() -> None:
    """The hand loop's winner is slower than the default, whatever it measured."""
    typical = {"{}": 10.0, '{"xla_good": "true"}': 9.0, '{"xla_bad": "true"}': 11.0}
    (_, hand), (_, ours) = best_so_far([HAND, OURS], typical)
    assert [at for at, _ in hand] == [20.0, 40.0, 100.0]
    assert hand[-1][1] == pytest.approx(math.log(10 / 11))
    assert ours[-1] == (100.0, pytest.approx(math.log(10 / 9)))


def test_programs_count_once_and_only_where_they_are_known_well_enough() -> None:
    assert programs([HAND, OURS], 0.01) == [("hand", [(20.0, 1.0), (40.0, 2.0)]), ("ours", [(10.0, 1.0), (12.0, 2.0)])]


def test_the_page_says_who_was_ahead(tmp_path: Path) -> None:
    (tmp_path / "judged.json").write_text(json.dumps({"workload": "step.py", "rounds_ms": ROUNDS}))
    for arm in (HAND, OURS):
        (tmp_path / f"{arm['arm']}.json").write_text(json.dumps(arm))
    found = report(
        argparse.Namespace(
            judged=tmp_path / "judged.json",
            results=[tmp_path / "hand.json", tmp_path / "ours.json"],
            page=tmp_path / "page.html",
            width=0.02,
        )
    )
    assert [row["distinct_timed"] for row in found["arms"]] == [2, 2]
    assert [row["seconds_to_1_percent"] for row in found["arms"]] == [None, 12.0]
    html = (tmp_path / "page.html").read_text()
    ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    assert "winner was ahead in 0 of 1 comparisons" in html
    assert "tune: 1.110x after 12 s" in html
    assert "the loop by hand: 0.909x after 40 s" in html


def test_widths_are_those_of_gains_wherever_the_step_runs() -> None:
    """By hand the machine's drift is in them, and the default's own width."""
    drifting = [{"{}": 10.0 * math.exp(d), "x": 9.0 * math.exp(d), "lost": None} for d in (-0.05, 0.05)]
    assert between_processes(drifting) == pytest.approx(0.1 / 2**0.5)
    assert between_processes(drifting, drifts=False) == pytest.approx(0.0, abs=1e-9)
    assert between_processes(drifting[:1]) == 0.0
    strange = [{**r, "strange": 5.0 * math.exp(n)} for n, r in enumerate(drifting)]  # another program in each process
    assert between_processes([{**r, "y": r["x"]} for r in strange]) == pytest.approx(between_processes(drifting))
    logs = 0.01 * np.random.default_rng(3).standard_normal((400, 2)) + [0.0, 0.3]
    rounds = [{"{}": 10 * math.exp(a + n % 2), "x": 10 * math.exp(b + n % 2)} for n, (a, b) in enumerate(logs)]
    assert between_processes(rounds, drifts=False) == pytest.approx(0.01, rel=0.1)  # of two configs as of many
    assert between_processes([{**rounds[0], "x": None}, *rounds[1:]], drifts=False) == pytest.approx(0.01, rel=0.1)
    hand, ours = copy.deepcopy(HAND), copy.deepcopy(OURS)
    widen(hand, 0.0)
    widen(ours, 0.1)
    assert [t["half_width"] for t in hand["trials"]] == pytest.approx([0.01 * 2**0.5] * 3)
    assert ours["trials"][2]["half_width"] == pytest.approx(math.hypot(0.05, 0.1 * 1.96 * 2**0.5))
    assert ours["trials"][2]["alone"] == pytest.approx(math.hypot(0.05, 0.1 * 1.96))


def test_pace_is_told_at_a_width_and_what_repeating_by_hand_would_come_to() -> None:
    hand, ours = copy.deepcopy(HAND), copy.deepcopy(OURS)
    widen(hand, 0.0)
    widen(ours, 0.0)
    wide = pace([hand, ours], 0.02)
    assert wide == {"half_width": 0.02, "hand": 72.0, "ours": 72.0, "hand_repeating": 72.0, "ratio": 1.0}
    narrow = pace([hand, ours], 0.005)  # three trials of half a percent's double: four starts each
    assert (narrow["hand"], narrow["ours"]) == (0.0, 72.0)
    assert narrow["hand_repeating"] == pytest.approx(72 / 4)
    assert narrow["ratio"] == pytest.approx(4.0)
