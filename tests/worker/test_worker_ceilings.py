"""Ceilings: when the best of some turns was no chance, and what is said where the turns don't agree."""

from __future__ import annotations

import types

import pytest

from tuner.worker import ceilings as module
from tuner.worker.ceilings import agreed


@pytest.mark.parametrize(
    ("turns", "settled"),
    [
        ((), False),
        ((1.0, 1.0, 1.0), False),
        ((1.0, 1.6, 1.05, 2.0), True),
        ((1.0, 1.6, 1.2, 2.0), False),
        ((1.0, 1.6, 1.2, 2.0, 1.09), True),
    ],
)
def test_the_best_counts_once_another_turn_comes_near_it(turns: tuple[float, ...], settled: bool) -> None:
    assert agreed(turns) is settled


@pytest.mark.jax
def test_what_turns_do_not_agree_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:

    from tuner.protocol.messages import Ceilings

    clock = iter(1.3**n for n in range(1000))
    monkeypatch.setattr(module, "_SIDE", {"cpu": 8, "gpu": 8})
    monkeypatch.setattr(module, "_COPY_BYTES", {"cpu": 1 << 12, "gpu": 1 << 12})
    monkeypatch.setattr(module, "_best_s", lambda run, row: next(clock))
    session = types.SimpleNamespace(state=types.SimpleNamespace(lose=lambda: None), platform="cpu")
    reply = module.ceilings(session, Ceilings())  # type: ignore[arg-type]
    assert {*reply.unsteady} == {*reply.flops_per_s, "memory"}
    monkeypatch.setattr(module, "_best_s", lambda run, row: 0.5)
    reply = module.ceilings(session, Ceilings())  # type: ignore[arg-type]
    assert (reply.unsteady, reply.flops_per_s["f32"]) == ((), 2 * 8**3 / 0.5)


@pytest.mark.jax
def test_on_a_cpu_what_is_passed_over_stays_in_its_place() -> None:
    """Memory that the system must find first would count as slow memory."""
    import jax.numpy as jnp

    array = jnp.zeros(1 << 16, jnp.float32)
    place = array.unsafe_buffer_pointer()
    run = module._passes(lambda x: x + 1.0, array, "cpu")
    assert [run().unsafe_buffer_pointer() for _ in range(3)] == [place] * 3
    assert float(run()[0]) == 4.0


@pytest.mark.jax
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_are_of_numbers_like_real_ones(dtype: str) -> None:
    import numpy as np

    made = np.asarray(module.operand(64, dtype), np.float32)
    assert module.operand(64, dtype).dtype == dtype
    assert np.isfinite(made).all()
    assert len(np.unique(made)) > 1000
    assert abs(made.std() - 1) < 0.1
