"""Knob: one tunable setting, as the search-space TOML declares it."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["TIERS", "UNSET", "ActsOn", "Carrier", "Forbid", "Knob", "Lane", "Preset", "Risk", "ValueType", "When"]

Carrier = Literal["xla_flag", "env", "jax_config", "effort", "pgle", "layout", "workload"]
Lane = Literal["option", "environment"]
ActsOn = Literal["hlo", "codegen", "library", "autotune", "runtime"]
Risk = Literal["none", "numerics", "memory", "hang"]
ValueType = Literal["bool", "int", "float", "enum", "string", "list"]

TIERS = (1, 2, 3)
"""The order in which knobs are tried: a tier only once all of the one before it were, or can't be afforded."""

UNSET = "unset"
"""The value that means: leave this setting alone. Distinct from the empty value ``""``."""


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a knob or preset applies. Every field given must hold.

    `platform`: "cpu" or "gpu". `min_devices`: at least so many devices. `capability`: smallest CUDA compute
    capability, e.g. "9.0". `jax`: a version range, e.g. ">=0.10,<0.12". `collectives`: kinds as HLO names them, of
    which the program under the default has at least one; [] where any will do.
    """

    platform: Literal["cpu", "gpu"] | None = None
    min_devices: int | None = None
    capability: str | None = None
    jax: str | None = None
    collectives: tuple[str, ...] | None = None


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tunable setting. `values` are the exact texts emitted; "unset" leaves the setting alone, "" is a value.

    `lane`: "option" can change per compile in a living process, "environment" needs a new process.
    `acts_on`: "hlo" and "codegen" show in the fingerprint; "library", "autotune" and "runtime" may not.
    `requires`: other settings without which this one has no meaning (name → value).
    `tier`: when it is tried, from 1 (first: what mattered most often) to 3 (last: what rarely does, or takes long).
    `scale`: kinds of collectives; the values are then shares, such as "1/8", of the bytes that the program's own
    collectives of these kinds have, see `tuner.knobs.scale`.
    """

    name: str
    carrier: Carrier
    type: ValueType
    values: tuple[str, ...]
    lane: Lane
    acts_on: ActsOn
    why: str
    source: str
    risk: Risk = "none"
    group: str = ""
    tier: int = 1
    aliases: tuple[str, ...] = ()
    when: When = When()
    requires: dict[str, str] = {}
    scale: tuple[str, ...] = ()


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A config known from elsewhere; always raced where it applies."""

    name: str
    settings: dict[str, str]
    source: str
    when: When = When()


class Forbid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A combination that is never tried, and why."""

    settings: dict[str, str]
    why: str
