"""Scripts and build()s that compile again and again: seen in real workers, by function and by line."""

from __future__ import annotations

import re

import pytest
from worker_driver import Worker

from tuner.profile import churn
from tuner.protocol.messages import Loaded, Profile, ProfileReply, Variant

pytestmark = pytest.mark.jax

LOOP = """
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def train(w, batch):
    return w - 0.1 * (batch.T @ (batch @ w))

w = jnp.ones((8, 4))
for n in range({calls}):
    w = train(w, np.ones(({rows}, 8), np.float32))
"""
CALL = "loop.py:10"


def loaded(start_worker, source: str) -> tuple[Worker, Loaded]:
    worker = start_worker()
    return worker, worker.loaded(source, name="loop.py")


def test_a_batch_that_grows_at_each_call_is_named_with_its_line(start_worker) -> None:
    worker, found = loaded(start_worker, LOOP.format(calls=7, rows="n + 2"))
    (one,) = found.recompiled
    assert (one.name, one.compiles, one.calls, one.shapes, one.step) == ("train", 7, 7, 7, True)
    assert one.seconds > 0
    assert one.differs == "args[1]: float32[2,8], float32[3,8], float32[4,8] … float32[8,8]"
    (finding,) = churn(found.recompiled)
    assert finding.kind == "shapes"
    assert finding.where.endswith(CALL)
    assert "train is called with new shapes again and again: 7 compiles in 7 calls" in finding.text
    worker.close()


def test_a_batch_padded_to_two_sizes_is_no_alarm_but_one_of_them_is_tuned(start_worker) -> None:
    worker, found = loaded(start_worker, LOOP.format(calls=50, rows="32 if n % 2 else 64"))
    (finding,) = churn(found.recompiled)
    assert finding.kind == "variants"
    assert finding.where.endswith(CALL)
    tuned = found.inputs[1].removeprefix("args[1]: ")
    assert "train was called with 2 shapes in" in finding.text
    assert f"(args[1]: float32[64,8], float32[32,8]). One is tuned, args[1] {tuned};" in finding.text
    worker.close()


def test_of_a_steady_shape_nothing_is_said(start_worker) -> None:
    worker, found = loaded(start_worker, LOOP.format(calls=50, rows="32"))
    assert found.recompiled == ()
    worker.close()


ANEW = """
import jax, jax.numpy as jnp

def evaluate(w):
    return jax.jit(lambda v: v.sum(), inline=True)(w)

w = jnp.ones(8)
for n in range(9):
    print(evaluate(w))
"""


def test_a_function_that_is_jitted_in_the_loop_is_named(start_worker) -> None:
    worker, found = loaded(start_worker, ANEW)
    (finding,) = churn(found.recompiled)
    assert "<lambda> is jitted anew again and again: 9 compiles in 9 calls" in finding.text
    assert "jit it once, outside the loop" in finding.text
    assert finding.where.endswith("loop.py:5")
    worker.close()


OTHER = """
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def prepare(rows, step):
    return rows[:4] * step

@jax.jit
def train(w, batch):
    return w - 0.1 * (batch.T @ (batch @ w))

w = jnp.ones((8, 4))
for n in range(50):
    w = train(w, prepare(np.ones((n + 5, 8), np.float32), n))
"""


def test_another_function_in_the_loop_is_named_though_the_step_is_steady(start_worker) -> None:
    worker, found = loaded(start_worker, OTHER)
    assert found.step_name == "train"
    (finding,) = churn(found.recompiled)
    assert re.match(r"prepare is called with new shapes again and again: (\d) compiles in \1 calls", finding.text)
    assert finding.where.endswith("loop.py:14")
    worker.close()


BUILT = """
import jax, jax.numpy as jnp, numpy as np

def made(n):
    return jax.jit(lambda: jnp.arange(n * 3.0))()

sizes = iter(range(1, 10000))
calls = iter(range(1, 10000))

def now_and_then(a):
    if next(calls) % 4 == 0:
        jax.jit(lambda v: v * 2)(np.ones(next(sizes), np.float32))
    return np.asarray(a)

def build():
    for n in range(5):
        made(n + 1)
    def step(x):
        return x + jax.pure_callback(now_and_then, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    return step, (jnp.ones(3),)
"""


def test_what_build_and_the_step_compile_is_told_by_line_and_what_the_worker_compiles_is_not(start_worker) -> None:
    worker, found = loaded(start_worker, BUILT)
    (one,) = found.recompiled
    assert (one.name, one.compiles, one.calls) == ("<lambda>", 5, 0)
    assert one.where.endswith("loop.py:5")
    worker.compile(Variant(id="c"))
    reply = worker.ask(Profile(id="c", steps=1, folder=str(worker.folder / "out"), block=8))
    assert isinstance(reply, ProfileReply)
    (one,) = reply.recompiled
    assert one.where.endswith("loop.py:12")
    assert 6 <= one.compiles <= 8
    worker.close()
