"""One trial whole, and the list of those that failed."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from synthetic_run import MATH, PASSES, SCENARIOS, all_failed, failing, faster, same

from tuner.errors import UsageError
from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Compiled, LeafStats, NumericsReply
from tuner.report.trial import (
    _collectives,
    failed_document,
    render_failed,
    render_trial,
    trial_document,
    trial_view,
)
from tuner.store.events import AnyEvent, NumericsCompared, SessionClosed, TrialFinished

TIMED, SHARED, WRONG, FATAL = 2, 3, 5, 6


def squeezed(text: str) -> str:
    return " ".join(text.split())


def gated(leaves: tuple[LeafStats, ...], **changes: object) -> list[AnyEvent]:
    """The run with other outputs for the timed trial."""
    view = trial_view(faster(), TIMED)
    assert view.numerics is not None
    reply = NumericsReply(leaves=leaves, check=False, check_message="loss is off")
    compared = msgspec.structs.replace(view.numerics, reply=reply, **changes)
    return [*faster(), compared]


def test_a_timed_trial() -> None:
    """Its settings as a shell takes them, value and interval, fingerprint, session, compile and numerics."""
    text = squeezed(render_trial(faster(), TIMED))
    assert text.startswith("trial 2 of run nbody-3f9ac2d17b04: 1.41x (1.39–1.43)")
    assert f"XLA_FLAGS=--{MATH}=false" in text
    assert "-0.34359 log ratio to the home control (negative is faster), 24 rounds, 95 % interval" in text
    assert "compile 0.6 s after 0.1 s of lowering, peak memory 1.5 GiB" in text
    assert "collectives 2 all-reduce" in text
    assert "passed; worst leaf [0].v (float32) after 8 steps: relative L2 4e-06 of 1.2e-05 allowed" in text


def test_a_trial_that_shares_samples_says_whose() -> None:
    """It has none of its own."""
    assert "samples those of trial 0, which has the same fingerprint" in squeezed(render_trial(faster(), SHARED))
    built = trial_document(faster(), SHARED)
    assert (built["shared_with"], built["compile"], built["numerics"]) == (0, None, None)


def test_a_failed_trial() -> None:
    """Class, phase, how it ended, message, log without escape codes, and the command to repeat it."""
    text = render_trial(faster(), FATAL, width=50)
    assert "\x1b" not in text
    for part in (
        "trial 6 of run nbody-3f9ac2d17b04: failed",
        "class fatal phase compile ended exit code 1",
        "first log lines importing jax WARNING: all log messages",
        "last log lines *** Check failure stack trace: *** frame 1",
        "repeat it XLA_FLAGS='--xla_disable_hlo_passes=fusion' python -m tuner.worker workloads/nbody.py",
    ):
        assert part in squeezed(text)
    assert text.splitlines()[-1] == (
        "  XLA_FLAGS='--xla_disable_hlo_passes=fusion' python -m tuner.worker workloads/nbody.py"
    )


def test_a_refused_trial_names_the_leaf() -> None:
    """And how far it is off."""
    text = squeezed(render_trial(faster(), WRONG))
    assert f"XLA_FLAGS=--{PASSES}=" in text
    assert "numerics refused: [0].v after 8 steps: slope 0.003 is beyond 1.2e-06" in text
    assert "slope 0.003 of 1.2e-06 allowed" in text


def test_the_default_has_no_settings() -> None:
    """And says so."""
    assert "settings the defaults" in squeezed(render_trial(faster(), 0))
    assert trial_document(faster(), 0)["settings"] == {}


def leaf(path: str, l2: float, slope: float, *, steps: int = 8, masks_equal: bool = True) -> LeafStats:
    return LeafStats(path=path, dtype="f32", size=1, steps=steps, l2=l2, slope=slope, masks_equal=masks_equal)


def test_the_worst_leaf_is_the_one_nearest_its_own_tolerance() -> None:
    """Not the one with the largest number; a mask that differs is worse than any number."""
    tight, loose = leaf("[0].x", 2.9e-7, 1e-9, steps=1), leaf("[0].v", 1e-6, 1e-7)
    worst = trial_view(gated((tight, loose)), TIMED).worst
    assert worst is not None
    assert worst.leaf == tight
    assert worst.share == pytest.approx(2.9 / 3)
    masked = leaf("[0].v", 0.0, 0.0, masks_equal=False)
    events = gated((tight, masked), passed=False, reason="NaN")
    assert trial_view(events, TIMED).worst == msgspec.structs.replace(worst, leaf=masked, tolerance=_v(), share=0.0)
    text = squeezed(render_trial(events, TIMED))
    assert "NaN or infinity in other places; the workload's own check failed: loss is off" in text


def _v() -> object:
    view = trial_view(faster(), TIMED)
    assert view.worst is not None
    return view.worst.tolerance


def test_leaves_without_a_tolerance_are_ranked_by_their_numbers() -> None:
    """A zero tolerance is exceeded by anything but zero."""
    worst = trial_view(gated((leaf("a", 1e-3, 0.0), leaf("b", 0.0, 1e-2))), TIMED).worst
    assert worst is not None
    assert (worst.leaf.path, worst.share, worst.tolerance) == ("b", None, None)
    assert "relative L2 0, slope 0.01;" in squeezed(render_trial(gated((leaf("b", 0.0, 1e-2),)), TIMED))
    assert trial_view(gated(()), TIMED).worst is None


def test_only_the_gate_of_the_trials_own_session_counts() -> None:
    """The null set and other sessions compare other things."""
    events = faster()
    (gate,) = [e for e in events if isinstance(e, NumericsCompared) and e == trial_view(events, TIMED).numerics]
    others = [
        msgspec.structs.replace(gate, purpose="null", reason="x"),
        msgspec.structs.replace(gate, session="elsewhere", reason="x"),
    ]
    assert trial_view([*events, *others], TIMED).numerics == gate


def test_an_unknown_trial_is_named_with_those_there_are() -> None:
    """A usage error."""
    with pytest.raises(UsageError, match="no trial 99: its trials are 0 to 11"):
        render_trial(faster(), 99)
    with pytest.raises(UsageError, match="no trials yet"):
        trial_document([], 0)


def test_documents_are_plain_json() -> None:
    """For every trial of every run."""
    for events in (f() for f in SCENARIOS.values()):
        for trial in (e for e in events if isinstance(e, TrialFinished)):
            built = trial_document(events, trial.number)
            assert json.loads(json.dumps(built, allow_nan=False)) == built
            assert built["schema"] == "tuner/trial/1"
    built = trial_document(faster(), FATAL)
    assert built["failure"]["kind"] == "fatal"
    assert built["failure"]["exit_code"] == 1
    worst = trial_document(faster(), TIMED)["numerics"]["worst"]
    assert (worst["path"], worst["l2_allowed"]) == ("[0].v", 1.2e-5)


def test_a_number_that_is_not_finite_is_null_in_the_document() -> None:
    """A candidate whose outputs are all NaN has no relative error."""
    events = gated((leaf("[0].v", math.nan, math.inf),))
    built = trial_document(events, TIMED)
    json.dumps(built, allow_nan=False)
    assert (built["numerics"]["worst"]["l2"], built["numerics"]["worst"]["slope"]) == (None, None)


def test_the_failed_are_listed_by_class() -> None:
    """With settings, phase, how they ended and why; then the command for one of them."""
    text = squeezed(render_failed(all_failed(), width=60))
    assert text.startswith("5 candidates failed in run nbody-3f9ac2d17b04 fatal (2) trial 1")
    assert "trial 5 MALLOC_ARENA_MAX=1 in start, SIGSEGV, exit code -11" in text
    assert text.endswith("tune show 1")
    built = failed_document(all_failed())
    assert built["counts"] == {"fatal": 2, "out_of_memory": 2, "crash": 1}
    assert [entry["trial"] for entry in built["failed"]] == [1, 2, 3, 4, 5]
    assert built["failed"][0]["failure"]["log_tail"][0] == "*** Check failure stack trace: ***"
    json.dumps(built, allow_nan=False)


def test_infrastructure_is_marked() -> None:
    """It says nothing about the settings."""
    trial = next(e for e in all_failed() if isinstance(e, TrialFinished) and e.failure)
    broken = msgspec.structs.replace(trial, failure=failing(FailureClass.PROTOCOL, "pipe closed"))
    assert "protocol (1) no fault of the settings" in squeezed(render_failed([broken]))
    assert failed_document([broken])["failed"][0]["caused_by_config"] is False


def test_no_failures_is_a_sentence() -> None:
    """Not an empty page."""
    fine = [e for e in same() if not (isinstance(e, TrialFinished) and e.failure)]
    assert render_failed(fine) == "no candidate failed in run nbody-3f9ac2d17b04\n"
    assert failed_document(fine)["failed"] == []


def test_sessions_that_ended_by_themselves_are_among_what_failed() -> None:
    lost = SessionClosed(session="e7", failure=failing(FailureClass.TIMEOUT, "no answer in 60 s"))
    text = squeezed(render_failed([lost]))
    assert text.startswith("no candidate failed sessions that ended by themselves (1) e7 timeout")
    assert "no answer in 60 s" in text
    (session,) = failed_document([lost])["sessions"]
    assert (session["session"], session["failure"]["kind"]) == ("e7", "timeout")


def test_collectives_are_held_against_the_defaults() -> None:
    """A setting that asks for other collectives may have changed nothing."""

    def made(schedule: str, **kinds: int) -> Compiled:
        counts = {name.replace("_", "-"): n for name, n in kinds.items()}
        return Compiled(
            id="a", program="p", code="c", code_covers="hlo", lower_s=0.1, compile_s=0.1, peak_bytes=None,
            collectives=counts, schedule=schedule,
        )  # fmt: skip

    default = made("s", all_reduce=4)
    assert _collectives(made("s", all_reduce=4), default) == "4 all-reduce; the default's, in the default's order"
    assert _collectives(made("t", all_reduce=4), default).endswith("as many as the default's, in another order or form")
    assert _collectives(made("u", all_reduce=1), default) == "1 all-reduce; the default's are 4 all-reduce"
    assert _collectives(made("", all_reduce=1), default) == "1 all-reduce"
    assert _collectives(made("u", all_reduce=1), None) == "1 all-reduce"
