"""Which leaves are compared together, and where."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.worker import groups, on_device
from tuner.worker.groups import Pair, differences
from tuner.worker.on_host import compared
from tuner.worker.stats import Difference, Start

pytestmark = pytest.mark.jax

RNG = np.random.default_rng(5)


def pair(shape: tuple[int, ...], dtype: Any = np.float32, *, begun: bool = False, near: bool = False) -> Pair:
    reference = np.asarray(50 + 5 * RNG.normal(size=shape)).astype(dtype)
    candidate = np.asarray(reference + RNG.normal(size=shape)).astype(dtype)
    start = np.asarray(0.5 * reference).astype(dtype)
    return Pair(reference, jax.device_put(candidate), Start(start, start) if begun else None, near)


@pytest.fixture
def pairs() -> list[Pair]:
    """Of several kinds, none beside another of its own."""
    kinds: list[dict[str, Any]] = [
        {"shape": (30, 20)},
        {"shape": (20, 30)},
        {"shape": (30, 20), "begun": True},
        {"shape": (30, 20), "dtype": jnp.bfloat16},
        {"shape": (30, 20), "dtype": np.int32},
        {"shape": (600,), "dtype": np.uint32, "near": True},
        {"shape": ()},
        {"shape": (0, 4)},
    ]
    return [pair(**kind) for _ in range(5) for kind in kinds]


def agree(found: list[Difference], pairs: list[Pair], *, rtol: float) -> None:
    """Each is what its leaf gives alone on the host."""
    for one, leaf in zip(found, pairs, strict=True):
        starts = [] if leaf.start is None else [leaf.start]
        (alone,) = compared([leaf.reference], [np.asarray(leaf.candidate)], starts)
        numbers = {name: value for name, value in vars(alone).items() if value is not None}
        assert {name: value for name, value in vars(one).items() if value is not None} == pytest.approx(numbers, rtol)


@pytest.mark.parametrize("threads", [1, 3])
def test_on_the_host_each_is_what_it_is_alone(pairs: list[Pair], monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(groups, "_THREADED", 1000)
    monkeypatch.setattr(groups, "_LEAVES", 3)
    found = differences(pairs, accelerator=False, threads=threads, run=lambda *_: pytest.fail("on the host"))
    agree(found, pairs, rtol=1e-12)


def test_an_accelerators_groups_have_one_call_each_and_the_rest_none(
    pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_ON_DEVICE", 3000)  # five leaves of 600
    monkeypatch.setattr(groups, "_LEAVES", 2)
    monkeypatch.setattr(groups, "_AHEAD", 2400)
    calls: list[tuple[Any, ...]] = []

    def run(function: Any, *args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        calls.append((function, tree, *((leaf.shape, leaf.dtype) for leaf in leaves)))
        return function(*args)

    found = differences(pairs, accelerator=True, threads=1, run=run)
    assert len(calls) == 5 * 3  # of five kinds three calls; keys, scalars and what is empty stay on the host
    assert len(set(calls)) == 5  # programs
    assert sum(function is on_device._counted for function, *_ in calls) == 3
    agree(found, pairs, rtol=1e-6)


def test_an_accelerator_holds_one_large_leaf_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each brings a reference, and where it began: several at once would want several times the memory of one."""
    monkeypatch.setattr(groups, "_ON_DEVICE", 1)
    monkeypatch.setattr(groups, "_GROUP", 100)
    monkeypatch.setattr(groups, "_AHEAD", 400)
    there: list[int] = []
    most: list[int] = []

    def begin(group: list[Pair], run: Any) -> Any:
        there.append(sum(one.reference.size for one in group))
        most.append(sum(there))
        return lambda: [Difference(float(there.pop(0)), 0.0, True)] * len(group)

    monkeypatch.setattr(groups, "_begin", begin)
    pairs = [pair((50, 2)) for _ in range(6)] + [pair((600,)) for _ in range(3)]
    found = differences(pairs, accelerator=True, threads=1, run=None)  # type: ignore[arg-type]
    assert [one.l2 for one in found] == [100.0] * 6 + [600.0] * 3
    assert max(most[:6]) == 400
    assert max(most[6:]) == 600


@pytest.mark.parametrize(
    ("leaves", "size", "sizes"),
    [(1, 5, [1]), (64, 5, [64]), (65, 5, [33, 32]), (200, 8, [50] * 4), (3, 1 << 22, [1] * 3), (9, 1 << 20, [3] * 3)],
)
def test_groups_are_about_equally_large_and_bounded(leaves: int, size: int, sizes: list[int]) -> None:
    cut = groups._cut(list(range(leaves)), size)
    assert [len(group) for group in cut] == sizes
    assert list(itertools.chain(*cut)) == list(range(leaves))
