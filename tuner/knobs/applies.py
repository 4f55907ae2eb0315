"""Where a knob or preset applies: platform, devices, compute capability, jax version."""

from __future__ import annotations

import re

import msgspec

from tuner.knobs.knob import When

__all__ = ["NEEDS_JAX", "Facts", "applies", "range_complaint", "version_in"]

NEEDS_JAX = "needs jax "
"""How the reason begins where the version of jax alone decides."""

_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|c|rc|alpha|beta|pre|preview|dev)[-_.]?\d*)?")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a knob applies here.

    `platform`: jax's name, "cpu" or "gpu". `device_count`: over all processes. `capability`: smallest CUDA compute
    capability of the devices, e.g. "9.0"; None where there is none. `jax`: its version. `collectives`: kinds in the
    program that the default compiles to; None: not known.
    """

    platform: str
    device_count: int
    jax: str
    capability: str | None = None
    collectives: tuple[str, ...] | None = None


def applies(when: When, facts: Facts) -> str | None:
    """Why `when` does not hold for `facts`; None if it does."""
    if when.platform is not None and when.platform != facts.platform:
        return f"needs platform {when.platform}, this is {facts.platform}"
    if when.min_devices is not None and facts.device_count < when.min_devices:
        return f"needs {when.min_devices} devices, there {'is' if facts.device_count == 1 else 'are'} only " + str(
            facts.device_count
        )
    if when.capability is not None:
        if facts.capability is None:
            return f"needs compute capability {when.capability}, these devices report none"
        if _numbers(facts.capability) < _numbers(when.capability):
            return f"needs compute capability {when.capability}, these devices have {facts.capability}"
    if when.collectives is not None and facts.collectives is not None:
        if not facts.collectives:
            return "the program has no collectives"
        if when.collectives and not set(when.collectives) & set(facts.collectives):
            return f"the program has no {' or '.join(when.collectives)}, only {', '.join(facts.collectives)}"
    if when.jax is not None and not version_in(facts.jax, when.jax):
        return f"{NEEDS_JAX}{when.jax}, this is {facts.jax}"
    return None


def version_in(version: str, wanted: str) -> bool:
    """Whether `version` lies in a range like ">=0.10,<0.12"; every clause must hold.

    Missing numbers count as 0, a pre-release comes before its release, local parts ("+cuda12") do not count. Raises
    ValueError for a range or version that is none.
    """
    at = _key(version)
    for operator, bound in _clauses(wanted):
        key = _key(bound)
        holds = {
            ">=": at >= key,
            "<=": at <= key,
            ">": at > key,
            "<": at < key,
            "==": at == key,
            "!=": at != key,
        }
        if not holds[operator]:
            return False
    return True


def range_complaint(wanted: str) -> str | None:
    """Why `wanted` is no version range; None if it is one."""
    try:
        _clauses(wanted)
    except ValueError as error:
        return str(error)
    return None


def _clauses(wanted: str) -> list[tuple[str, str]]:
    clauses = []
    for part in wanted.split(","):
        match = _CLAUSE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f'{part.strip()!r} is no version clause; write e.g. ">=0.10,<0.12"')
        clauses.append((match[1], match[2]))
    return clauses


def _key(version: str) -> tuple[tuple[int, ...], bool]:
    """Sorts versions: the numbers without trailing zeros, then whether it is a release."""
    match = _VERSION.match(version.partition("+")[0].strip())
    if match is None:
        raise ValueError(f"{version!r} is no version")
    return _numbers(match[1]), match[2] is None


def _numbers(dotted: str) -> tuple[int, ...]:
    numbers = [int(n) for n in dotted.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
