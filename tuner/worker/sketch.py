"""What the control is made of: operations, collectives, mesh. By it the store finds programs like this one."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax

from tuner.protocol.messages import Sketch
from tuner.worker.fingerprint import collective_results

__all__ = ["collective_bytes", "operations_in", "sketch_of"]

# An operation, plain or in quotes; `#stablehlo.…` and `!stablehlo.…` are attributes and types. What a custom call does
# is its target's name.
_OPERATION = re.compile(r"(?<![#!.\w])(?:stablehlo|chlo)\.(\w+)(?: @(\w+))?")
_NOT_WORK = frozenset({"return", "constant"})
_SHAPE = re.compile(r"(pred|token|[a-z]+(\d+)\w*)\[([\d,]*)\]")


def sketch_of(lowered: Iterable[jax.stages.Lowered], hlo: Iterable[str], inputs: Any) -> Sketch:
    """The sketch of lowered steps, `hlo` the text of their optimised modules, `inputs` all their arguments (a tree)."""
    operations: Counter[str] = Counter()
    for step in lowered:
        operations.update(operations_in(step.as_text()))
    moved: Counter[str] = Counter()
    for text in hlo:
        moved.update(collective_bytes(text))
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(inputs) if isinstance(leaf, jax.Array)]
    mesh: dict[str, int] = {}
    for leaf in leaves:
        if isinstance(leaf.sharding, jax.sharding.NamedSharding):
            mesh |= {str(axis): int(size) for axis, size in leaf.sharding.mesh.shape.items()}
    return Sketch(
        operations=dict(sorted(operations.items())),
        collective_bytes=dict(sorted(moved.items())),
        mesh=dict(sorted(mesh.items())),
        devices=jax.device_count(),
        input_bytes=sum(int(leaf.nbytes) for leaf in leaves),
    )


def operations_in(text: str) -> dict[str, int]:
    """How often each StableHLO operation stands in a lowered module; a custom call under its target's name."""
    found = ((m[1], m[2]) for m in _OPERATION.finditer(text))
    return Counter(target or name for name, target in found if name not in _NOT_WORK)


def collective_bytes(hlo: str) -> dict[str, int]:
    """Bytes that each kind of collective in an optimised module gives on one device."""
    moved: Counter[str] = Counter()
    for kind, begins, result in collective_results(hlo):
        sizes = [_bytes(*shape.groups()) for shape in _SHAPE.finditer(result)]
        if begins and kind != "all-reduce" and len(sizes) > 1:
            sizes = sizes[len(sizes) // 2 :]  # what it is given comes first, what it gives second
        moved[kind] += math.ceil(sum(sizes))
    return moved


def _bytes(dtype: str, bits: str | None, dimensions: str) -> float:
    size = math.prod(int(n) for n in dimensions.split(",") if n)
    return size * (int(bits) / 8 if bits else float(dtype == "pred"))
