"""The messages between parent and worker: one JSON object a line.

Request ``{"id": 7, "op": "round", …fields}``; reply ``{"id": 7, "ok": {…fields}}`` or ``{"id": 7, "failure": {…}}``.
The worker opens with a `Hello` that carries the parent's nonce; whatever stands on the pipe before it is skipped.
Times are seconds, sizes bytes.
"""

from __future__ import annotations

from tuner.protocol.messages.compiling import (
    CacheModule,
    Compile,
    Compiled,
    CompileReply,
    Lower,
    Lowered,
    OptionValue,
    Probe,
    ProbeReply,
    Release,
    Released,
    Sketch,
    Variant,
)
from tuner.protocol.messages.numerics import LeafStats, Numerics, NumericsReply
from tuner.protocol.messages.profiling import (
    Ceilings,
    CeilingsReply,
    Pgle,
    PgleReply,
    Profile,
    ProfileReply,
    TraceLabel,
    TraceLine,
)
from tuner.protocol.messages.session import PROTOCOL, Close, Closed, Gang, Hello, Load, Loaded, Progress, Recompiled
from tuner.protocol.messages.timing import Arm, Block, Round, RoundReply

__all__ = [
    "PROTOCOL",
    "Arm",
    "Block",
    "CacheModule",
    "Ceilings",
    "CeilingsReply",
    "Close",
    "Closed",
    "Compile",
    "CompileReply",
    "Compiled",
    "Gang",
    "Hello",
    "LeafStats",
    "Load",
    "Loaded",
    "Lower",
    "Lowered",
    "Numerics",
    "NumericsReply",
    "OptionValue",
    "Pgle",
    "PgleReply",
    "Probe",
    "ProbeReply",
    "Profile",
    "ProfileReply",
    "Progress",
    "Recompiled",
    "Release",
    "Released",
    "Round",
    "RoundReply",
    "Sketch",
    "TraceLabel",
    "TraceLine",
    "Variant",
]
