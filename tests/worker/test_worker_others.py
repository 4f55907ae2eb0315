"""The program's other functions in a real worker: their own handles, inputs and references, beside the step's."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from worker_driver import Worker

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Compile, Compiled, Numerics, NumericsReply, Round, Variant
from tuner.worker.failures import Refused
from tuner.worker.others import stood_in
from tuner.worker.workload import workload_of

# The step donates what the evaluation is called with; the precision that a variant asks for plants a fault.
BUILD = """
import jax, jax.numpy as jnp

def build():
    w = jax.random.normal(jax.random.key(1), (6, 8))
    x = jnp.linspace(-1, 1, 30).reshape(5, 6)
    step = jax.jit(lambda w, x: w + 0.1 * jnp.tanh(x.T @ (x @ w)), donate_argnums=0)

    def evaluate(w, x):
        loss = jnp.mean((x @ w) ** 2)
        return loss * 1.01 if jax.config.jax_default_matmul_precision == "highest" else loss

    broken = jax.jit(lambda w: w.no_such_method())
    return {"step": step, "args": (w, x), "others": {"evaluate": (evaluate, (w, x)), "broken": (broken, (w,))}}
"""

SCRIPT = """
import jax, jax.numpy as jnp

@jax.jit
def evaluate(w, x):
    return jnp.mean((x @ w) ** 2)

@jax.jit
def prepare(key):
    return jax.random.normal(key, (64, 64))

@jax.jit(donate_argnums=0)
def train(w, x):
    for _ in range(20):
        w = w - 1e-3 * jnp.tanh(x.T @ (x @ w))
    return w

x = jnp.linspace(-1, 1, 64 * 64).reshape(64, 64)
w = prepare(jax.random.key(0))
for epoch in range(100):
    evaluate(w, x)
    w = train(w, x)
"""


def ask(worker: Worker, function: str, *, handle: str = "control", name: str = "other.bin", **fields: object) -> object:
    reference = str(worker.folder / name)
    return worker.ask(Numerics(id=handle, steps=1, reference=reference, function=function, **fields))  # type: ignore[arg-type]


@pytest.mark.jax
def test_a_function_is_compiled_compared_and_timed_as_the_step_is(start_worker) -> None:
    worker = start_worker()
    loaded = worker.loaded(BUILD)
    assert loaded.others == ("evaluate", "broken")
    worker.compile(Variant(id="control"))
    worker.round("control")  # from here on the step has donated the evaluation's parameters
    worker.numerics("control", save=True)

    wrong = Variant(id="wrong", jax_config={"jax_default_matmul_precision": "highest"})
    made = worker.ask(Compile(variants=(Variant(id="control"), wrong), function="evaluate")).results
    assert all(isinstance(one, Compiled) for one in made)
    assert ask(worker, "evaluate", save=True) == NumericsReply(leaves=())
    (same,) = ask(worker, "evaluate").leaves
    assert (same.path, same.l2, same.travel) == ("out", 0.0, None)
    assert ask(worker, "evaluate", nudge=1, nudge_size=1e3).leaves[0].l2 > 1e-6
    assert ask(worker, "evaluate", handle="wrong").leaves[0].l2 == pytest.approx(0.01, rel=1e-3)
    assert ask(worker, "evaluate", name="precise.bin", save=True, precise=True).precision == "float64"
    assert 0 < ask(worker, "evaluate", name="precise.bin", precise=True).leaves[0].l2 < 1e-6
    (block,) = worker.ask(Round(arms=(Arm(id="control", steps=3),), function="evaluate")).blocks
    assert isinstance(block, Block)

    failure = worker.ask(Compile(variants=(Variant(id="control"),), function="broken"))
    assert isinstance(failure, Failure)
    assert "broken can't be traced" in failure.message
    unknown = worker.ask(Compile(variants=(Variant(id="control"),), function="none"))
    assert (unknown.kind, unknown.message) == (FailureClass.PROTOCOL, "the program has no other function 'none'")

    assert max(leaf.l2 for leaf in worker.numerics("control").leaves) == 0, "the step is what it was"
    assert isinstance(worker.round("control").blocks[0], Block)

    other = start_worker()
    other.loaded(BUILD.replace("key(1)", "key(2)"))
    other.ask(Compile(variants=(Variant(id="control"),), function="evaluate"))
    (other.folder / "other.bin").write_bytes((worker.folder / "other.bin").read_bytes())
    (adopted,) = ask(other, "evaluate").leaves
    assert adopted.l2 == 0, "a function's reference brings its inputs"


@pytest.mark.jax
def test_a_scripts_other_functions_are_kept_with_arrays_that_live(start_worker) -> None:
    worker = start_worker()
    loaded = worker.loaded(SCRIPT, name="script.py")
    assert (loaded.source, loaded.step_name) == ("script", "train")
    assert set(loaded.others) == {"evaluate", "prepare"}
    worker.compile(Variant(id="control"))
    worker.round("control")
    for function in loaded.others:
        worker.ask(Compile(variants=(Variant(id="control"),), function=function))
        assert ask(worker, function, name=f"{function}.bin", save=True) == NumericsReply(leaves=())
        assert [leaf.l2 for leaf in ask(worker, function, name=f"{function}.bin").leaves] == [0.0]
    assert isinstance(worker.round("control").blocks[0], Block)


def test_others_are_named_pairs_of_a_function_and_its_arguments() -> None:
    step = {"step": abs, "args": (1,)}
    assert workload_of({**step, "others": {"f": (abs, [2])}}).others == {"f": (abs, (2,))}
    assert workload_of(step).others == workload_of({**step, "others": None}).others == {}
    for wrong in ([abs], {"": (abs, ())}, {"f": abs}, {"f": (abs,)}, {"f": (abs, 2)}):
        with pytest.raises(Refused, match="others") as caught:
            workload_of({**step, "others": wrong})
        assert caught.value.kind is FailureClass.WORKLOAD


def test_what_was_donated_is_stood_in_for_by_its_successor() -> None:
    gone, kept = jnp.ones((2, 3)), jnp.zeros(4)
    gone.delete()
    first, second, other = jnp.full((2, 3), 2.0), jnp.full((2, 3), 3.0), np.ones((2, 3))
    assert stood_in([gone, kept, 5], [other, first, second]) == (first, kept, 5)
    assert stood_in([gone], [kept, other]) is None
    assert stood_in([kept], []) == (kept,)
