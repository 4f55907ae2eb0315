"""PGLE profiles judged before they are used: a real one of an H100, and what can be wrong with one."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tuner.profile.guided import costs_in, facts_of, profile_of, unusable, used_a_profile
from tuner.protocol.messages import PgleReply
from tuner.protocol.wire import bytes_field, double_field

# Traced and converted by jax 0.11.2 on an H100; the text without fusions' bodies and metadata.
REAL = Path(__file__).parent / "assets" / "mlp-h100-jax0.11.2"

# The same of a ring of two H200s. Its collectives have names that come from the program: one in a loop, which was made
# asynchronous by wrapping it, and one by itself. The text shows the start alone, the trace names what that wraps.
RING = Path(__file__).parent / "assets" / "pipeline-h200-jax0.11.2"
RING_WRAPPED = {"collective-permute-start": "ppermute.3.1"}

# An asynchronous pair, one that was wrapped by hand, a loop, and operations that cost nothing.
HLO = """HloModule jit_step, is_scheduled=true, frontend_attributes={fingerprint_before_lhs="aa11"}

%body (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %all-gather-start.1 = (f32[8]{0}, f32[16]{0}) all-gather-start(%p), dimensions={0}
  %fusion.1 = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused
  %all-gather-done.1 = f32[16]{0} all-gather-done(%all-gather-start.1)
  ROOT %custom-call.1 = f32[8]{0} custom-call(%all-gather-done.1, %fusion.1), custom_call_target="__cublas$gemm"
}

%cond (c: f32[8]) -> pred[] {
  %c = f32[8]{0} parameter(0)
  ROOT %compare.1 = pred[] compare(%c, %c), direction=LT
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %while.1 = f32[8]{0} while(%x), condition=%cond, body=%body
  %reduce-scatter-start.4 = (f32[8]{0}, f32[4]{0}) reduce-scatter-start(%while.1), dimensions={0}
  %copy.3 = f32[8]{0} copy(%while.1)
  %reduce-scatter-done.4 = f32[4]{0} reduce-scatter-done(%reduce-scatter-start.4)
  %bitcast.9 = f32[8]{0} bitcast(%copy.3)
  ROOT %fusion.2 = f32[8]{0} fusion(%bitcast.9, %reduce-scatter-done.4), kind=kLoop, calls=%fused.1
}
"""
COSTS = {
    "all-gather-start.1": 10.0,
    "fusion.1": 5.0,
    "custom-call.1": 20.0,
    "reduce-scatter.7": 8.0,  # under the name of what the start wraps
    "copy.3": 1.0,
    "fusion.2": 4.0,
    "compare.1": 1.0,
}
WRAPPED = {"reduce-scatter-start.4": "reduce-scatter.7"}


def written(costs: Mapping[str, float]) -> bytes:
    return b"".join(
        bytes_field(1, bytes_field(1, name.encode()) + double_field(2, cost)) for name, cost in costs.items()
    )


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unpacked(path: Path, of: str) -> bytes:
    return gzip.decompress(path.with_suffix(f"{path.suffix}.{of}.gz").read_bytes())


def reply(
    profile: bytes, *traces: bytes, hlo: str = HLO, wrapped: Mapping[str, str] = MappingProxyType(WRAPPED)
) -> PgleReply:
    return PgleReply(
        profile=text(profile),
        instructions=len(costs_in(profile)),
        traces=tuple(text(trace) for trace in traces),
        hlo=text(zlib.compress(hlo.encode())),
        wrapped=dict(wrapped),
    )


def of(costs: Mapping[str, float], *traces: Mapping[str, float]) -> PgleReply:
    return reply(written(costs), *(written(trace) for trace in traces))


def test_a_real_profile_covers_all_that_takes_time() -> None:
    profile, hlo = unpacked(REAL, "fdo"), unpacked(REAL, "hlo").decode()
    facts = facts_of(reply(profile, profile, profile, hlo=hlo))
    assert (facts.entries, facts.foreign, facts.operations, facts.covered) == (450, 0, 450, 450)
    assert (facts.collectives, facts.traces, facts.spread) == (0, 2, 0.0)
    assert facts.module == "1dd94db659fbfb6c571636898a0c2f4f"
    assert unusable(facts) == ""
    assert profile_of(reply(profile, hlo=hlo), facts) == profile
    assert sum(costs_in(profile).values()) == pytest.approx(1090.7, abs=0.1)  # microseconds of a step


def test_collectives_are_timed_under_the_names_that_the_program_gave_them() -> None:
    profile, hlo = unpacked(RING, "fdo"), unpacked(RING, "hlo").decode()
    facts = facts_of(reply(profile, hlo=hlo, wrapped=RING_WRAPPED))
    assert (facts.entries, facts.foreign, facts.operations, facts.covered) == (
        20,
        0,
        20,
        19,
    )  # not the loop's condition
    assert (facts.collectives, facts.collectives_covered, facts.untimed) == (2, 2, ())
    assert unusable(facts) == ""
    assert costs_in(profile)["ppermute.3.1"] == pytest.approx(142.7, abs=0.1)  # microseconds
    assert costs_in(profile)["psum_invariant.7.2"] == pytest.approx(352.1, abs=0.1)
    without = {
        name: cost for name, cost in costs_in(profile).items() if name not in ("ppermute.3.1", "psum_invariant.7.2")
    }
    missing = facts_of(reply(written(without), hlo=hlo, wrapped=RING_WRAPPED))
    assert missing.untimed == ("collective-permute-start (ppermute.3.1)", "psum_invariant.7.2")
    assert "times of 0 of 2 collectives only" in unusable(missing)
    assert "no kernel under the name of collective-permute-start (ppermute.3.1), psum_invariant.7.2, so" in unusable(
        missing
    )


def test_operations_and_collectives_are_counted_as_they_run() -> None:
    facts = facts_of(of(COSTS, COSTS))
    assert (facts.entries, facts.foreign) == (7, 0)
    assert (facts.operations, facts.covered) == (7, 7)
    assert (facts.collectives, facts.collectives_covered) == (2, 2)
    assert facts.spread is None
    assert unusable(facts) == ""


def test_an_empty_profile() -> None:
    facts = facts_of(of({}, {}))
    assert (facts.entries, facts.traces) == (0, 0)
    assert "empty" in unusable(facts)
    assert "Nsight Systems" in unusable(facts)
    assert unusable(facts_of(PgleReply(profile="", instructions=0))) == unusable(facts)


@pytest.mark.parametrize("prefix", ["another_", "bb22::"])
def test_a_profile_of_another_module(prefix: str) -> None:
    foreign = {f"{prefix}{name}": cost for name, cost in COSTS.items()}
    facts = facts_of(of(foreign))
    assert facts.foreign == facts.entries == 7
    assert "of another module: none of its 7 entries" in unusable(facts)


def test_entries_of_this_module_are_told_from_others_and_keep_their_plain_names() -> None:
    mixed = {f"aa11::{n}": c for n, c in COSTS.items()} | {"bb22::fusion.9": 3.0}
    facts = facts_of(of(mixed))
    assert (facts.entries, facts.foreign, facts.covered) == (8, 1, 7)
    assert unusable(facts) == ""
    assert costs_in(profile_of(of(mixed), facts)) == COSTS


@pytest.mark.parametrize(
    ("missing", "cause"),
    [
        (("all-gather-start.1", "reduce-scatter.7"), "times of 0 of 2 collectives only"),
        (("all-gather-start.1",), ""),
        (("fusion.1", "custom-call.1", "copy.3", "fusion.2", "compare.1", "all-gather-start.1"), "1 of 7 operations"),
    ],
)
def test_a_profile_that_covers_too_little(missing: tuple[str, ...], cause: str) -> None:
    found = unusable(facts_of(of({n: c for n, c in COSTS.items() if n not in missing})))
    assert cause in found
    assert bool(found) == bool(cause)


@pytest.mark.parametrize(("factor", "spread"), [(1.2, 0.1818), (6.0, 1.4286)])
def test_runs_that_differ(factor: float, spread: float) -> None:
    slow = {n: factor * c for n, c in COSTS.items()}
    facts = facts_of(of(slow, COSTS, slow))
    assert facts.traces == 2
    assert facts.spread == pytest.approx(spread, abs=1e-3)
    assert bool(unusable(facts)) == (spread > 1)


def test_what_is_no_profile_is_an_error() -> None:
    with pytest.raises(ValueError, match="byte"):
        facts_of(PgleReply(profile=text(b"\x0b{}"), instructions=0))


@pytest.mark.parametrize(
    "line",
    [
        "I external/xla/xla/service/gpu/gpu_hlo_schedule.cc:478] Using PGLE profile from /tmp/a/profile.pb",
        "I0000 00:00:1.2 3 gpu_hlo_schedule.cc:9] Using PGLE profile for module from fdo_profile (binary)",
    ],
)
def test_the_compilers_own_line(line: str) -> None:
    assert used_a_profile(f"something\n{line}\nelse")
    assert not used_a_profile("PGLE profile file does not exist: /tmp/profile.pb")
