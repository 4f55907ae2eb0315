"""Timing rounds in a real worker: state, donation, failures, what a block waits for."""

from __future__ import annotations

import pytest
from worker_driver import Worker

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Compiled, Round, RoundReply, Variant

pytestmark = pytest.mark.jax

# Donated state; a donated batch that no output gives back; a host call that sleeps 10 ms and fails at the 50th step.
SOURCE = """
import time
import jax, jax.numpy as jnp, numpy as np

def build():
    def host(count):
        time.sleep(0.01)
        if count >= 50:
            raise RuntimeError("RESOURCE_EXHAUSTED: planted at step 50")
        return np.float32(count)

    def step(state, batch, scale):
        slow = jax.pure_callback(host, jax.ShapeDtypeStruct((), jnp.float32), state["count"])
        new = {"w": state["w"] + batch.sum() * scale, "count": state["count"] + 1, "lr": state["lr"] * 2}
        return new, {"fast": state["w"].sum(), "slow": slow}

    args = ({"w": jnp.zeros(1000), "count": 0, "lr": jnp.asarray(1.0)}, jnp.ones((8, 4)), 0.5)

    def check(reference, candidate):
        state = candidate[0]
        return True, f"count {int(state['count'])} w {float(state['w'][0])} lr {float(state['lr'])}"

    return {"step": jax.jit(step, donate_argnums=(0, 1)), "args": args, "check": check}
"""


@pytest.fixture(scope="module")
def worker(start_worker) -> Worker:
    worker = start_worker()
    loaded = worker.loaded(SOURCE)
    assert len(loaded.carried) == 3
    assert any("args[1]" in notice and "copy" in notice for notice in loaded.notices)
    assert isinstance(worker.compile(Variant(id="c")).results[0], Compiled)
    worker.numerics("c", steps=1, save=True)
    return worker


def position(worker: Worker) -> str:
    """Where the state stands after three steps from the initial one, by the workload's own check."""
    worker.numerics("c", steps=3, save=True)
    return worker.numerics("c", steps=3).check_message


def test_the_state_threads_through_donated_steps_and_is_put_back(worker: Worker) -> None:
    assert position(worker) == "count 3 w 48.0 lr 8.0"
    worker.round("c", "c", steps=4)
    assert position(worker) == "count 3 w 48.0 lr 8.0"


def test_a_block_waits_for_every_output_leaf(worker: Worker) -> None:
    block = worker.round("c", steps=5).blocks[0]
    assert isinstance(block, Block)
    assert block.seconds >= 5 * 0.01
    assert block.first_s >= 0.01


def test_a_step_that_fails_midway_is_a_failure_of_its_arm_and_the_next_arm_runs(worker: Worker) -> None:
    reply = worker.ask(Round(arms=(Arm(id="c", steps=2), Arm(id="c", steps=60), Arm(id="c", steps=2))))
    assert isinstance(reply, RoundReply)
    first, failed, last = reply.blocks
    assert isinstance(first, Block)
    assert isinstance(failed, Failure)
    assert (failed.kind, failed.phase) == (FailureClass.OUT_OF_MEMORY, "round")
    assert isinstance(last, Block)
    assert position(worker) == "count 3 w 48.0 lr 8.0"


def test_without_a_reset_the_state_goes_on_and_with_one_it_starts_again(worker: Worker) -> None:
    # 40 steps a round: the 50th is reached in the second one, unless the state is put back in between.
    assert isinstance(worker.round("c", steps=39).blocks[0], Block)
    assert isinstance(worker.round("c", steps=39, reset=True).blocks[0], Block)
    assert isinstance(worker.round("c", steps=39, reset=False).blocks[0], Failure)


def test_unknown_handles_and_empty_arms_are_failures_of_their_arms(worker: Worker) -> None:
    reply = worker.ask(Round(arms=(Arm(id="nobody", steps=1), Arm(id="c", steps=0), Arm(id="c", steps=1))))
    kinds = [block.kind if isinstance(block, Failure) else "block" for block in reply.blocks]
    assert kinds == [FailureClass.PROTOCOL, FailureClass.PROTOCOL, "block"]


SHARDED = """
import pathlib
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)

def listen(event, seconds, **details):
    if event == "/jax/core/compile/backend_compile_duration":
        with pathlib.Path(__file__).with_name("compiles").open("a") as stream:
            stream.write("x")
jax.monitoring.register_event_duration_secs_listener(listen)

def build():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    batch = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("data")))
    def step(w, batch):
        return w - jax.grad(lambda w: ((batch @ w) ** 2).mean())(w)
    def check(reference, candidate):
        initial = [array for array in jax.live_arrays() if array.shape == (4,) and float(array[0]) == 1.0]
        return True, f"{len(initial)} initial states"
    return {"step": jax.jit(step), "args": (jnp.ones(4), batch), "check": check}
"""


def test_a_state_that_the_step_itself_moves_is_settled_before_anything_is_timed(start_worker) -> None:
    """w starts on one device, uncommitted, and comes back on two: its second call would compile once more."""
    worker = start_worker()
    loaded = worker.loaded(SHARDED)
    assert loaded.device_count == 2
    made = worker.compile(Variant(id="c"), Variant(id="f", compiler_options={"xla_cpu_enable_fast_math": True}))
    assert all(isinstance(result, Compiled) for result in made.results), made
    assert made.results[0].collectives.get("all-reduce", 0) >= 1
    compiles = (worker.folder / "compiles").read_text()
    reply = worker.round("c", "f", "c", steps=4)
    worker.round("f", reset=True)
    assert all(isinstance(block, Block) for block in reply.blocks), reply
    assert (worker.folder / "compiles").read_text() == compiles
    # Nothing is donated, and yet the initial state takes no room on the device once the steps are under way.
    worker.numerics("c", save=True)
    assert worker.numerics("c").check_message == "0 initial states"
