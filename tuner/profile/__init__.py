"""Profiles: traces of a step, read into where its time goes, how near the roof that is, and what can be done."""

from tuner.profile.analysis import analyse
from tuner.profile.breakdown import HOST_GAPS, LAUNCH_GAPS
from tuner.profile.churn import churn
from tuner.profile.diagnosis import groups_for
from tuner.profile.external import nsight_compute, nsight_systems
from tuner.profile.folding import folding
from tuner.profile.steady import doubt_of
from tuner.profile.types import (
    Bound,
    Breakdown,
    Ceiling,
    Finding,
    OpRow,
    PartRow,
    RankRow,
    Roofline,
    ScopeRow,
    StepProfile,
)

__all__ = [
    "HOST_GAPS",
    "LAUNCH_GAPS",
    "Bound",
    "Breakdown",
    "Ceiling",
    "Finding",
    "OpRow",
    "PartRow",
    "RankRow",
    "Roofline",
    "ScopeRow",
    "StepProfile",
    "analyse",
    "churn",
    "doubt_of",
    "folding",
    "groups_for",
    "nsight_compute",
    "nsight_systems",
]
