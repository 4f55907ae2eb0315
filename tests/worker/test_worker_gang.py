"""Ranks that agree: over a made-up coordination service, in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tuner.protocol.failure import FailureClass
from tuner.worker import gang
from tuner.worker.failures import RankFailed, Refused
from tuner.worker.gang import Member, Reporter, together


class Service:
    """The part of jax's coordination client that is used."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._changed = threading.Condition()

    def key_value_set(self, key: str, value: str) -> None:
        with self._changed:
            assert key not in self.values
            self.values[key] = value
            self._changed.notify_all()

    def blocking_key_value_get(self, key: str, timeout_ms: int) -> str:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self.values, timeout_ms / 1000):
                raise RuntimeError("DEADLINE_EXCEEDED: GetKeyValue() timed out")
            return self.values[key]

    def key_value_delete(self, folder: str) -> None:
        with self._changed:
            for key in [key for key in self.values if key.startswith(folder)]:
                del self.values[key]


@pytest.fixture
def members() -> list[Member]:
    service = Service()
    return [Member(rank, 3, service, Reporter(lambda _: None)) for rank in range(3)]


def on_all(members: list[Member], work: Callable[[Member], Any]) -> list[Any]:
    """What `work` gives on each rank: its result, or the failure that was raised."""

    def run(member: Member) -> Any:
        try:
            return work(member)
        except RankFailed as error:
            return error.failure

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(run, members))


def test_all_learn_what_each_says(members: list[Member]) -> None:
    for round_ in range(3):
        said = on_all(members, lambda m, n=round_: m.agree({"rank": m.rank, "round": n}))
        assert said == [[{"rank": rank, "round": round_} for rank in range(3)]] * 3


def test_what_was_said_is_taken_away_again(members: list[Member]) -> None:
    for _ in range(5):
        on_all(members, lambda m: m.agree({}))
    assert {key.split("/")[1] for key in members[0].client.values} == {"4"}


def test_one_yes_is_everybodys(members: list[Member]) -> None:
    assert on_all(members, lambda m: m.anybody(m.rank == 2)) == [True] * 3
    assert on_all(members, lambda m: m.anybody(False)) == [False] * 3


def test_work_that_goes_well_everywhere_gives_its_results(members: list[Member]) -> None:
    def work(member: Member) -> Any:
        return together(member, "compile", lambda: member.rank, same=lambda _: {"x": 1}, apart=lambda r: {"r": r})

    assert on_all(members, work) == [(rank, [{"r": 0}, {"r": 1}, {"r": 2}]) for rank in range(3)]


def test_a_failure_of_one_rank_is_raised_on_all(members: list[Member]) -> None:
    def work(member: Member) -> Any:
        def compile() -> None:
            if member.rank == 1:
                raise Refused(FailureClass.OUT_OF_MEMORY, "no room")

        return together(member, "compile", compile)

    failures = on_all(members, work)
    assert [(f.kind, f.rank, f.message) for f in failures] == [(FailureClass.OUT_OF_MEMORY, 1, "no room")] * 3
    assert on_all(members, lambda m: m.anybody(False)) == [False] * 3  # they go on in step


def test_ranks_that_differ_are_named_with_what_differs(members: list[Member]) -> None:
    def work(member: Member) -> Any:
        calls = ["all-gather 1", "all-reduce 2"][: 1 if member.rank == 2 else 2]
        return together(member, "compile", lambda: None, same=lambda _: {"program": "p", "collectives": calls})

    failures = on_all(members, work)
    assert {(f.kind, f.rank) for f in failures} == {(FailureClass.DIVERGED, 2)}
    assert failures[0].message == (
        "rank 2 differs from rank 0 in its collectives: number 2 is nothing, there all-reduce 2"
    )


def test_a_setting_that_differs_is_named(members: list[Member]) -> None:
    def work(member: Member) -> Any:
        env = {"XLA_FLAGS": "--a"} | ({"NCCL_ALGO": "Ring"} if member.rank == 1 else {})
        return together(member, "load", lambda: None, same=lambda _: {"environment": env})

    assert on_all(members, work)[0].message.endswith("environment: NCCL_ALGO is 'Ring', there None")


def test_a_rank_that_fails_alone_does_not_wait_for_ever(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others hang in a collective: they never come to say anything."""
    monkeypatch.setattr(gang, "_ALONE_S", 0.05)
    monkeypatch.setattr(gang, "_SLICE_MS", 20)
    for member in members[:2]:

        def fail() -> None:
            raise Refused(FailureClass.RUNTIME, "alone")

        with pytest.raises(RankFailed, match="alone"):
            together(member, "round", fail)


def test_outside_a_gang_nothing_is_asked() -> None:
    assert together(None, "round", lambda: 3) == (3, [])


def test_a_reporter_tells_how_far_it_is_only_while_there_is_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "_TELL_S", 0.01)
    told: list[dict[str, Any]] = []
    reporter = Reporter(told.append)
    step = reporter.counting(lambda x: x + 1)
    reporter.begin("round")
    reporter.at("abc")
    assert [step(n) for n in range(3)] == [1, 2, 3]
    deadline = time.monotonic() + 5
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told[-1]["progress"] == {"op": "round", "subject": "abc", "steps": 3, "waiting": False}
    reporter.end()
    time.sleep(0.03)
    count = len(told)
    time.sleep(0.05)
    assert len(told) == count
