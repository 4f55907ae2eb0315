"""Candidates by how they communicated: requested X, ran Y."""

from __future__ import annotations

import json

from tuner.knobs.config import DEFAULT, Config
from tuner.measure.types import Estimate
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Compiled
from tuner.report.ran import groups, ran_document, render_ran
from tuner.store.events import AnyEvent, CandidateCompiled, NcclRead, RunStarted, TrialFinished

PROTO = Config.of({"NCCL_PROTO": "LL128"})
ALGO = Config.of({"NCCL_ALGO": "Ring"})
COMBINED = Config.of({"xla_threshold": "0"})
INERT = Config.of({"xla_nothing": "true"})
KINDS = {"all-gather": 2, "all-reduce": 1}
SIMPLE, LL = {"AllReduce 1024": "RING SIMPLE"}, {"AllReduce 1024": "TREE LL"}
ASKED = "requested NCCL_PROTO=LL128, ran SIMPLE for AllReduce of 1024 bytes"


def compiled(session: str, config: Config, schedule: str = "same", kinds: dict[str, int] | None = None) -> AnyEvent:
    made = Compiled(
        id="c",
        program="p",
        code=config.key,
        code_covers="hlo",
        lower_s=0.1,
        compile_s=1.0,
        peak_bytes=None,
        collectives=KINDS if kinds is None else kinds,
        schedule=schedule,
    )
    return CandidateCompiled(session=session, config=config, compiled=made, fingerprint="f")


def trial(number: int, session: str, config: Config, gain: float | None) -> AnyEvent:
    estimate = None if gain is None else Estimate(gain=gain, se=0.001, low=gain - 0.002, high=gain + 0.002, n=9)
    failure = Failure(kind=FailureClass.RUNTIME, phase="round", message="no") if gain is None else None
    value = None if gain is None else -gain
    return TrialFinished(
        number=number, stage="screen", session=session, config=config, value=value, estimate=estimate, failure=failure
    )


EVENTS: list[AnyEvent] = [
    RunStarted(run="f-abc", workload="f.py", command=(), identity={}, options={}, inherited={}, tuner="0"),
    compiled("home", DEFAULT),
    trial(0, "home", DEFAULT, 0.0),
    compiled("home", COMBINED, schedule="other", kinds={"all-gather": 9, "all-reduce": 1}),
    trial(1, "home", COMBINED, 0.03),
    compiled("home", INERT),
    trial(2, "home", INERT, 0.001),
    compiled("proto", PROTO),
    trial(3, "proto", PROTO, -0.01),
    compiled("algo", ALGO),
    trial(4, "algo", ALGO, None),
    NcclRead(session="home", config=DEFAULT, channels=16, ran=SIMPLE),
    NcclRead(session="proto", config=PROTO, channels=16, ran=SIMPLE, asked=(ASKED,)),
    NcclRead(session="algo", config=ALGO, channels=16, ran=LL),
]


def test_what_was_asked_for_and_not_done_stands_with_what_ran() -> None:
    first, *others = groups(EVENTS)
    assert first.default
    assert [t.number for t in first.trials] == [0, 2, 3]
    assert first.asked == {3: (ASKED,)}
    assert [[t.number for t in group.trials] for group in others] == [[1], [4]]
    assert (first.collectives, first.channels, first.nccl) == (KINDS, 16, SIMPLE)


def test_without_nccls_lines_the_programs_alone_are_compared() -> None:
    plain = groups([e for e in EVENTS if not isinstance(e, NcclRead)])
    assert [[t.number for t in group.trials] for group in plain] == [[0, 2, 3, 4], [1]]
    assert all((group.nccl, group.channels, group.asked) == ({}, None, {}) for group in plain)


def test_as_text_the_fastest_first() -> None:
    text = render_ran(EVENTS, width=110)
    assert text.startswith("3 ways of communicating in run f-abc\n")
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if "the default's" in line)
    assert lines[head].startswith("2 all-gather, 1 all-reduce; RING SIMPLE for AllReduce 1024 bytes; 16 channels")
    assert [line.split()[:2] for line in lines[head + 1 : head + 4]] == [["trial", n] for n in "203"]
    assert lines[head + 4].strip() == ASKED
    assert "trial 4  failed (runtime)  NCCL_ALGO=Ring" in text


def test_a_program_without_collectives_has_no_groups() -> None:
    alone = [EVENTS[0], compiled("home", DEFAULT, kinds={}), trial(0, "home", DEFAULT, 0.0)]
    assert groups(alone) == ()
    assert "no candidate of run f-abc communicates" in render_ran(alone)


def test_as_a_document() -> None:
    document = json.loads(json.dumps(ran_document(EVENTS)))
    assert (document["schema"], document["run"]) == ("tuner/ran/1", "f-abc")
    assert [group["default"] for group in document["groups"]] == [True, False, False]
    row = document["groups"][0]["trials"][2]
    assert (row["trial"], row["settings"], row["requested_and_ran"]) == (3, {"NCCL_PROTO": "LL128"}, [ASKED])
    assert document["groups"][2]["trials"][0]["failure"] == "runtime"
