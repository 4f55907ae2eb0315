"""What the control is made of: operations, collectives, mesh. By it the store finds programs like this one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from tuner.protocol.messages import Sketch

__all__ = ["operations_in", "sketch_of"]

# An operation, plain or in quotes; `#stablehlo.…` and `!stablehlo.…` are attributes and types. What a custom call does
# is its target's name.
_OPERATION = re.compile(r"(?<![#!.\w])(?:stablehlo|chlo)\.(\w+)(?: @(\w+))?")
_NOT_WORK = frozenset({"return", "constant"})


def sketch_of(lowered: Iterable[jax.stages.Lowered], moved: Mapping[str, int], inputs: Any) -> Sketch:
    """The sketch of lowered steps, `moved` their `Compiled.collective_bytes`, `inputs` all their arguments (a tree)."""
    operations: Counter[str] = Counter()
    for step in lowered:
        operations.update(operations_in(step.as_text()))
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
