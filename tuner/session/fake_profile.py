"""The made-up PGLE profile of a step on a fake machine, in the compiler's own format."""

from __future__ import annotations

import base64
import zlib
from typing import Literal

from tuner.protocol.messages import PgleReply
from tuner.protocol.wire import bytes_field, double_field

__all__ = ["FakePgle", "fake_profile"]

FakePgle = Literal["good", "empty", "foreign", "silent"]
"""What comes of profiles: they are good, empty, or of another module; or good, and the compiler doesn't say so."""

_HLO = """HloModule jit_step, is_scheduled=true, frontend_attributes={fingerprint_before_lhs="0f0f"}

ENTRY %main (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  %all-reduce-start.1 = f32[8]{0} all-reduce-start(%x.1), replica_groups={{0,1}}, to_apply=%sum
  %fusion.1 = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%fused
  %all-reduce-done.1 = f32[8]{0} all-reduce-done(%all-reduce-start.1)
  ROOT %fusion.2 = f32[8]{0} fusion(%fusion.1, %all-reduce-done.1), kind=kLoop, calls=%fused.1
}
"""
_SHARES = {"all-reduce-start.1": 0.3, "fusion.1": 0.5, "fusion.2": 0.2}


def fake_profile(kind: FakePgle, *, runs: int, step_s: float) -> PgleReply:
    """What `runs` traced steps of `step_s` seconds gave."""
    prefix = "another_" if kind == "foreign" else "0f0f::"
    profile = b"".join(
        bytes_field(1, bytes_field(1, f"{prefix}{name}".encode()) + double_field(2, share * step_s * 1e6))
        for name, share in _SHARES.items()
    )
    data = "" if kind == "empty" else base64.b64encode(profile).decode()
    return PgleReply(
        profile=data,
        instructions=len(_SHARES) if data else 0,
        traces=(data,) * runs,
        hlo=base64.b64encode(zlib.compress(_HLO.encode())).decode(),
    )
