"""The numerics request in a real worker: planted faults are caught, equal results are exactly equal."""

from __future__ import annotations

import pytest
from worker_driver import Worker

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Compiled, LeafStats, Numerics, Variant

pytestmark = pytest.mark.jax

# The matmul precision that a variant asks for decides which fault the step has.
SOURCE = """
import jax, jax.numpy as jnp

def build():
    def step(state, x):
        w = state["w"]
        fault = jax.config.jax_default_matmul_precision
        grad = jnp.tanh(x.T @ (x @ w))
        if fault == "highest":
            grad = grad.at[:, 3].multiply(1.01)
        if fault == "float32":
            grad = grad.at[2, 2].set(jnp.nan)
        if fault == "tensorfloat32":
            grad = grad[::-1]
        low = grad.astype(jnp.bfloat16)
        if fault == "bfloat16":
            low = low.at[1].multiply(1.02)
        count = state["count"] + (2 if fault == "high" else 1)
        new = {"w": w + 0.1 * grad, "count": count, "key": jax.random.split(state["key"], 2)[0]}
        if fault == "F32_F32_F32":
            return new, {"low": low[:1]}
        return new, {"low": low}

    w = jax.random.normal(jax.random.key(1), (6, 8))
    args = ({"w": w, "count": jnp.int32(0), "key": jax.random.key(0)}, jnp.linspace(-1, 1, 30).reshape(5, 6))

    def check(reference, candidate):
        assert candidate[0]["key"].dtype == reference[0]["key"].dtype
        if jnp.isnan(candidate[0]["w"]).any():
            raise ValueError("not a number\\nsecond line")
        return bool(jnp.allclose(reference[0]["w"], candidate[0]["w"], rtol=1e-3, atol=1e-3))

    return {"step": jax.jit(step, donate_argnums=0), "args": args, "check": check}
"""
FAULTS = ("highest", "float32", "tensorfloat32", "bfloat16", "high", "F32_F32_F32")


@pytest.fixture(scope="module")
def worker(start_worker) -> Worker:
    worker = start_worker()
    worker.loaded(SOURCE)
    variants = [Variant(id=fault, jax_config={"jax_default_matmul_precision": fault}) for fault in FAULTS]
    reply = worker.compile(Variant(id="control"), *variants)
    assert all(isinstance(result, Compiled) for result in reply.results), reply
    saved = worker.numerics("control", save=True)
    assert (saved.leaves, saved.check) == ((), None)
    return worker


def leaves(worker: Worker, handle: str, *, nudge: int = 0) -> dict[tuple[str, int], LeafStats]:
    return {(leaf.path, leaf.steps): leaf for leaf in worker.numerics(handle, nudge=nudge).leaves}


def test_the_control_against_itself_is_exactly_equal_leaf_by_leaf(worker: Worker) -> None:
    found = leaves(worker, "control")
    assert {path for path, _ in found} == {"out[0]['count']", "out[0]['key']", "out[0]['w']", "out[1]['low']"}
    assert {steps for _, steps in found} == {1, 3}
    assert all((leaf.l2, leaf.slope, leaf.masks_equal) == (0.0, 0.0, True) for leaf in found.values())
    low = found["out[1]['low']", 3]
    assert (low.dtype, low.size, low.shape) == ("bfloat16", 48, (6, 8))
    assert found["out[0]['key']", 1].dtype == "key<fry>"
    assert worker.numerics("control").check is True


def test_of_a_leaf_that_takes_an_inputs_place_the_movement_is_told_after_the_last_step(worker: Worker) -> None:
    found = leaves(worker, "highest")
    moved, output = found["out[0]['w']", 3], found["out[1]['low']", 3]
    assert 0.01 < moved.travel < 1
    assert moved.moved_l2 == pytest.approx(moved.l2 / moved.travel, rel=1e-6)
    assert moved.moved_slope > 5e-3
    assert not moved.still
    assert (output.travel, output.moved_l2, found["out[0]['w']", 1].travel) == (None, None, None)
    assert leaves(worker, "control")["out[0]['w']", 3].moved_l2 == 0.0


def test_two_draws_differ_and_a_larger_one_moves_more(worker: Worker) -> None:
    first, second = (leaves(worker, "control", nudge=draw)["out[0]['w']", 3] for draw in (1, 2))
    assert first.moved_l2 != second.moved_l2
    reference = str(worker.folder / "reference.bin")
    reply = worker.ask(Numerics(id="control", steps=3, reference=reference, nudge=1, nudge_size=1e5))
    large = {(leaf.path, leaf.steps): leaf for leaf in reply.leaves}["out[0]['w']", 3]
    assert large.moved_l2 > 8 * first.moved_l2
    assert leaves(worker, "control", nudge=1)["out[0]['w']", 3] == first


def test_a_precise_reference_is_float64_and_near(worker: Worker) -> None:
    precise = str(worker.folder / "precise.bin")
    saved = worker.ask(Numerics(id="control", steps=3, reference=precise, save=True, precise=True))
    assert (saved.leaves, saved.precision) == ((), "float64")
    reply = worker.ask(Numerics(id="control", steps=3, reference=precise, precise=True))
    found = {(leaf.path, leaf.steps): leaf for leaf in reply.leaves}
    assert reply.check is None
    assert 0 < found["out[0]['w']", 3].l2 < 1e-6
    assert 1e-4 < found["out[1]['low']", 1].l2 < 1e-2
    assert found["out[0]['key']", 3].l2 == found["out[0]['count']", 3].l2 == 0
    wrong = worker.ask(Numerics(id="highest", steps=3, reference=precise, precise=True))
    assert max(leaf.slope for leaf in wrong.leaves) > 5e-3
    assert leaves(worker, "control")["out[0]['w']", 3].l2 == 0, "the session goes on as before"


def test_a_nudge_is_small_not_nothing_and_leaves_no_trace(worker: Worker) -> None:
    nudged = leaves(worker, "control", nudge=1)
    assert 0 < nudged["out[0]['w']", 1].l2 < 1e-5
    assert nudged["out[0]['count']", 3].l2 == 0
    assert leaves(worker, "control", nudge=1) == nudged
    assert leaves(worker, "control")["out[0]['w']", 3].l2 == 0


def test_one_column_off_by_a_percent_shows_in_the_slope(worker: Worker) -> None:
    found = leaves(worker, "highest")["out[1]['low']", 1]
    assert 0.003 < found.slope < 0.03
    null = leaves(worker, "control", nudge=1)["out[0]['w']", 1]
    assert leaves(worker, "highest")["out[0]['w']", 1].slope > 100 * null.slope


def test_a_nan_shows_in_the_masks_and_in_the_workloads_own_check(worker: Worker) -> None:
    reply = worker.numerics("float32")
    found = {(leaf.path, leaf.steps): leaf for leaf in reply.leaves}
    assert not found["out[0]['w']", 1].masks_equal
    assert found["out[0]['count']", 1].masks_equal
    assert (reply.check, reply.check_message) == (False, "ValueError: not a number")


def test_a_permuted_leaf_and_a_fault_in_bfloat16_are_far_off(worker: Worker) -> None:
    assert leaves(worker, "tensorfloat32")["out[1]['low']", 1].l2 > 0.05
    assert leaves(worker, "bfloat16")["out[1]['low']", 1].slope > 0.005
    assert leaves(worker, "bfloat16")["out[0]['w']", 1].l2 == 0
    assert worker.numerics("tensorfloat32").check is False


def test_integers_that_differ_are_counted(worker: Worker) -> None:
    found = leaves(worker, "high")
    assert found["out[0]['count']", 1].l2 == 1.0
    assert found["out[0]['w']", 3].l2 == 0.0


def test_another_shape_is_a_wrong_result_and_another_horizon_a_wrong_request(worker: Worker) -> None:
    reference = str(worker.folder / "reference.bin")
    failure = worker.ask(Numerics(id="F32_F32_F32", steps=3, reference=reference))
    assert isinstance(failure, Failure)
    assert failure.kind is FailureClass.WRONG_RESULT
    assert "out[1]['low'] has shape (1, 8), the reference (6, 8)" in failure.message
    failure = worker.ask(Numerics(id="control", steps=4, reference=reference))
    assert (failure.kind, failure.phase) == (FailureClass.PROTOCOL, "numerics")
    assert leaves(worker, "control")["out[0]['w']", 3].l2 == 0.0


def test_another_process_reads_the_reference_and_agrees(worker: Worker, start_worker) -> None:
    other = start_worker()
    other.loaded(SOURCE)
    other.compile(Variant(id="control"))
    (other.folder / "reference.bin").write_bytes((worker.folder / "reference.bin").read_bytes())
    reply = other.numerics("control")
    assert len(reply.leaves) == 8
    assert all((leaf.l2, leaf.slope, leaf.masks_equal) == (0.0, 0.0, True) for leaf in reply.leaves)
    assert reply.check is True


def test_a_build_that_draws_other_inputs_in_every_process_is_told_which(start_worker) -> None:
    """Those that setting alone moves are the same ones; so are truth values and narrow floats that are."""
    source = """
import jax, jax.numpy as jnp, numpy as np

def build():
    drawn = np.random.default_rng().standard_normal((8, 500))
    nearly = np.ones(4, np.float32) + np.float32(1e-6) * np.random.default_rng().random(4, np.float32)
    step = jax.jit(lambda w, x, y, low, yes: w + x.mean() + y.mean())
    return step, (jnp.ones(3), drawn, nearly, jnp.ones(5, jnp.bfloat16), np.array([True, False]))
"""
    one, other = start_worker(), start_worker()
    for worker in (one, other):
        worker.loaded(source)
        worker.compile(Variant(id="c"))
    one.numerics("c", save=True)
    one.round("c")  # which waits until the reference is written
    (other.folder / "reference.bin").write_bytes((one.folder / "reference.bin").read_bytes())
    assert other.numerics("c").other_inputs == ("args[1]",)
    assert one.numerics("c").other_inputs == ()
    for worker in (one, other):
        worker.end()
