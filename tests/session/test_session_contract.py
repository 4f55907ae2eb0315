"""What every session does, whatever is behind it. One suite for `LocalSession`, `GangSession`, `FakeSession` and
`ReplaySession`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from session_recorder import launch_of, record, variant_of

from tuner.errors import SessionEnded, TunerError
from tuner.knobs.config import Config
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, Block, Compiled, CompileReply, Loaded, Lowered, NumericsReply, Profile, Variant
from tuner.session.base import Launch, Session, SessionFactory
from tuner.session.deadlines import Deadlines
from tuner.session.fake_machine import FakeMachine
from tuner.session.gang import GangSession
from tuner.session.local import LocalSession
from tuner.session.replay import Replay

WORKLOAD = """
import jax.numpy as jnp

def build():
    def step(x):
        y = jnp.tanh(x @ x.T)
        return x + 0.001 * (y @ x), y.sum()
    return step, (jnp.ones((64, 64)) / 64,)
"""

FAST = Config.of({"xla_cpu_enable_fast_math": "True"})
OTHER = Config.of({"xla_llvm_disable_expensive_passes": "True"})
UNKNOWN = Config.of({"xla_no_such_option": "1"})
DOOMED = Config.of({"xla_no_such_flag": "1"})


@dataclass(frozen=True)
class Kind:
    """One implementation: its factory, and launches of a session that works and of one that can't start."""

    factory: SessionFactory
    launch: Launch
    doomed: Launch


def fake_kind() -> Kind:
    machine = FakeMachine(effects={("xla_cpu_enable_fast_math", "true"): -0.1})
    return Kind(machine.factory, launch_of(), launch_of(DOOMED, name="doomed"))


def replay_kind(folder: Path) -> Kind:
    kind = fake_kind()
    events = record(kind.factory, kind.launch, [FAST, OTHER, UNKNOWN], reference=folder / "recorded", rounds=5)
    return Kind(Replay(events).factory, kind.launch, kind.doomed)


def local_kind(folder: Path) -> Kind:
    workload = folder / "workload.py"
    workload.write_text(WORKLOAD)

    def launch(name: str, env: dict[str, str | None]) -> Launch:
        return Launch(
            name=name,
            role="home",
            workload=workload,
            log=folder / f"{name}.log",
            python=sys.executable,
            env={"XLA_FLAGS": None, **env},
            platform="cpu",
        )

    def factory(launch: Launch) -> LocalSession:
        return LocalSession(launch, environ=dict(os.environ), deadlines=Deadlines())

    return Kind(factory, launch("home", {}), launch("doomed", {"XLA_FLAGS": "--xla_no_such_flag=1"}))


MESH = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def build():
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d"))
    whole = NamedSharding(rows.mesh, P())

    def step(x):
        y = jnp.tanh(x @ x.T)
        return x + 0.001 * (y @ x), y.sum()
    return jax.jit(step, out_shardings=(rows, whole)), (jax.device_put(np.ones((64, 64), np.float32) / 64, rows),)
"""


def gang_kind(folder: Path, processes: int = 2) -> Kind:
    workload = folder / "workload.py"
    workload.write_text(MESH)
    devices = f"--xla_force_host_platform_device_count={processes}"

    def launch(name: str, flags: str) -> Launch:
        return Launch(
            name=name,
            role="home",
            workload=workload,
            log=folder / f"{name}.log",
            python=sys.executable,
            env={"XLA_FLAGS": f"{devices} {flags}"},
            platform="cpu",
            processes=processes,
        )

    def factory(launch: Launch) -> GangSession:
        return GangSession(launch, environ=dict(os.environ), deadlines=Deadlines())

    return Kind(factory, launch("home", ""), launch("doomed", "--xla_no_such_flag=1"))


KINDS = [
    "fake",
    "replay",
    pytest.param("local", marks=pytest.mark.jax),
    pytest.param("gang", marks=pytest.mark.jax),
]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    folder = tmp_path_factory.mktemp(request.param)
    kinds: dict[str, Callable[[], Kind]] = {
        "fake": fake_kind,
        "replay": lambda: replay_kind(folder),
        "local": lambda: local_kind(folder),
        "gang": lambda: gang_kind(folder),
    }
    return kinds[request.param]()


@pytest.fixture(scope="module")
def opened(kind: Kind) -> Iterator[tuple[Session, Loaded]]:
    """A started session, shared: a real one takes seconds."""
    session = kind.factory(kind.launch)
    yield session, session.start()
    session.close()


@pytest.fixture
def session(opened: tuple[Session, Loaded]) -> Session:
    return opened[0]


def compile_all(session: Session) -> CompileReply:
    return session.compile([Variant(id="control"), variant_of(FAST), variant_of(UNKNOWN), variant_of(OTHER)])


def test_start_says_what_was_found(kind: Kind, opened: tuple[Session, Loaded]) -> None:
    session, loaded = opened
    assert session.launch == kind.launch
    assert session.ended is None
    assert loaded.platform == "cpu"
    assert loaded.device_count >= 1
    assert loaded.versions["jax"]


def test_a_session_starts_only_once(session: Session) -> None:
    with pytest.raises(TunerError, match="already"):
        session.start()
    assert session.ended is None


def test_compile_gives_one_result_a_variant_in_order_and_failures_are_data(session: Session) -> None:
    results = compile_all(session).results
    assert [r.id if isinstance(r, Compiled) else None for r in results] == ["control", FAST.key, None, OTHER.key]
    failure = results[2]
    assert isinstance(failure, Failure)
    assert failure.phase == "compile"
    assert failure.message
    good = [r for r in results if isinstance(r, Compiled)]
    assert len({r.program for r in good}) == 1
    assert session.ended is None


def test_lowering_alone_tells_the_program_that_compiling_will(session: Session) -> None:
    lowered = session.lower()
    assert isinstance(lowered, Lowered)
    control = session.compile([Variant(id="control")]).results[0]
    assert isinstance(control, Compiled)
    assert lowered.program == (control.first_program or control.program)


def test_the_same_settings_compile_to_the_same_code(session: Session) -> None:
    first, second = (session.compile([variant_of(FAST)]).results[0] for _ in range(2))
    assert isinstance(first, Compiled)
    assert isinstance(second, Compiled)
    assert first.code == second.code


def test_a_round_gives_one_entry_an_arm_in_the_order_asked(session: Session) -> None:
    compile_all(session)
    arms = [Arm(id=h, steps=s) for h, s in [(FAST.key, 3), ("control", 4), (OTHER.key, 5), ("control", 4)]]
    entries = session.round(arms)
    assert [(b.id, b.steps) for b in entries if isinstance(b, Block)] == [(a.id, a.steps) for a in arms]
    assert all(b.seconds > 0 and b.first_s > 0 for b in entries if isinstance(b, Block))


def test_an_arm_that_was_never_compiled_fails_alone(session: Session) -> None:
    compile_all(session)
    bad, good = session.round([Arm(id="nobody", steps=1), Arm(id="control", steps=1)])
    assert isinstance(bad, Failure)
    assert isinstance(good, Block)


def test_numerics_compare_with_what_was_saved(session: Session, tmp_path: Path) -> None:
    compile_all(session)
    saved = session.numerics("control", steps=3, reference=tmp_path / "reference", save=True)
    assert isinstance(saved, NumericsReply)
    again = session.numerics("control", steps=3, reference=tmp_path / "reference")
    assert isinstance(again, NumericsReply)
    assert {leaf.steps for leaf in again.leaves} == {1, 3}
    assert all(leaf.masks_equal and leaf.l2 < 1e-6 and leaf.slope < 1e-6 for leaf in again.leaves)
    nudged = session.numerics("control", steps=3, reference=tmp_path / "reference", nudge=1)
    assert isinstance(nudged, NumericsReply)
    assert all(leaf.l2 < 1e-3 for leaf in nudged.leaves)


def test_numerics_of_what_was_never_compiled_are_a_failure(session: Session, tmp_path: Path) -> None:
    assert isinstance(session.numerics("nobody", steps=1, reference=tmp_path / "reference"), Failure)
    assert session.ended is None


def test_a_probe_answers_for_every_name(session: Session) -> None:
    reply = session.probe(["xla_no_such_option", "xla_cpu_enable_fast_math"])
    assert reply.types.keys() == {"xla_no_such_option", "xla_cpu_enable_fast_math"}
    assert reply.types["xla_no_such_option"] is None


def test_what_is_released_is_gone_and_the_rest_stays(session: Session) -> None:
    compile_all(session)
    before = session.release([])
    after = session.release([FAST.key, "nobody"])
    assert after < before
    gone, kept = session.round([Arm(id=FAST.key, steps=1), Arm(id=OTHER.key, steps=1)])
    assert isinstance(gone, Failure)
    assert isinstance(kept, Block)


def calls(session: Session, folder: Path) -> list[Callable[[], object]]:
    return [
        session.start,
        lambda: session.probe([]),
        session.lower,
        lambda: session.compile([]),
        lambda: session.round([]),
        lambda: session.numerics("control", steps=1, reference=folder / "r"),
        lambda: session.pgle(Variant(id="p")),
        lambda: session.profile(Profile(id="control", steps=1, folder=str(folder))),
        session.ceilings,
        lambda: session.release([]),
    ]


def test_before_its_start_a_session_answers_nothing(kind: Kind, tmp_path: Path) -> None:
    session = kind.factory(kind.launch)
    for call in calls(session, tmp_path)[1:]:
        with pytest.raises(TunerError, match="not started"):
            call()
    session.close()


def test_after_its_end_every_call_but_close_raises_the_same(kind: Kind, tmp_path: Path) -> None:
    session = kind.factory(kind.doomed)
    with pytest.raises(SessionEnded) as first:
        session.start()
    assert first.value.failure == session.ended
    for call in calls(session, tmp_path):
        with pytest.raises(SessionEnded) as later:
            call()
        assert later.value.failure == first.value.failure
    session.close()
    session.close()
    assert session.ended == first.value.failure


def test_closing_is_no_failure_and_may_be_repeated(kind: Kind, tmp_path: Path) -> None:
    session = kind.factory(kind.launch)
    session.close()
    session.close()
    assert session.ended is None
    for call in calls(session, tmp_path):
        with pytest.raises(SessionEnded):
            call()


@pytest.mark.jax
def test_a_real_session_leaves_no_process_and_blames_the_flag(tmp_path: Path) -> None:
    kind = local_kind(tmp_path)
    session = kind.factory(kind.doomed)
    before = psutil.Process().children(recursive=True)
    with pytest.raises(SessionEnded) as caught:
        session.start()
    failure = caught.value.failure
    assert (failure.kind, failure.phase, failure.exit_code) == ("unsupported", "load", 1)
    assert failure.message.endswith("Unknown flag in XLA_FLAGS: --xla_no_such_flag=1")
    assert failure.command
    assert psutil.Process().children(recursive=True) == before
