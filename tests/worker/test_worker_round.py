"""Timing rounds in a real worker: state, donation, failures, what a block waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worker_driver import Worker

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Compiled, Profile, ProfileReply, Round, RoundReply, Variant

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


SLOW_TO_FILL = """
import jax, jax.numpy as jnp

def build():
    return jax.jit(lambda x: x + 1, donate_argnums=0), (jnp.zeros(1 << 25),)
"""


def test_putting_the_state_back_is_told_with_the_first_block_alone(start_worker: Callable[[], Worker]) -> None:
    worker = start_worker()
    worker.loaded(SLOW_TO_FILL)
    assert isinstance(worker.compile(Variant(id="c")).results[0], Compiled)
    first, second = worker.round("c", "c", steps=1).blocks
    (kept,) = worker.round("c", steps=1, reset=False).blocks
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    assert isinstance(kept, Block)
    assert first.reset_s > 0.001 > kept.reset_s
    assert second.reset_s == 0.0


def test_unknown_handles_and_empty_arms_are_failures_of_their_arms(worker: Worker) -> None:
    reply = worker.ask(Round(arms=(Arm(id="nobody", steps=1), Arm(id="c", steps=0), Arm(id="c", steps=1))))
    kinds = [block.kind if isinstance(block, Failure) else "block" for block in reply.blocks]
    assert kinds == [FailureClass.PROTOCOL, FailureClass.PROTOCOL, "block"]


def test_a_block_is_opened_by_steps_that_do_not_count(worker: Worker) -> None:
    arms = (Arm(id="c", steps=2, opening=20), Arm(id="c", steps=2, opening=-1), Arm(id="c", steps=2, opening=50))
    opened, refused, failed = worker.ask(Round(arms=arms)).blocks
    assert isinstance(opened, Block)
    assert opened.steps == 2
    assert opened.first_s >= 21 * 0.01
    assert isinstance(refused, Failure)
    assert refused.kind is FailureClass.PROTOCOL
    assert isinstance(failed, Failure)
    assert failed.kind is FailureClass.OUT_OF_MEMORY


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
    assert made.results[0].collective_bytes["all-reduce"] >= 4
    compiles = (worker.folder / "compiles").read_text()
    reply = worker.round("c", "f", "c", steps=4)
    worker.round("f", reset=True)
    assert all(isinstance(block, Block) for block in reply.blocks), reply
    assert (worker.folder / "compiles").read_text() == compiles
    # Nothing is donated, and yet the initial state takes no room on the device once the steps are under way.
    worker.numerics("c", save=True)
    assert worker.numerics("c").check_message == "0 initial states"


# Every 16th step works longer, by a loop whose length depends on the step's number: only far quantiles see it.
UNEVEN = """
import jax, jax.numpy as jnp

def build():
    def step(count, x):
        rounds = jnp.where(count % 16 == 15, 400, 10)
        y = jax.lax.fori_loop(0, rounds, lambda _, y: jnp.tanh(y @ x), x)
        return count + 1, y.sum()
    return {"step": jax.jit(step), "args": (jnp.int32(0), jnp.eye(64) / 2), "carry": 1}
"""


def test_a_step_timed_by_itself_tells_the_quantile_that_was_asked_for(start_worker) -> None:
    worker = start_worker()
    worker.loaded(UNEVEN)
    worker.compile(Variant(id="c"))

    def block(quantile: float | None, *, warm_up: int = 1) -> Block:
        reply = worker.ask(Round(arms=(Arm(id="c", steps=96, warm_up=warm_up, quantile=quantile),)))
        assert isinstance(reply.blocks[0], Block), reply
        return reply.blocks[0]

    typical, far, mean = block(0.5, warm_up=50), block(0.99), block(None)
    assert far.step_s > 5 * typical.step_s
    assert typical.step_s < mean.step_s < far.step_s
    assert mean.value_s is None
    assert typical.seconds > 96 * typical.step_s / 2
    assert typical.first_s > 10 * mean.step_s  # fifty steps were discarded
    for wrong in ({"quantile": 1.5}, {"warm_up": 0}):
        failure = worker.ask(Round(arms=(Arm(id="c", steps=5, **wrong),))).blocks[0]
        assert isinstance(failure, Failure)
        assert failure.kind is FailureClass.PROTOCOL


# Two steps that share one array, which the first donates; the second works longer and runs four times as often.
SEVERAL = """
import jax, jax.numpy as jnp

def build():
    shared = jnp.eye(128) / 2
    def train(w):
        return w * 1.5 + 1.0
    def decode(token, w):
        return token + 1, jax.lax.fori_loop(0, 100, lambda _, y: jnp.tanh(y @ w), w).sum()
    def check(reference, candidate):
        return True, f"w {float(candidate['train'][0, 1])} token {int(candidate['decode'][0])}"
    steps = {
        "train": (jax.jit(train, donate_argnums=0), (shared,)),
        "decode": {"step": jax.jit(decode), "args": (jnp.int32(0), shared), "weight": 4, "carry": 1},
    }
    return {"steps": steps, "work": 5, "check": check}
"""


def test_several_steps_are_one_candidate_whose_time_is_their_weighted_sum(start_worker) -> None:
    worker = start_worker()
    loaded = worker.loaded(SEVERAL)
    assert (loaded.step_name, loaded.weights, loaded.work) == ("train + decode", {"train": 1.0, "decode": 4.0}, 5.0)
    assert loaded.carried == ("train: args[0] <- out", "decode: args[0] <- out[0]")
    fast = Variant(id="f", compiler_options={"xla_backend_optimization_level": 0})
    control, other = worker.compile(Variant(id="c"), fast).results
    assert isinstance(control, Compiled), control
    assert isinstance(other, Compiled), other
    assert control.program == other.program
    assert control.code != other.code
    assert len(control.code) == 32
    assert control.peak_bytes is not None
    assert control.peak_bytes >= 128 * 128 * 4
    for quantile in (None, 0.5):
        reply = worker.ask(Round(arms=(Arm(id="c", steps=8, quantile=quantile), Arm(id="f", steps=8))))
        block = reply.blocks[0]
        assert isinstance(block, Block), block
        assert block.parts.keys() == {"train", "decode"}
        assert block.step_s == pytest.approx(block.parts["train"] + 4 * block.parts["decode"])
        assert block.parts["decode"] > block.parts["train"]
    traced = worker.ask(Profile(id="c", steps=2, block=8, folder=str(worker.folder / "trace")))
    assert isinstance(traced, ProfileReply), traced
    assert traced.hlo.keys() == {"jit_train", "jit_decode"}
    assert 0 < traced.plain_s < 0.8 * block.step_s  # each of them once, as they are in the trace
    assert traced.each_s.keys() == {"train", "decode"}
    assert sum(traced.each_s.values()) == pytest.approx(traced.plain_s)
    worker.numerics("c", save=True)
    compared = worker.numerics("f")
    assert {leaf.path for leaf in compared.leaves} == {"out['train']", "out['decode'][0]", "out['decode'][1]"}
    assert compared.check_message == "w 4.75 token 3"
    assert worker.numerics("c").leaves[0].l2 == 0.0
    worker.release("f")
    assert isinstance(worker.round("c").blocks[0], Block)


# Two steps that say when they run; the second runs twenty times as often.
COUNTED = """
import pathlib
import jax, jax.numpy as jnp, numpy as np

def counted(name):
    def host(x):
        with pathlib.Path(__file__).with_name("ran").open("a") as stream:
            stream.write(name)
        return np.float32(x) + 1
    return jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((), jnp.float32), x))

def build():
    steps = {"rare": (counted("r"), (jnp.float32(0),)), "often": (counted("o"), (jnp.float32(0),), 20)}
    return {"steps": steps}
"""


@pytest.mark.parametrize(("quantile", "rare"), [(None, 2), (0.5, 40)])
def test_several_steps_open_a_block_as_often_as_they_run_in_it(start_worker, quantile: float | None, rare: int) -> None:
    worker = start_worker()
    worker.loaded(COUNTED)
    worker.compile(Variant(id="c"))
    ran = worker.folder / "ran"
    worker.round("c")
    before = ran.read_text() if ran.exists() else ""
    block = worker.ask(Round(arms=(Arm(id="c", steps=40, opening=40, quantile=quantile),))).blocks[0]
    assert isinstance(block, Block), block
    now = ran.read_text().removeprefix(before)
    assert now.startswith("r" * rare + "o" * 40)
    assert now.count("r") == 2 * rare + 1
    assert now.count("o") == 40 + 1 + 40
