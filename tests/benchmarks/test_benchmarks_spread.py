"""What is assumed of processes is what the stored confirmations on cards showed."""

from __future__ import annotations

import gzip
from pathlib import Path
from statistics import median

import pytest

from tuner.measure import ASSUMED_PROCESS_SD, noise_levels
from tuner.measure.levels import USUAL_TURNS, Pair
from tuner.store.events import PairTimed
from tuner.store.lines import decode

RESULTS = Path(__file__).parent / "results"


def process_sd(log: Path) -> float | None:
    """The process level of a stored run's confirmation; older logs don't tell the turns of a pair."""
    rows: dict[object, list[Pair]] = {}
    for line in gzip.decompress(log.read_bytes()).splitlines():
        event = decode(line) if b'"pair_timed"' in line else None
        if isinstance(event, PairTimed):
            pair = Pair(log_ratio=event.log_ratio, spread=event.spread, turns=event.turns or USUAL_TURNS)
            rows.setdefault(event.config, []).append(pair)
    found = noise_levels(list(rows.values()))
    return found.process if found else None


@pytest.mark.slow
def test_processes_are_assumed_to_differ_by_what_cards_showed_in_the_median() -> None:
    shown = [process_sd(log) for card in ("h100", "h200") for log in (RESULTS / card).rglob("*.events.jsonl.gz")]
    known = [sd for sd in shown if sd is not None]
    assert len(known) >= 21
    assert median(known) == pytest.approx(ASSUMED_PROCESS_SD, rel=0.25)
