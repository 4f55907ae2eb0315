"""How far two programs, and two places, are apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import ENVIRONMENT, FAST

from tuner.protocol.messages import Sketch
from tuner.store.neighbour import NEAR, Neighbour, apart, apart_places

GPT = Sketch(
    operations={"dot_general": 20, "add": 60, "multiply": 50, "exponential": 4, "reduce": 10, "transpose": 20},
    collective_bytes={"all-gather": 1 << 20, "reduce-scatter": 1 << 19},
    mesh={"data": 4, "model": 1},
    devices=4,
    input_bytes=1 << 26,
)
SORT = Sketch(operations={"sort": 1, "gather": 2, "iota": 2, "compare": 3}, input_bytes=1 << 26)

counts = st.dictionaries(st.sampled_from(["add", "sort", "dot_general"]), st.integers(1, 99), max_size=3)
sketches = st.builds(
    Sketch,
    operations=counts,
    collective_bytes=st.dictionaries(
        st.sampled_from(["all-gather", "all-reduce"]), st.integers(1, 1 << 40), max_size=2
    ),
    mesh=st.dictionaries(st.sampled_from(["data", "model"]), st.integers(1, 8), max_size=2),
    devices=st.integers(1, 4096),
    input_bytes=st.integers(0, 1 << 40),
)


@given(sketches, sketches)
def test_the_distance_is_symmetric_and_none_from_itself(one: Sketch, other: Sketch) -> None:
    assert apart(one, one) == {}
    there, back = apart(one, other), apart(other, one)
    assert there.keys() == back.keys()
    assert sum(there.values()) == pytest.approx(sum(back.values()))
    assert all(share > 0 for share in there.values())


def changed(**fields: object) -> float:
    import dataclasses

    return sum(apart(GPT, dataclasses.replace(GPT, **fields)).values())


def test_what_is_made_of_the_same_is_near_and_what_is_not_is_far() -> None:
    assert changed(operations={n: 2 * c for n, c in GPT.operations.items()}) == 0  # twice as many layers
    assert 0 < changed(input_bytes=1 << 24) < changed(input_bytes=1 << 20) < NEAR
    assert 0 < changed(devices=8, mesh={"data": 8, "model": 1}) < NEAR
    assert changed(mesh={"data": 2, "model": 2}) > 0
    assert changed(mesh={"data": 4}) == 0  # an axis of one device is none
    assert sum(apart(GPT, SORT).values()) > NEAR


def test_communicating_or_not_is_another_kind_of_program() -> None:
    assert changed(collective_bytes={}) > NEAR
    assert changed(collective_bytes={"all-reduce": 3 << 19}) > NEAR
    assert 0 < changed(collective_bytes={n: 2 * b for n, b in GPT.collective_bytes.items()}) < NEAR


def test_places_differ_by_device_and_version_and_platforms_are_worlds() -> None:
    here = {"platform": "gpu", "device_kind": "H100", "jax": "0.11.2", "jaxlib": "0.11.2", "cpu": "A"}
    assert apart_places(here, here) == {}
    assert apart_places(here, {**here, "cpu": "B"}) == {}
    newer = apart_places(here, {**here, "jaxlib": "0.12"})
    elsewhere = apart_places(here, {**here, "device_kind": "A100"})
    assert newer is not None
    assert elsewhere is not None
    assert 0 < sum(newer.values()) < sum(elsewhere.values()) < NEAR
    assert apart_places(here, {**here, "platform": "cpu"}) is None
    on_cpu = {"platform": "cpu", "device_kind": "cpu", "cpu": "A"}
    assert apart_places(on_cpu, {**on_cpu, "cpu": "B"}) == {"device": pytest.approx(0.08)}


def test_the_text_names_run_version_and_what_differs() -> None:
    found = Neighbour(
        run="gpt-12",
        workload="gpt.py",
        program="p",
        distance=0.12,
        apart={"size": 0.12, "mesh": 0.001},
        identity=ENVIRONMENT.identity,
        configs=(FAST,),
    )
    assert found.text == "gpt.py of run gpt-12 (jax 0.10.2; size 12 % apart)"
