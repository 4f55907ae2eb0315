"""The worker's own programs, kept for later sessions."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import pytest

from tuner.protocol.messages import Compile, LeafStats, Numerics, NumericsReply, Variant
from tuner.worker import groups, numerics
from tuner.worker import open as opening
from tuner.worker.compile import compile_variants
from tuner.worker.events import CompileEvents
from tuner.worker.programs import Programs
from tuner.worker.session import WorkerSession

pytestmark = pytest.mark.jax


@jax.jit
def double(x: Any) -> Any:
    return 2 * x


@jax.jit
def triple(x: Any) -> Any:
    return 3 * x


def test_a_later_session_runs_the_program_of_the_first(tmp_path: Path) -> None:
    one = jnp.ones(3)
    assert Programs().run(triple, tmp_path, one).tolist() == [3, 3, 3]
    (kept,) = tmp_path.iterdir()
    program = kept.read_bytes()
    kept.unlink()
    assert Programs().run(double, tmp_path, one).tolist() == [2, 2, 2]
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(program)  # were it compiled anew, it would double
    assert Programs().run(double, tmp_path, one).tolist() == [3, 3, 3]


def test_shapes_and_dtypes_have_programs_of_their_own(tmp_path: Path) -> None:
    programs = Programs()
    for x in (jnp.ones(3), jnp.ones(4), jnp.ones(3, jnp.bfloat16), jnp.ones(3)):
        assert programs.run(double, tmp_path, x).tolist() == [2] * x.size
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("content", [b"", b"nothing that was pickled"])
def test_a_damaged_program_is_made_anew(tmp_path: Path, content: bytes) -> None:
    Programs().run(double, tmp_path, jnp.ones(3))
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(content)
    assert Programs().run(double, tmp_path, jnp.ones(3)).tolist() == [2, 2, 2]
    assert kept.read_bytes() != content


def test_where_nothing_can_be_kept_it_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    assert Programs().run(double, tmp_path / "taken", jnp.ones(3)).tolist() == [2, 2, 2]


def test_threads_that_want_one_program_compile_it_once(tmp_path: Path) -> None:
    compiled: list[str] = []

    @jax.jit
    def slow(x: Any) -> Any:
        return jnp.linalg.svd(x)[1]

    def listen(name: str, *_: object, **__: object) -> None:
        compiled.extend([name] if "backend_compile" in name else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    programs, eye = Programs(), jnp.eye(7)
    compiled.clear()
    try:
        threads = [threading.Thread(target=programs.run, args=(slow, tmp_path, eye)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compiled) == 1


def test_what_failed_once_is_tried_again(tmp_path: Path) -> None:
    fails = True

    @jax.jit
    def moody(x: Any) -> Any:
        if fails:
            raise MemoryError("no room")
        return x

    programs = Programs()
    with pytest.raises(MemoryError, match="no room"):
        programs.run(moody, tmp_path, jnp.ones(2))
    fails = False
    assert programs.run(moody, tmp_path, jnp.ones(2)).tolist() == [1, 1]


def test_sessions_compare_results_by_one_set_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator, where leaves stay where they are."""
    monkeypatch.setattr(WorkerSession, "platform", "gpu")
    monkeypatch.setattr(groups, "_ON_DEVICE", 1)

    def session(factor: float) -> WorkerSession:
        step = jax.jit(lambda w: (factor * w, jnp.isinf(w)))
        opened = opening.open_build({"step": step, "args": (jnp.ones((4, 6)),), "carry": 1}, CompileEvents()).session
        compile_variants(opened, Compile(variants=(Variant(id="control"),)))
        return opened

    def asked(of: WorkerSession, *, save: bool = False) -> NumericsReply:
        return numerics.check_numerics(
            of, Numerics(id="control", steps=2, reference=str(tmp_path / "reference.bin"), save=save)
        )

    first, later = session(0.9), session(0.909)
    asked(first, save=True)
    first.quiet()
    kept = {path.name for path in (tmp_path / "programs").iterdir()}
    assert [leaf.l2 for leaf in asked(first).leaves] == [0, 0, 0, 0]
    # The floats after one step, and after the last, where they are compared with where they began as well; the masks.
    assert len(kept) == 3
    found = {(leaf.path, leaf.steps): leaf for leaf in asked(later).leaves}
    assert found["out[0]", 1].l2 == pytest.approx(0.01, rel=1e-3)
    assert found["out[0]", 2].l2 == pytest.approx(0.0201, rel=1e-3)
    assert found["out[0]", 2].moved_l2 == pytest.approx(0.0201 * 0.81 / 0.19, rel=1e-3)
    assert {path.name for path in (tmp_path / "programs").iterdir()} == kept


@pytest.mark.parametrize("leaves", [1, 4, 5, 6])  # alone; whole groups of two; the last lacks one; as many as a group
def test_many_leaves_of_a_kind_have_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: int) -> None:
    """And what is wrong with one leaf of a group is told of that one. What is alone and small stays on the host."""
    monkeypatch.setattr(WorkerSession, "platform", "gpu")
    monkeypatch.setattr(groups, "_ON_DEVICE", 12)
    monkeypatch.setattr(groups, "_LEAVES", 6 if leaves == 6 else 2)
    wrong = min(3, leaves - 1)

    def step(state: Any) -> Any:
        factor = jnp.array([1.01 if jax.config.jax_default_matmul_precision == "highest" else 1.0, 1.0])
        new = [w - 0.1 * w * (factor[0] if i == wrong else 1.0) for i, w in enumerate(state["w"])]
        return {"w": new, "count": state["count"] + 1, "key": jax.random.split(state["key"])[0], "no": state["no"]}

    args = {
        "w": [(i + 1) * jnp.arange(1.0, 13).reshape(3, 4) for i in range(leaves)],
        "count": jnp.int32(0),
        "key": jax.random.key(0),
        "no": jnp.zeros((0, 4)),
    }
    session = opening.open_build({"step": jax.jit(step), "args": (args,), "carry": 1}, CompileEvents()).session
    variants = (Variant(id="control"), Variant(id="wrong", jax_config={"jax_default_matmul_precision": "highest"}))
    compile_variants(session, Compile(variants=variants))

    def asked(handle: str, *, save: bool = False, nudge: int = 0) -> dict[tuple[str, int], LeafStats]:
        request = Numerics(id=handle, steps=2, reference=str(tmp_path / "reference.bin"), save=save, nudge=nudge)
        return {(leaf.path, leaf.steps): leaf for leaf in numerics.check_numerics(session, request).leaves}

    asked("control", save=True)
    session.quiet()
    assert len(list((tmp_path / "programs").iterdir())) == 2  # with and without where they began
    assert all((leaf.l2, leaf.slope, leaf.masks_equal) == (0, 0, True) for leaf in asked("control").values())
    found = asked("wrong")
    off = {path for (path, _), leaf in found.items() if leaf.l2 or leaf.moved_l2}
    assert off == {f"out['w'][{wrong}]"}
    assert found[f"out['w'][{wrong}]", 1].l2 == pytest.approx(0.001 / 0.9, rel=1e-3)
    assert found[f"out['w'][{wrong}]", 2].moved_l2 == pytest.approx(2 * 0.001 * 0.9 / 0.19, rel=1e-2)
    nudged = asked("control", nudge=1)
    assert all(0 < nudged[f"out['w'][{i}]", 2].l2 < 1e-6 for i in range(leaves))
    assert len(list((tmp_path / "programs").iterdir())) == 2


PLACED = """
import sys
from pathlib import Path
import jax, jax.monitoring, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from tuner.worker.programs import Programs
from tuner.worker.on_device import begun
from tuner.worker.on_host import compared
from tuner.worker.stats import Start
folder, devices = Path(sys.argv[1]), np.array(jax.devices())
reference = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
candidate, start = 1.01 * reference, Start(0.9 * reference, 0.9 * reference)
(host,) = compared([reference], [candidate], [start])
compiled = []
listen = lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
jax.monitoring.register_event_duration_secs_listener(listen)
for again in range(2):
    compiled.clear()
    programs = Programs()
    for placed in (
        SingleDeviceSharding(devices[2]),
        NamedSharding(Mesh(devices, "x"), P("x")),
        NamedSharding(Mesh(devices[::-1].reshape(2, 2), ("x", "y")), P("y", "x")),
        NamedSharding(Mesh(devices[2:], "x"), P(None, "x")),
        NamedSharding(Mesh(devices, "x"), P()),
    ):
        there = [jax.device_put(values, placed) for values in (candidate, reference, candidate)]
        call = lambda f, *args: programs.run(f, folder, *args)
        first, same, last = begun([reference] * 3, there, [start] * 3, run=call)()
        for found in first, last:
            assert np.allclose([found.l2, found.moved_slope], [host.l2, host.moved_slope], rtol=1e-4, atol=0), placed
        assert same.l2 == 0, placed
    print(len(compiled))
"""


def test_programs_are_kept_for_any_placement(tmp_path: Path) -> None:
    """One device that is not the first, all of them, some in another order."""
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PLACED, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=env,
    )
    assert done.stdout.split() == ["5", "0"], done.stderr
