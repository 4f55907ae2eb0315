"""What each stage found, in one phrase."""

from __future__ import annotations

import msgspec
import pytest
from synthetic_run import all_failed, faster, same

from tuner.knobs.config import Config
from tuner.report.findings import finding
from tuner.report.view import RunView
from tuner.store.events import StageFinished
from tuner.store.records import MinimiseRecord, SearchRecord

RECORDS = {e.stage: e.record for e in faster() if isinstance(e, StageFinished)}
NOTHING = {e.stage: e.record for e in all_failed() if isinstance(e, StageFinished)}


@pytest.mark.parametrize(
    ("stage", "phrase"),
    [
        ("probe", "cpu; 12 knobs offered, 4 live, 5 inapplicable, 2 unsupported, 1 pinned"),
        (
            "baseline",
            (
                "16.2 ms a step, noise 1.1 % a round, smallest gain this budget can resolve 0.6 %; "
                "no room in it for profile"
            ),
        ),
        ("presets", "2 presets timed, best 1.010x (1.000–1.020) O1"),
        (
            "screen",
            (
                "4 flips timed, best 1.41x (1.39–1.43) --xla_cpu_enable_platform_dependent_math=false; "
                "3 knobs live, 1 failed"
            ),
        ),
        ("minimise", "2 of 3 settings kept, 1.44x (1.42–1.46)"),
        (
            "confirm",
            "faster 1.43x (1.40–1.46), 16.2 → 11.3 ms a step; 6 pairs of fresh processes, alive together",
        ),
        ("seal", "first step 2.4 s cold, 0.9 s from the sealed cache; 3 of 3 compiles found in it"),
        ("report", "6 files written"),
    ],
)
def test_each_stage_says_what_it_found(stage: str, phrase: str) -> None:
    """With its numbers, and without a full stop."""
    assert finding(RECORDS[stage]) == phrase


def test_the_search_names_its_best() -> None:
    """With all settings, as they are written."""
    assert finding(RECORDS["search"]).startswith("3 trials, sampled, best 1.44x (1.42–1.46) MALLOC_ARENA_MAX=1 --xla_")


@pytest.mark.parametrize(
    ("stage", "phrase"),
    [
        ("presets", "1 preset timed"),
        ("screen", "0 flips timed; 0 knobs live, 4 failed"),
        ("search", "nothing to search"),
        ("minimise", "nothing to minimise"),
        ("confirm", "nothing to confirm"),
    ],
)
def test_stages_that_found_nothing_say_so(stage: str, phrase: str) -> None:
    """No best where there is none."""
    assert finding(NOTHING[stage]) == phrase


def test_no_gain_shows_no_change_of_the_step() -> None:
    """What isn't emitted has no new step time."""
    confirm = RunView.of(same()).confirm
    assert confirm is not None
    assert finding(confirm) == "same 1.001x (0.998–1.004); 6 pairs of fresh processes, alive together"
    apart = msgspec.structs.replace(confirm, alive_together=False, estimate=None)
    assert finding(apart) == "same; 6 pairs of fresh processes, one after another"


def test_an_enumerated_space_and_a_winner_without_spare_settings() -> None:
    """Told apart from sampling and from a winner that was cut."""
    search, minimise = RECORDS["search"], RECORDS["minimise"]
    assert isinstance(search, SearchRecord)
    assert isinstance(minimise, MinimiseRecord)
    assert "the whole space" in finding(msgspec.structs.replace(search, enumerated=True))
    assert finding(msgspec.structs.replace(search, trials=0)).startswith("0 trials, best ")
    assert finding(msgspec.structs.replace(minimise, winner=minimise.reduced)).startswith("2 settings, none to spare")
    assert minimise.winner is not None
    one = msgspec.structs.replace(minimise.winner, config=Config.of({"xla_a": "1"}))
    assert finding(msgspec.structs.replace(minimise, winner=one, reduced=one)).startswith("1 setting, none to spare")
