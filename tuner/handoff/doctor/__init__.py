"""`tune doctor`: whether this machine, its software and the environment are fit for tuning and for what is tuned."""

from __future__ import annotations

from tuner.handoff.doctor.diagnose import diagnose
from tuner.handoff.doctor.facts import Facts, gather
from tuner.handoff.doctor.finding import Finding, Level

__all__ = ["Facts", "Finding", "Level", "diagnose", "gather"]
