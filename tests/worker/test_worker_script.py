"""Taking over unmodified scripts in a real worker."""

from __future__ import annotations

import pytest
from worker_driver import Worker

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Block, Compiled, Variant

pytestmark = pytest.mark.jax

TRAINING = """
import os
os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=true"
os.environ["JAX_ENABLE_X64"] = "1"
from functools import partial
import jax
import jax.numpy as jnp
from jax import jit

@jit
def augment(key):
    return jax.random.normal(key, (16, 16))

@partial(jax.jit, static_argnames="lr", donate_argnames="opt", donate_argnums=(0, 1))
def train(params, opt, batch, *, lr):
    def loss_of(params):
        h = batch
        for _ in range(20):
            h = jnp.tanh(h @ params["w"])
        return (h ** 2).mean()
    loss, grads = jax.value_and_grad(loss_of)(params)
    opt = jax.tree.map(lambda m, g: 0.9 * m + g, opt, grads)
    return loss, jax.tree.map(lambda p, m: p - lr * m, params, opt), opt

params = {"w": jnp.eye(16, dtype=jnp.float32)}
opt = jax.tree.map(jnp.zeros_like, params)
try:
    for i in range(1000):
        loss, params, opt = train(params, opt, augment(jax.random.key(i)), lr=0.1)
        print("step", i, flush=True)
except BaseException:
    print("unwound")
finally:
    print("finally ran")
"""


def test_a_training_loop_is_taken_over_in_place_with_its_optimiser_state(start_worker) -> None:
    worker = start_worker()
    loaded = worker.loaded(TRAINING, name="train.py")
    assert (loaded.source, loaded.step_name) == ("script", "train")
    assert loaded.carried == ("args[0]['w'] <- out[1]['w']", "args[1]['w'] <- out[2]['w']")
    assert loaded.inputs[2] == "args[2]: float64[16,16]"
    assert loaded.environ_changed["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=true"
    assert loaded.environ_changed["JAX_ENABLE_X64"] == "1"
    assert loaded.xla_flags == "--xla_cpu_enable_fast_math=true"
    reply = worker.compile(Variant(id="c"), Variant(id="f", compiler_options={"xla_cpu_enable_fast_math": False}))
    assert all(isinstance(result, Compiled) for result in reply.results), reply
    assert all(isinstance(block, Block) for block in worker.round("c", "f", "c", steps=5).blocks)
    worker.numerics("c", save=True)
    assert worker.numerics("c").leaves[0].l2 == 0.0
    assert worker.close() == 0
    log = worker.text()
    assert "step 2" in log
    assert "step 20" not in log
    assert "unwound" not in log
    assert "finally ran" not in log


SHORT = """
import sys
import jax, jax.numpy as jnp

if __name__ == "__main__":
    init = jax.jit(lambda: jnp.ones(8))

    @jax.jit
    def forward(w, x):
        return jnp.tanh(x @ w).sum()

    w = init()
    for x in jnp.ones((2, 3, 8)):
        print(sys.argv[1:], forward(w, x))
    print("done", flush=True)
    sys.exit(0)
"""


def test_a_script_that_ends_before_anything_is_hot_is_tuned_with_the_arguments_it_used(start_worker) -> None:
    worker = start_worker()
    loaded = worker.loaded(SHORT, name="short.py", argv=("--fast",))
    assert (loaded.source, loaded.step_name, loaded.carried) == ("script", "forward", ())
    assert loaded.inputs == ("args[0]: float32[8]", "args[1]: float32[3,8]")
    assert isinstance(worker.compile(Variant(id="c")).results[0], Compiled)
    assert isinstance(worker.round("c").blocks[0], Block)
    assert "['--fast']" in worker.text()
    assert "done" in worker.text()
    assert worker.close() == 0


CANNOT = {
    "plain": ("print(sum(range(10)))", "plain.py has neither build() nor anything jitted: it doesn't even import jax"),
    "eager": ("import jax.numpy as jnp\njnp.ones(3) + 1", "eager.py has neither build() nor anything jitted"),
    "decorated": (
        "import jax\n\n@jax.jit\ndef step(x):\n    return x",
        "decorated.py has neither build() nor anything jitted that it calls, though it jits 1 function",
    ),
    "elsewhere": (
        "import jax\n\nbuild = lambda: (jax.jit(abs), (1.0,))",
        "its build() comes from another place; write a def build in this file",
    ),
    "ahead": (
        "import jax, jax.numpy as jnp\nx = jnp.ones(3)\njax.jit(lambda x: x + 1).lower(x).compile()(x)",
        "functions compiled ahead of time can't be tuned, call the jitted function itself",
    ),
    "mute": (
        "import jax, jax.numpy as jnp\n\nf = jax.jit(lambda x: None)\nfor i in range(20):\n    f(jnp.ones(3))",
        "mute.py has neither build() nor anything jitted that it calls and that returns an array",
    ),
    "mapped": (
        "import jax, jax.numpy as jnp\n\nf = jax.pmap(lambda x: x + 1)\nf(jnp.ones((1, 3)))",
        "what jax.pmap maps can't be tuned, jit it over a mesh",
    ),
    "raising": (
        "import jax, jax.numpy as jnp\n\nf = jax.jit(lambda x: x + 1)\nf(jnp.ones(3))\nraise KeyError('data')",
        "the script raised KeyError: 'data' (raising.py:5)",
    ),
    "exiting": ("import sys\nsys.exit('usage: …')", "the script raised SystemExit: usage: …"),
}


@pytest.mark.parametrize("name", CANNOT)
def test_a_script_that_cannot_be_tuned_says_why(start_worker, name: str) -> None:
    source, says = CANNOT[name]
    worker: Worker = start_worker()
    failure = worker.load(source, name=f"{name}.py")
    assert isinstance(failure, Failure)
    assert failure.kind is FailureClass.WORKLOAD
    assert says in failure.message
    worker.end()


MUTE = """
import warnings
warnings.simplefilter("error")
import jax, jax.numpy as jnp
from jax.experimental import pjit

@jax.jit
def show(x):
    jax.debug.print("sum {}", (x @ x @ x).sum())

@pjit.pjit
def train(w):
    return w + 1e-3 * jnp.tanh(w)

w = jnp.eye(256)
for i in range(1000):
    show(w)
    w = train(w)
"""


def test_what_returns_no_array_is_not_the_step_and_pjit_is_seen_though_its_name_warns(start_worker) -> None:
    worker = start_worker()
    loaded = worker.loaded(MUTE, name="mute_beside.py")
    assert (loaded.step_name, loaded.carried) == ("train", ("args[0] <- out",))
    assert loaded.others == ()
    worker.end()


UNSEEDED = """
import jax, jax.numpy as jnp, numpy as np
rng = np.random.default_rng()

@jax.jit
def train(w, x, scale, rate):
    return w + rate * scale * jnp.tanh(x @ w)

w = jnp.eye(16)
while True:
    w = train(w, rng.standard_normal((16, 16)), rng.random(dtype=np.float32), rng.random())
"""


def test_a_reference_brings_inputs_that_are_no_jax_arrays_too(start_worker) -> None:
    """A loop that draws its batches anew in every process gets the reference's, not a wrong result."""
    one, other = start_worker(), start_worker()
    for worker in (one, other):
        worker.loaded(UNSEEDED, name="unseeded.py")
        worker.compile(Variant(id="c"))
    one.numerics("c", save=True)
    assert isinstance(one.round("c").blocks[0], Block)  # which waits until the reference is written
    (other.folder / "reference.bin").write_bytes((one.folder / "reference.bin").read_bytes())
    for _ in range(2):
        assert [leaf.l2 for leaf in other.numerics("c").leaves] == [0.0, 0.0]
    assert isinstance(other.round("c").blocks[0], Block)
    assert [leaf.l2 for leaf in one.numerics("c").leaves] == [0.0, 0.0]
    for worker in (one, other):
        worker.end()
