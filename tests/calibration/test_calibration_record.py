"""A recording favours neither process of a pair."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import msgspec
from record import record_pair
from recorded import Pair

from tuner.session import FakeMachine, Launch, Session


def test_who_starts_first_is_random_and_told() -> None:
    machine = FakeMachine(step_ms=10.0, seed=1)
    options = argparse.Namespace(steps=0, block=0.05, turns=3)
    rng = random.Random(0)
    orders = set()
    for index in range(8):
        begun: list[int] = []
        sessions = [watched(machine, f"{index}-{side}", side, begun) for side in range(2)]
        _, entry = record_pair(sessions, options, rng, 0.0)
        pair = msgspec.convert(entry, Pair)
        assert pair.started == tuple(begun)
        assert [len(pair.row(process)) for process in range(2)] == [3, 3]
        orders.add(pair.started)
    assert orders == {(0, 1), (1, 0)}
    assert options.steps == 5


def watched(machine: FakeMachine, name: str, side: int, begun: list[int]) -> Session:
    """A session that notes in `begun` when it starts."""
    launch = Launch(name=name, role="confirm", workload=Path("w.py"), log=Path(f"{name}.log"), python="python", env={})
    session = machine.factory(launch)
    start = session.start

    def noted() -> object:
        begun.append(side)
        return start()

    session.start = noted  # type: ignore[method-assign,assignment]
    return session
