"""GangSession: over stub ranks every way to end, over real ones under jax what only those can do."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import psutil
import pytest

from tuner.errors import SessionEnded
from tuner.handoff.cache import gathered, loading, production, sealing
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Compiled, Loaded, NumericsReply, Variant
from tuner.session.base import Launch
from tuner.session.deadlines import Deadlines
from tuner.session.gang import GangSession
from tuner.session.local import LocalSession

Stub = Callable[..., Path]

# Makes the stub a rank of a gang; `rank` and `size` are its.
_RANK = """
import threading
rank, size = map(int, os.environ["TUNER_WORKER_RANK"].split("/"))
whole = threading.Lock()

def progress(steps, waiting=False):
    send({"progress": {"op": "round", "subject": "a", "steps": steps, "waiting": waiting}})
"""
_HELLO = 'hello(rank=rank, size=size, host="here", address="127.0.0.1:1" if rank == 0 else "")'


@pytest.fixture
def gang(tmp_path: Path, stub: Stub, nothing_left: None) -> Iterator[Callable[..., GangSession]]:
    """Makes gangs of stub ranks; `deed` is Python that each runs before its hello."""
    sessions: list[GangSession] = []

    def make(deed: str = "", *, processes: int = 3, wrapper: tuple[str, ...] = (), **limits: float) -> GangSession:
        launch = Launch(
            name="gang",
            role="home",
            workload=tmp_path / "workload.py",
            log=tmp_path / "logs" / "gang.log",
            python=str(stub(_RANK + textwrap.dedent(deed), hello=_HELLO)),
            env={},
            processes=processes,
        )
        deadlines = Deadlines(**limits)
        session = GangSession(launch, environ={"PATH": os.defpath}, deadlines=deadlines, wrapper=wrapper)
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        session.close()


def ended_by(session: GangSession, call: Callable[[], object]) -> Failure:
    with pytest.raises(SessionEnded) as caught:
        call()
    assert caught.value.failure == session.ended
    return caught.value.failure


def round_of(session: GangSession) -> Callable[[], object]:
    session.start()
    return lambda: session.round([Arm(id="a", steps=3)])


@pytest.mark.slow
def test_every_rank_has_a_wrapper_of_its_own(gang: Callable[..., GangSession], tmp_path: Path) -> None:
    session = gang(wrapper=("bash", "-c", f'"$0" "$@"; touch {tmp_path}/report-$$'))
    session.start()
    session.close()
    assert session.ended is None
    assert len([*tmp_path.glob("report-*")]) == 3


@pytest.mark.slow
def test_every_rank_is_told_the_same_and_the_slowest_counts(gang: Callable[..., GangSession]) -> None:
    deed = """
        def handle(request):
            reply = answer(request)
            for block in reply.get("blocks", ()):
                block["seconds"] = 1.0 + (rank == 1)
            return {"ok": reply}
    """
    session = gang(deed)
    session.start()
    (compiled,) = session.compile([Variant(id="a")]).results
    assert isinstance(compiled, Compiled)
    (block,) = session.round([Arm(id="a", steps=3)])
    assert isinstance(block, Block)
    assert block.seconds == 2.0
    assert session.release(["a"]) == 0
    session.close()
    assert session.ended is None


@pytest.mark.slow
def test_each_rank_learns_its_place_and_who_coordinates(gang: Callable[..., GangSession], tmp_path: Path) -> None:
    deed = f"""
        def handle(request):
            if request["op"] == "load":
                with open("{tmp_path}/" + str(rank), "w") as file:
                    json.dump(request["gang"], file)
            return {{"ok": answer(request)}}
    """
    gang(deed, processes=2).start()
    told = [eval((tmp_path / str(rank)).read_text(), {"true": True, "false": False}) for rank in range(2)]
    assert [(t["rank"], t["size"], t["seat"], t["neighbours"]) for t in told] == [(0, 2, 0, 2), (1, 2, 1, 2)]
    assert {t["coordinator"] for t in told} == {"127.0.0.1:1"}
    assert all(t["divide_cpu"] for t in told)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_dies_ends_the_gang_at_once_with_its_last_step(
    gang: Callable[..., GangSession], victim: int
) -> None:
    deed = f"""
        def handle(request):
            if request["op"] == "round":
                progress(7 if rank == {victim} else 8)
                if rank == {victim}:
                    time.sleep(0.3)
                    print("F0101 00:00:00.000000 1 x.cc:1] Check failed: bad link", flush=True)
                    os.kill(os.getpid(), signal.SIGSEGV)
                time.sleep(60)
            return {{"ok": answer(request)}}
    """
    session = gang(deed)
    call = round_of(session)
    began = time.monotonic()
    failure = ended_by(session, call)
    assert time.monotonic() - began < 10
    assert (failure.kind, failure.rank, failure.signal) == (FailureClass.CRASH, victim, "SIGSEGV")
    assert (failure.phase, failure.steps) == ("round", 7)
    assert failure.message.endswith("Check failed: bad link")
    assert ended_by(session, lambda: session.release([])) == failure


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_when_time_is_up(gang: Callable[..., GangSession]) -> None:
    deed = """
        def handle(request):
            if request["op"] == "round":
                while True:
                    progress(5 if rank == 1 else 9, waiting=rank != 1)
                    time.sleep(0.2)
            return {"ok": answer(request)}
    """
    session = gang(deed, first_steps_s=1.0)
    failure = ended_by(session, round_of(session))
    assert (failure.kind, failure.rank, failure.steps) == (FailureClass.TIMEOUT, 1, 5)
    assert "rank 1 is behind at step 5" in failure.message


@pytest.mark.slow
def test_a_rank_that_fails_alone_ends_the_gang_before_time_is_up(gang: Callable[..., GangSession]) -> None:
    """It answers; the others wait for it in a collective."""
    deed = """
        def handle(request):
            if request["op"] == "round" and rank == 2:
                return {"failure": {"kind": "runtime", "phase": "round", "message": "no", "rank": 2}}
            if request["op"] == "round":
                time.sleep(60)
            return {"ok": answer(request)}
    """
    session = gang(deed)
    call = round_of(session)
    began = time.monotonic()
    failure = ended_by(session, call)
    assert time.monotonic() - began < 10
    assert (failure.kind, failure.rank, failure.message) == (FailureClass.RUNTIME, 2, "no")


@pytest.mark.slow
def test_a_rank_that_never_comes_up_is_named(gang: Callable[..., GangSession]) -> None:
    session = gang("if rank == 1:\n  print('no such library', flush=True)\n  os._exit(3)")
    failure = ended_by(session, session.start)
    assert (failure.phase, failure.rank, failure.exit_code) == ("start", 1, 3)


@pytest.mark.slow
def test_a_gang_can_be_closed_in_the_middle_of_a_call(gang: Callable[..., GangSession]) -> None:
    """As after Ctrl-C: nothing may be left (the fixture looks)."""
    session = gang(
        "def handle(request):\n  if request['op'] == 'round': time.sleep(60)\n  return {'ok': answer(request)}"
    )
    call = round_of(session)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), 2))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call()
    session.close()
    assert time.monotonic() - began < 8
    assert session.ended is None


# --- under jax ------------------------------------------------------------------------------------------------------

_MESH = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

{before}
def build():
    if jax.process_count() > 1:
        jax.distributed.initialize()  # has been done: does nothing
    mesh = Mesh(np.array(jax.devices()), ("d",))
    rows, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
    weights = jax.device_put(np.linspace(-0.1, 0.1, 64 * 32, dtype=np.float32).reshape(64, 32), rows)
    keys = jax.jit(lambda: jax.random.key(1), out_shardings=whole)()

    def step(weights, key, batch):
        noise = jax.random.normal(key, batch.shape)
        loss = lambda w: jnp.mean(jnp.tanh((batch + 0.1 * noise) @ w) ** 2)
        value, slope = jax.value_and_grad(loss)(weights)
        return weights - {rate} * slope, jax.random.split(key)[0], value
    batch = jax.device_put(np.ones((16, 64), np.float32), rows)
    return {{"step": jax.jit(step, donate_argnums=(0, 1), out_shardings=(rows, whole, whole)),
            "args": (weights, keys, batch), "carry": 2,
            "check": lambda one, other: bool(jnp.allclose(one[0], other[0], atol=1e-5))}}
"""


@pytest.fixture
def real(tmp_path: Path, nothing_left: None) -> Iterator[Callable[..., GangSession]]:
    """Makes gangs of real workers on this machine's CPU."""
    sessions: list[GangSession] = []

    def make(
        *,
        before: str = "",
        rate: str = "0.1",
        processes: int = 2,
        env: Mapping[str, str | None] | None = None,
        fills_cache: bool = False,
        **limits: float,
    ) -> GangSession:
        workload = tmp_path / "workload.py"
        workload.write_text(_MESH.format(before=before, rate=rate))
        launch = Launch(
            name="gang",
            role="home",
            workload=workload,
            log=tmp_path / "gang.log",
            python=sys.executable,
            env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4", **(env or {})},
            platform="cpu",
            processes=processes,
            fills_cache=fills_cache,
        )
        environ = {n: v for n, v in os.environ.items() if not n.startswith(("XLA_", "JAX_"))}
        session = GangSession(launch, environ=environ, deadlines=Deadlines(**limits))
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        session.close()


def rank_pid(rank: int) -> int:
    """The process of a rank, by what it was given."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # what other tests left to be reaped
            if child.environ().get("TUNER_WORKER_RANK", "").startswith(f"{rank}/"):
                return child.pid
    raise AssertionError(f"there is no rank {rank}")


@pytest.mark.jax
def test_real_ranks_hold_their_parts_and_one_that_dies_ends_all(
    real: Callable[..., GangSession], tmp_path: Path
) -> None:
    session = real()
    loaded = session.start()
    assert (loaded.process_count, loaded.device_count) == (2, 4)
    assert loaded.input_bytes == 64 * 32 + 16 * 64 + 8  # a device's: a quarter of the rows, the key whole
    fast = Variant(id="fast", compiler_options={"xla_cpu_enable_fast_math": True})
    wrong = Variant(id="wrong", compiler_options={"xla_no_such_option": "1"})
    control, failed, made = session.compile([Variant(id="control"), wrong, fast]).results
    assert isinstance(control, Compiled)
    assert isinstance(made, Compiled)
    assert control.collectives
    assert control.schedule
    assert control.ranks_differ == ()
    assert isinstance(failed, Failure)
    assert failed.kind is FailureClass.UNSUPPORTED
    first, second = session.round([Arm(id="control", steps=2), Arm(id="fast", steps=2, quantile=0.5)])
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    assert len(first.ranks_s) == 2
    assert first.step_s == max(first.ranks_s)
    reference = tmp_path / "reference.bin"
    assert isinstance(session.numerics("control", steps=3, reference=reference, save=True), NumericsReply)
    again = session.numerics("fast", steps=3, reference=reference)
    assert isinstance(again, NumericsReply)
    assert again.check is True
    assert all(leaf.l2 < 1e-4 and leaf.masks_equal for leaf in again.leaves)
    assert next(leaf for leaf in again.leaves if leaf.steps == 3).travel
    # Files appear in their own time: until then a rank has its reference in memory, and never takes another's for it.
    (tmp_path / "reference.bin.rank1").unlink()
    assert session.numerics("fast", steps=3, reference=reference) == again
    nudged = session.numerics("control", steps=3, reference=reference, nudge=1)
    assert isinstance(nudged, NumericsReply)
    assert all(leaf.l2 < 1e-4 for leaf in nudged.leaves)
    assert any(leaf.l2 > 0 for leaf in nudged.leaves)
    victim = rank_pid(1)
    threading.Timer(0.7, lambda: os.kill(victim, 11)).start()
    began = time.monotonic()
    failure = ended_by(session, lambda: session.round([Arm(id="control", steps=1_000_000)]))
    assert time.monotonic() - began < 30
    assert (failure.kind, failure.rank, failure.signal) == (FailureClass.CRASH, 1, "SIGSEGV")
    assert failure.steps is not None
    assert failure.steps > 10


@pytest.mark.jax
def test_real_ranks_that_differ_fail_before_anything_runs_and_live_on(real: Callable[..., GangSession]) -> None:
    session = real(rate="(0.1 + jax.process_index())")
    session.start()
    (failure,) = session.compile([Variant(id="control")]).results
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.rank) == (FailureClass.DIVERGED, 1)
    assert "rank 1 differs from rank 0 in its program" in failure.message
    assert session.ended is None


_PRODUCTION = """
import importlib.util, json, sys
import jax
rank, port, workload = int(sys.argv[1]), sys.argv[2], sys.argv[3]
counts = {"requests": 0, "hits": 0}
def listen(event, **_):
    counts["requests"] += event == "/jax/compilation_cache/compile_requests_use_cache"
    counts["hits"] += event == "/jax/compilation_cache/cache_hits"
jax.monitoring.register_event_listener(listen)
initialize = jax.distributed.initialize
initialize(f"127.0.0.1:{port}", 2, rank)
jax.distributed.initialize = lambda: None
spec = importlib.util.spec_from_file_location("workload", workload)
module = importlib.util.module_from_spec(spec); sys.modules["workload"] = module; spec.loader.exec_module(module)
built = module.build()
jax.block_until_ready(built["step"](*built["args"]))
print(json.dumps(counts))
"""


@pytest.mark.jax
def test_a_gang_seals_what_every_rank_compiles_and_production_finds_it_on_every_rank(
    real: Callable[..., GangSession], tmp_path: Path
) -> None:
    cache, control = tmp_path / "cache", [Variant(id="c")]
    filling = real(env=sealing(cache), fills_cache=True)
    filling.start()
    filled = filling.compile(control)
    filling.close()
    assert {module.rank for module in filled.modules} == {0, 1}
    assert (cache / "rank-1").is_dir()
    gathered(cache)
    assert not (cache / "rank-1").exists()

    loads = real(env=loading(cache))
    loads.start()
    found = loads.compile(control)
    assert found.cache_requests == found.cache_hits == 2
    by_rank = [sum(module.rank == rank and module.hit for module in found.modules) for rank in (0, 1)]
    assert by_rank[0] == by_rank[1] > 1
    assert all(module.hit for module in found.modules)
    loads.close()

    moved = cache.rename(tmp_path / "moved")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    environ = {n: v for n, v in os.environ.items() if not n.startswith(("XLA_", "JAX_"))}
    environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2", **production(moved)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _PRODUCTION, str(rank), port, str(tmp_path / "workload.py")],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        counts = [json.loads(rank.communicate(timeout=120)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert all(count["hits"] == count["requests"] > 1 for count in counts), counts


@pytest.mark.jax
def test_a_real_rank_that_stops_is_named_when_time_is_up(real: Callable[..., GangSession]) -> None:
    session = real()
    session.start()
    session.compile([Variant(id="control")])
    session._deadlines = Deadlines(first_steps_s=5.0)
    victim = rank_pid(1)
    threading.Timer(0.5, lambda: os.kill(victim, 19)).start()
    failure = ended_by(session, lambda: session.round([Arm(id="control", steps=1_000_000)]))
    assert (failure.kind, failure.rank) == (FailureClass.TIMEOUT, 1)
    assert "rank 1 gave no sign of life" in failure.message
    assert failure.steps is not None


@pytest.mark.jax
@pytest.mark.slow
def test_four_ranks_agree_and_one_whose_build_raises_is_named(real: Callable[..., GangSession], tmp_path: Path) -> None:
    session = real(processes=4)
    alone = LocalSession(
        msgspec.structs.replace(session.launch, name="alone", log=tmp_path / "alone.log", processes=1),
        environ={n: v for n, v in os.environ.items() if not n.startswith(("XLA_", "JAX_"))},
        deadlines=Deadlines(),
    )
    reference = tmp_path / "reference.bin"
    try:
        assert alone.start().process_count == 1
        alone.compile([Variant(id="control")])
        assert isinstance(alone.numerics("control", steps=3, reference=reference, save=True), NumericsReply)
    finally:
        alone.close()
    loaded = session.start()
    assert isinstance(loaded, Loaded)
    assert (loaded.process_count, loaded.device_count) == (4, 4)
    assert isinstance(session.compile([Variant(id="control")]).results[0], Compiled)
    (block,) = session.round([Arm(id="control", steps=2)])
    assert isinstance(block, Block)
    assert len(block.ranks_s) == 4
    # Each rank holds its part against what one process made of the whole: that is how another layout is gated.
    compared = session.numerics("control", steps=3, reference=reference)
    assert isinstance(compared, NumericsReply)
    assert compared.check is True
    assert all(leaf.l2 < 1e-5 and leaf.masks_equal for leaf in compared.leaves)
    session.close()
    broken = real(before="if jax.process_index() == 3: raise RuntimeError('no data here')", processes=4)
    failure = ended_by(broken, broken.start)
    assert (failure.kind, failure.rank) == (FailureClass.WORKLOAD, 3)
    assert "no data here" in failure.message
