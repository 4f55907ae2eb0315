"""Waiting for results: jax returns from a call long before the work is done."""

from __future__ import annotations

from typing import TypeVar

import jax

__all__ = ["wait"]

T = TypeVar("T")


def wait(outputs: T) -> T:
    """`outputs`, once *every* array leaf of it is ready: one that is ready says nothing about the others."""
    jax.block_until_ready(outputs)  # type: ignore[no-untyped-call]
    return outputs
