"""How far two programs are apart, and what the store tells of one that is near."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from tuner.knobs.config import Config
from tuner.protocol.messages import Sketch

__all__ = ["NEAR", "Neighbour", "apart", "apart_places"]

NEAR = 0.12
"""Programs farther apart than this have nothing to say to each other. A judgement, by `tests/benchmarks/distances.py`:
of the shipped workloads other sizes of one lie within 0.05 of each other, transformers (training, inference, images)
within 0.09, unlike ones beyond 0.11, most of them far beyond."""

# So many doublings of size, of devices, of what collectives move count like wholly different operations.
_SIZES = 100.0
_DEVICES = 40.0
_MOVED = 100.0
_LAID_OUT = 0.03
# Another kind of device, another version of jax: many settings carry over, not all.
_KIND = 0.08
_VERSION = 0.02


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A program like the one in question, and what was best for it. `run`: in which that was found, of `workload`.

    `distance`: 0 is the same program here; `apart`: what makes it up. `identity`: of the environment that the run was
    in. `configs`: with a proven gain there, the one that was emitted first.
    """

    run: str
    workload: str
    program: str
    distance: float
    apart: dict[str, float]
    identity: dict[str, str]
    configs: tuple[Config, ...]

    @property
    def text(self) -> str:
        """Which program, and what differs, in words."""
        versions = self.identity.get("jax", "")
        said = [f"{name} {100 * share:.0f} % apart" for name, share in self.apart.items() if share >= 0.005]
        return f"{self.workload} of run {self.run} (jax {versions}; {', '.join(said) or 'made of the same operations'})"


def apart(one: Sketch, other: Sketch) -> dict[str, float]:
    """What lies between two programs, by what it is of; their sum is 0 for equal sketches.

    *operations*: 1 − Σ√(p·q) over the shares p, q of each operation (the squared Hellinger distance, 0 to 1).
    *collectives*: the same over the bytes that each kind moves, 1 if only one of the two communicates, and the ratio
    of all bytes. *mesh*: the ratio of the numbers of devices, and whether they are laid out along as many axes. *size*:
    the ratio of the bytes of all arguments.
    """
    found = {
        "operations": _unlike(one.operations, other.operations),
        "collectives": _unlike(one.collective_bytes, other.collective_bytes)
        + _doublings(sum(one.collective_bytes.values()), sum(other.collective_bytes.values())) / _MOVED,
        "mesh": _doublings(one.devices, other.devices) / _DEVICES + _LAID_OUT * (_axes(one) != _axes(other)),
        "size": _doublings(one.input_bytes, other.input_bytes) / _SIZES,
    }
    return {name: share for name, share in found.items() if share > 0}


def apart_places(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, float] | None:
    """The same for two environments' identities; None for two platforms, between which nothing carries over."""
    if one.get("platform") != other.get("platform"):
        return None
    names = ("cpu",) if one.get("platform") == "cpu" else ("device_kind",)
    found = {
        "device": _KIND * any(one.get(n) != other.get(n) for n in names),
        "versions": _VERSION * any(one.get(n) != other.get(n) for n in ("jax", "jaxlib")),
    }
    return {name: share for name, share in found.items() if share > 0}


def _unlike(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    all_one, all_other = sum(one.values()), sum(other.values())
    if not all_one or not all_other:
        return float(all_one != all_other)
    shared = sum(math.sqrt(one[n] / all_one * other[n] / all_other) for n in one.keys() & other.keys())
    return max(0.0, round(1.0 - shared, 9))


def _doublings(one: int, other: int) -> float:
    return abs(math.log2(max(one, 1) / max(other, 1)))


def _axes(sketch: Sketch) -> int:
    return sum(size > 1 for size in sketch.mesh.values())
