"""What steps run around a trace, in a real worker: the device is as warm in the trace as where it is timed without."""

from __future__ import annotations

import pytest

from tuner.protocol.messages import Profile, ProfileReply, Variant

pytestmark = pytest.mark.jax

COUNTED = """
import pathlib, time
import jax, jax.numpy as jnp, numpy as np

calls = []
out = pathlib.Path(__file__).with_suffix(".calls")

def counted(a):
    time.sleep(0.01)
    calls.append(1)
    out.write_text(str(len(calls)))
    return np.asarray(a)

def build():
    def step(x):
        return x + jax.pure_callback(counted, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    return step, (jnp.ones(3),)
"""


def test_as_many_steps_run_before_the_traced_ones_as_before_those_that_are_timed(start_worker) -> None:
    worker = start_worker()
    worker.loaded(COUNTED, name="counted.py")
    worker.compile(Variant(id="c"))

    def count() -> int:
        return next((int(path.read_text()) for path in worker.folder.glob("**/counted.calls")), 0)

    def ran(warm_up: int, block: int) -> int:
        before = count()
        folder = worker.folder / f"out-{warm_up}-{block}"
        reply = worker.ask(Profile(id="c", steps=2, folder=str(folder), block=block, warm_up=warm_up))
        assert isinstance(reply, ProfileReply), reply
        assert min(reply.plain_s, reply.under_s) >= 0.01
        return count() - before

    least = ran(1, 1)
    assert ran(8, 1) - least == 4 * 7  # three blocks without a trace, and one in it
    assert ran(1, 6) - least == 4 * 5
    worker.close()


SHARDED = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

def build():
    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
    @jax.jit
    def step(x):
        return x + (x @ x.T).sum()
    return step, (jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, PartitionSpec("i"))),)
"""


def test_each_event_of_a_cpu_says_whose_work_it_is(start_worker) -> None:
    worker = start_worker(env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"})
    worker.loaded(SHARDED, name="sharded.py")
    worker.compile(Variant(id="c"))
    reply = worker.ask(Profile(id="c", steps=2, folder=str(worker.folder / "out")))
    assert isinstance(reply, ProfileReply), reply
    assert {label.device for label in reply.labels if label.op} == {0, 1}
    worker.close()


def test_few_steps_run_in_a_row_in_a_trace_that_they_would_make_large() -> None:
    """On all ranks alike: in steps they wait for each other."""
    from types import SimpleNamespace

    from tuner.worker.profile import _most

    alone = SimpleNamespace(gang=None)
    assert _most(alone, dense=True) == 16  # type: ignore[arg-type]
    assert _most(alone, dense=False) is None  # type: ignore[arg-type]
    for others in (False, True):
        rank = SimpleNamespace(gang=SimpleNamespace(anybody=lambda mine, others=others: mine or others))
        assert (_most(rank, dense=False) is None) is not others  # type: ignore[arg-type]
