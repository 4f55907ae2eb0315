"""Messages to JSON and back, and the complaints about JSON that fits no message."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.protocol import messages
from tuner.protocol.codec import OPS, ProtocolError, from_json, op_of, to_json
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Block, Compile, Compiled, CompileReply, Load, Numerics, RoundReply, Variant

quick = settings(max_examples=10)

FINITE = st.floats(allow_nan=False)
OPTION = st.booleans() | st.integers(-(2**63), 2**63 - 1) | FINITE | st.text()
VARIANTS = st.builds(
    Variant,
    id=st.text(),
    compiler_options=st.dictionaries(st.text(), OPTION),
    jax_config=st.dictionaries(st.text(), OPTION),
    profile=st.none() | st.text(),
)
FAILURES = st.builds(
    Failure,
    kind=st.sampled_from(FailureClass),
    phase=st.text(),
    message=st.text(),
    exit_code=st.none() | st.integers(),
    log_head=st.lists(st.text(), max_size=3).map(tuple),
)
BLOCKS = st.builds(Block, id=st.text(), steps=st.integers(), seconds=FINITE, first_s=FINITE)


def through_json(value: Any) -> Any:
    """`value` after the trip over the pipe."""
    return from_json(type(value), json.loads(json.dumps(to_json(value))))


def same(a: Any, b: Any) -> bool:
    """Equal with equal types all the way down: True is not 1, 1 is not 1.0."""
    return repr(a) == repr(b)


@quick
@given(st.builds(Compile, variants=st.lists(VARIANTS, max_size=3).map(tuple), threads=st.integers()))
def test_requests_survive_the_pipe(request: Compile) -> None:
    assert same(through_json(request), request)


@quick
@given(st.builds(RoundReply, blocks=st.lists(BLOCKS | FAILURES, max_size=4).map(tuple)))
def test_replies_that_mix_results_and_failures_survive_the_pipe(reply: RoundReply) -> None:
    assert same(through_json(reply), reply)


def test_types_of_option_values_survive() -> None:
    variant = Variant(id="a", compiler_options={"b": True, "i": 1, "f": 1.0, "s": "1"})
    assert same(through_json(variant).compiler_options, {"b": True, "i": 1, "f": 1.0, "s": "1"})


def test_defaults_may_be_left_out() -> None:
    assert from_json(Load, {"workload": "w.py"}) == Load(workload="w.py")


def test_integers_are_taken_where_seconds_are_wanted() -> None:
    block = from_json(Block, {"id": "a", "steps": 3, "seconds": 1, "first_s": 0})
    assert isinstance(block.seconds, float)


@pytest.mark.parametrize(
    ("kind", "value", "place"),
    [
        (Load, {"workload": 1}, "Load.workload: expected str, got int"),
        (Load, {"workload": "w", "argv": "x"}, "Load.argv: expected a list"),
        (Load, {"workload": "w", "argv": ["x", 2]}, r"Load.argv\[1\]: expected str"),
        (Load, {"workload": "w", "platfrom": "cpu"}, "Load: unknown field platfrom"),
        (Load, {}, "Load: missing field workload"),
        (Load, [], "Load: expected an object, got list"),
        (Load, {"workload": "w", "knobs": []}, "Load.knobs: expected an object"),
        (Numerics, {"handle": "a", "steps": True, "reference": "r"}, "Numerics.steps: expected int, got bool"),
        (Failure, {"kind": "odd", "phase": "", "message": ""}, "Failure.kind: 'odd' is not a valid FailureClass"),
    ],
)
def test_misfits_are_named_with_their_place(kind: type[Any], value: Any, place: str) -> None:
    with pytest.raises(ProtocolError, match=place):
        from_json(kind, value)


def test_a_literal_takes_only_its_words() -> None:
    fields = {"id": "a", "program": "p", "code": "c", "lower_s": 0.0, "compile_s": 0.0, "peak_bytes": None}
    assert from_json(Compiled, {**fields, "code_covers": "hlo"}).code_covers == "hlo"
    with pytest.raises(ProtocolError, match=r"Compiled\.code_covers: 'all' is none of 'hlo', 'hlo\+codegen'"):
        from_json(Compiled, {**fields, "code_covers": "all"})


def test_a_misfit_in_a_choice_names_every_way_it_does_not_fit() -> None:
    with pytest.raises(ProtocolError, match=r"missing field code, .*; CompileReply.results\[0\]: unknown field id"):
        from_json(CompileReply, {"results": [{"id": "a"}]})


def test_every_request_has_one_op_and_every_op_a_reply() -> None:
    requests = [kind for kind, _ in OPS.values()]
    replies = [reply for _, reply in OPS.values()]
    assert len(set(requests)) == len(requests)
    for kind in (*requests, *replies):
        assert dataclasses.is_dataclass(kind)
        assert kind.__name__ in messages.__all__


def test_the_op_of_a_message_is_found_and_a_reply_has_none() -> None:
    assert op_of(Load(workload="w")) == "load"
    with pytest.raises(ProtocolError, match="RoundReply is not a request"):
        op_of(RoundReply(blocks=()))
