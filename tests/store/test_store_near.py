"""Programs in the database that are like a new one, and what was best for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec
import pytest
from store_samples import (
    EMPTY,
    ENVIRONMENT,
    FAST,
    PROGRAM,
    SKETCH,
    baselined,
    compiled,
    confirmed,
    probed,
    started,
    write_log,
)

from tuner.knobs.config import Config
from tuner.machine.environment import Environment
from tuner.measure.types import Verdict
from tuner.protocol.messages import Sketch
from tuner.store import Store, open_store
from tuner.store.index import Index
from tuner.store.near import neighbours

pytestmark = pytest.mark.slow

NEW = "77" * 16
ELSEWHERE = Environment(identity={**ENVIRONMENT.identity, "jax": "0.12.0"}, context={})


@pytest.fixture
def store(tmp_path) -> Store:
    return open_store(tmp_path / "s")


@pytest.fixture
def index(store: Store) -> Iterator[Index]:
    index = Index(store.url, runs=store.runs)
    yield index
    index.close()


class Runs:
    """Adds runs to a store, each newer than the one before."""

    def __init__(self, store: Store, index: Index) -> None:
        self.store, self.index, self.count = store, index, 0

    def add(
        self,
        name: str,
        program: str,
        sketch: Sketch | None = SKETCH,
        *,
        config: Config = FAST,
        verdict: Verdict = Verdict.FASTER,
        environment: Environment = ENVIRONMENT,
        objective: str = "mean",
    ) -> None:
        self.count += 1
        probe = probed()
        probe = msgspec.structs.replace(probe, record=msgspec.structs.replace(probe.record, environment=environment))
        begun = msgspec.structs.replace(started(name), options={"objective": objective})
        middle = [probe, compiled(program, sketch), baselined(program), confirmed(config, verdict)]
        events = write_log(self.store.run(name).events, [begun, *middle])
        later = [msgspec.structs.replace(e, time=e.time + 1000 * self.count) for e in events]
        assert self.index.record(later) == ""


@pytest.fixture
def runs(store: Store, index: Index) -> Runs:
    return Runs(store, index)


def found(index: Index, sketch: Sketch = SKETCH, *, program: str = NEW, **more: str) -> list[str]:
    return [n.run for n in neighbours(index, program, sketch, ENVIRONMENT, **more)]


def test_an_empty_store_has_no_neighbours(index: Index) -> None:
    assert found(index) == []


def test_a_program_without_operations_is_like_no_other(runs: Runs, index: Index) -> None:
    runs.add("a", PROGRAM)
    assert found(index, Sketch(operations={}, collective_bytes={}, mesh={}, devices=1, input_bytes=4)) == []


def test_a_program_of_other_size_is_near_and_tells_what_was_best(runs: Runs, index: Index) -> None:
    runs.add("small", PROGRAM)
    larger = dataclasses.replace(SKETCH, input_bytes=1 << 23)
    (near,) = neighbours(index, NEW, larger, ENVIRONMENT)
    assert (near.run, near.workload, near.program, near.configs) == ("small", "nbody.py", PROGRAM, (FAST,))
    assert near.apart == {"size": pytest.approx(3 / 100)}
    assert near.distance == pytest.approx(3 / 100)
    assert near.identity == ENVIRONMENT.identity


def test_nearer_programs_come_first_and_unlike_ones_not_at_all(runs: Runs, index: Index) -> None:
    runs.add("other-size", "1" * 32, dataclasses.replace(SKETCH, input_bytes=1 << 24))
    runs.add("like", "2" * 32)
    runs.add("unlike", "3" * 32, Sketch(operations={"sort": 4}))
    runs.add("communicates", "4" * 32, dataclasses.replace(SKETCH, collective_bytes={"all-reduce": 9}))
    assert found(index) == ["like", "other-size"]


def test_only_what_was_proven_faster_counts(runs: Runs, index: Index) -> None:
    runs.add("same", "1" * 32, verdict=Verdict.SAME)
    runs.add("unclear", "2" * 32, verdict=Verdict.UNCLEAR)
    assert found(index) == []


def test_the_same_program_counts_where_it_ran_elsewhere_alone(runs: Runs, index: Index) -> None:
    runs.add("here", NEW)
    assert found(index) == []
    runs.add("newer-jax", NEW, config=EMPTY, environment=ELSEWHERE)
    (near,) = neighbours(index, NEW, SKETCH, ENVIRONMENT)
    assert (near.run, near.configs, near.apart) == ("newer-jax", (EMPTY,), {"versions": pytest.approx(0.02)})


def test_the_newest_run_of_each_place_speaks_for_it(runs: Runs, index: Index) -> None:
    runs.add("old", PROGRAM)
    runs.add("new", PROGRAM, config=EMPTY)
    runs.add("elsewhere", PROGRAM, environment=ELSEWHERE)
    assert found(index) == ["new", "elsewhere"]


def test_another_platform_and_another_objective_say_nothing(runs: Runs, index: Index) -> None:
    gpu = Environment(identity={**ENVIRONMENT.identity, "platform": "gpu"}, context={})
    runs.add("gpu", "1" * 32, environment=gpu)
    runs.add("tail", "2" * 32, objective="p99")
    assert found(index) == []
    assert found(index, objective="p99") == ["tail"]


def test_at_most_three_speak_and_programs_without_a_sketch_are_passed_over(runs: Runs, index: Index) -> None:
    runs.add("old-log", "9" * 32, None)
    for number in range(5):
        runs.add(f"r{number}", f"{number}" * 32)
    assert found(index) == ["r4", "r3", "r2"]
