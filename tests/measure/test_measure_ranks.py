"""Ranks that are slower than the others are named, by how much."""

from __future__ import annotations

import pytest

from tuner.measure import stragglers
from tuner.protocol.messages import Block


def block(*ranks_s: float) -> Block:
    return Block(id="a", steps=1, seconds=max(ranks_s, default=1.0), first_s=0.1, ranks_s=ranks_s)


def test_a_slow_rank_is_named_with_its_ratio() -> None:
    assert stragglers([block(1.0, 1.2, 1.0), block(2.0, 2.4, 2.0)]) == {1: pytest.approx(1.2)}


def test_one_slow_block_names_nobody() -> None:
    assert stragglers([block(1.0, 1.0, 1.0), block(1.0, 9.0, 1.0), block(1.0, 1.01, 1.0)]) == {}


def test_outside_a_gang_there_are_none() -> None:
    assert stragglers([block(), block(1.0)]) == {}
