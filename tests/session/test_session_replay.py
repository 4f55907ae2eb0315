"""Replays answer as the recorded run did, with its correlations, and say so where it recorded nothing."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from session_recorder import CONTROL, launch_of, record, variant_of

from tuner.errors import SessionEnded
from tuner.knobs.config import DEFAULT, Config
from tuner.machine.environment import Environment
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Compiled, NumericsReply, Profile, Variant
from tuner.session.base import Session
from tuner.session.fake_machine import FakeMachine, Fault
from tuner.session.noise import NoiseModel
from tuner.session.replay import Replay
from tuner.store.events import AnyEvent, SessionStarted, StageFinished
from tuner.store.records import ProbeRecord

A = Config.of({"xla_a": "true"})
B = Config.of({"xla_b": "2"})
E = Config.of({"xla_e": "1"})
EA = E.join(A)


def machine(**options: object) -> FakeMachine:
    effects = {("xla_a", "true"): -0.2, ("xla_b", "2"): 0.1, ("xla_e", "1"): 0.3}
    noise = NoiseModel(block_sd=0.002, machine_sd=0.05, machine_s=100.0)
    return FakeMachine(effects=effects, **{"noise": noise, **options})  # type: ignore[arg-type]


def opened(replay: Replay, config: Config = DEFAULT, *, name: str = "home") -> Session:
    session = replay.factory(launch_of(config, name=name))
    session.start()
    session.compile([Variant(id=CONTROL)])
    return session


def ratio(session: Session, handle: str, *, rounds: int = 200) -> list[float]:
    """Log ratios to the control, one a round."""
    rows = []
    for _ in range(rounds):
        one, control = session.round([Arm(id=handle, steps=7), Arm(id=CONTROL, steps=3)])
        assert isinstance(one, Block)
        assert isinstance(control, Block)
        rows.append(math.log(one.seconds / one.steps / (control.seconds / control.steps)))
    return rows


@pytest.fixture
def events(tmp_path: Path) -> list[AnyEvent]:
    """A home session with A and B, where B leaves the race early, and a session of E with E+A."""
    fake = machine()
    late = {n: [B] for n in range(10, 30)}
    home = record(fake.factory, launch_of(), [A, B], reference=tmp_path / "r", twin=True, skip=late)
    other = record(fake.factory, launch_of(E, name="e", role="search"), [EA], reference=tmp_path / "r")
    return [*home, *other]


def test_recorded_compiles_come_back_under_the_handle_asked_for(events: list[AnyEvent]) -> None:
    session = opened(Replay(events))
    by_key, by_settings = session.compile(
        [variant_of(A), Variant(id="other-name", compiler_options={"xla_a": True})]
    ).results
    assert isinstance(by_key, Compiled)
    assert isinstance(by_settings, Compiled)
    assert (by_key.id, by_settings.id) == (A.key, "other-name")
    assert by_key.code == by_settings.code


def test_a_handle_alone_names_no_config(events: list[AnyEvent]) -> None:
    """Handles that are no config's key may be given anew in another run."""
    session = opened(Replay(events))
    assert isinstance(session.compile([Variant(id=CONTROL, compiler_options={"xla_x": 1})]).results[0], Failure)


def test_whole_rounds_are_drawn_so_that_ratios_keep_their_precision(events: list[AnyEvent]) -> None:
    session = opened(Replay(events))
    session.compile([variant_of(A)])
    rows = ratio(session, A.key)
    assert fmean(rows) == pytest.approx(-0.2, abs=0.002)
    assert pstdev(rows) < 0.01  # the rounds themselves vary by 0.05
    assert len(set(rows)) > 20  # not one round again and again


def test_an_arm_that_left_the_race_is_put_in_by_its_ratio(events: list[AnyEvent]) -> None:
    session = opened(Replay(events))
    session.compile([variant_of(A), variant_of(B), Variant(id="twin")])
    rows = []
    for _ in range(100):
        blocks = session.round([Arm(id=h, steps=5) for h in (B.key, "twin", CONTROL)])
        b, twin, control = (x.seconds for x in blocks if isinstance(x, Block))
        rows.append((math.log(b / control), math.log(twin / control)))
    assert fmean(b for b, _ in rows) == pytest.approx(0.1, abs=0.003)
    assert fmean(t for _, t in rows) == pytest.approx(0.0, abs=0.003)


def test_a_ratio_crosses_sessions_through_what_both_timed(events: list[AnyEvent]) -> None:
    """E+A was timed in E's session alone: as a fresh process's control it runs at E's absolute times."""
    session = opened(Replay(events), E, name="e")
    session.compile([variant_of(EA, base=E)])
    assert fmean(ratio(session, EA.key)) == pytest.approx(-0.2, abs=0.003)
    home = opened(Replay(events))
    home.compile([variant_of(A)])
    block = home.round([Arm(id=A.key, steps=1)])[0]
    assert isinstance(block, Block)
    assert block.seconds == pytest.approx(0.01 * math.exp(-0.2), rel=0.5)


def test_a_launch_is_matched_by_its_setting(events: list[AnyEvent]) -> None:
    replay = Replay(events)
    loaded = replay.factory(launch_of(E, name="another-name")).start()
    assert loaded.xla_flags == "--xla_e=1"
    with pytest.raises(SessionEnded, match=r"no session with xla_q=1"):
        replay.factory(launch_of(Config.of({"xla_q": "1"}))).start()


def test_what_was_never_recorded_is_a_failure_that_says_so(events: list[AnyEvent], tmp_path: Path) -> None:
    session = opened(Replay(events))
    result = session.compile([Variant(id="n", compiler_options={"xla_new": 1})]).results[0]
    assert isinstance(result, Failure)
    assert "xla_new=1" in result.message
    assert not result.kind.caused_by_config
    asked = (
        session.pgle(Variant(id="p")),
        session.profile(Profile(id=CONTROL, steps=1, folder=str(tmp_path))),
        session.ceilings(),
    )
    for reply in asked:
        assert isinstance(reply, Failure)
        assert "not in the event log" in reply.message
    assert session.ended is None


def test_numerics_are_those_recorded(tmp_path: Path) -> None:
    fake = machine(wrong={("xla_a", "true"): 1e-2})
    session = opened(Replay(record(fake.factory, launch_of(), [A, B], reference=tmp_path / "r")))
    session.compile([variant_of(A), variant_of(B)])

    def worst(handle: str, *, nudge: int = 0) -> float:
        reply = session.numerics(handle, steps=3, reference=tmp_path / "other", nudge=nudge)
        assert isinstance(reply, NumericsReply)
        return max(leaf.slope for leaf in reply.leaves)

    assert worst(A.key) == pytest.approx(1e-2, rel=0.01)
    assert worst(B.key) < 1e-5
    assert worst(CONTROL) == 0.0
    assert 0 < worst(CONTROL, nudge=1) < 1e-5


def test_recorded_failures_fail_again_in_their_phase(tmp_path: Path) -> None:
    fake = machine(
        failures={
            ("xla_a", "true"): FailureClass.COMPILE,
            ("xla_b", "2"): Fault(kind=FailureClass.OUT_OF_MEMORY, at="round"),
        }
    )
    session = opened(Replay(record(fake.factory, launch_of(), [A, B], reference=tmp_path / "r")))
    bad, good = session.compile([variant_of(A), variant_of(B)]).results
    assert isinstance(bad, Failure)
    assert bad.kind is FailureClass.COMPILE
    assert isinstance(good, Compiled)
    entry, control = session.round([Arm(id=B.key, steps=1), Arm(id=CONTROL, steps=1)])
    assert isinstance(entry, Failure)
    assert entry.kind is FailureClass.OUT_OF_MEMORY
    assert isinstance(control, Block)


def test_a_failure_that_ended_the_recorded_session_ends_the_replayed_one(events: list[AnyEvent]) -> None:
    from tuner.store.events import SessionClosed, TrialFinished

    crash = Failure(kind=FailureClass.CRASH, phase="compile", message="died", signal="SIGABRT")
    trial = TrialFinished(number=9, stage="screen", session="", config=B, value=None, estimate=None, failure=crash)
    session = opened(Replay([*events, trial, SessionClosed(session="home", failure=crash)]))
    with pytest.raises(SessionEnded) as caught:
        session.compile([variant_of(B)])
    assert caught.value.failure == crash == session.ended


def test_option_types_are_those_of_the_recorded_probe(events: list[AnyEvent]) -> None:
    probed = ProbeRecord(
        environment=Environment(identity={}, context={}),
        offered=(),
        live=(),
        knobs=(),
        left=(),
        option_types={"xla_a": "bool"},
        notices=(),
    )
    session = opened(Replay([*events, StageFinished(stage="probe", seconds=1.0, record=probed)]))
    assert session.probe(["xla_a", "xla_z"]).types == {"xla_a": "bool", "xla_z": None}


def test_equal_seeds_draw_equal_rounds(events: list[AnyEvent]) -> None:
    def rows(seed: int) -> list[float]:
        session = opened(Replay(events, seed=seed))
        session.compile([variant_of(A)])
        return ratio(session, A.key, rounds=20)

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_the_clock_advances_by_recorded_times(events: list[AnyEvent]) -> None:
    replay = Replay(events)
    session = opened(replay)
    started = next(e for e in events if isinstance(e, SessionStarted))
    assert replay.now() == pytest.approx(started.start_s + 1.05)
    block = session.round([Arm(id=CONTROL, steps=50)])[0]
    assert isinstance(block, Block)
    assert replay.now() == pytest.approx(started.start_s + 1.05 + block.seconds + block.first_s)
