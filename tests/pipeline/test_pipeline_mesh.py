"""Runs on several devices: the process layout, what somebody pinned, what may hang the machine."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from tuner.errors import UsageError
from tuner.measure import Verdict
from tuner.pipeline.run import Outcome
from tuner.session import FakeMachine, GangSession, Launch
from tuner.store.events import NcclRead, Notice, StageFinished
from tuner.store.records import ConfirmRecord, PresetsRecord, ProbeRecord

pytestmark = pytest.mark.slow

Tune = Callable[..., Outcome]

SPACE = """
version = 1

[[knob]]
name = "layout"
carrier = "layout"
type = "enum"
values = ["unset", "process-per-device"]
lane = "environment"
acts_on = "runtime"
when = { min_devices = 2, collectives = [] }
why = "made up: another layout"
source = "test"

[[knob]]
name = "NCCL_PROTO"
carrier = "env"
type = "list"
values = ["unset", "Simple"]
lane = "environment"
acts_on = "runtime"
when = { collectives = ["all-reduce"] }
why = "made up: a variable of NCCL"
source = "test"

[[knob]]
name = "NCCL_NVLS_ENABLE"
carrier = "env"
type = "int"
values = ["unset", "1"]
lane = "environment"
acts_on = "runtime"
risk = "hang"
why = "made up: may hang the machine"
source = "test"

[[preset]]
name = "published"
settings = { NCCL_PROTO = "Simple" }
source = "test"
"""

OUTSIDE = {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


@pytest.fixture
def mesh(tmp_path: Path, tune_on: Tune, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, list[Launch]]]:
    """A run on four devices of a made-up machine, and every launch of it."""
    space = tmp_path / "mesh.toml"
    space.write_text(SPACE)

    def run(
        effects: Mapping[tuple[str, str], float], *, env: Mapping[str, str] | None = None, **changes: object
    ) -> tuple[Outcome, list[Launch]]:
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        machine = FakeMachine(
            effects=effects, device_count=4, collectives=changes.pop("collectives", {"all-reduce": 2})
        )  # type: ignore[arg-type]
        launches: list[Launch] = []
        made = machine.factory

        def noting(launch: Launch) -> object:
            launches.append(launch)
            return made(launch)

        machine.factory = noting  # type: ignore[method-assign, assignment]
        return tune_on(machine, spaces=(str(space),), **changes), launches

    return run


def record(outcome: Outcome, kind: type[object]) -> object:
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, kind))


def left(outcome: Outcome) -> dict[str, str]:
    probe = record(outcome, ProbeRecord)
    assert isinstance(probe, ProbeRecord)
    return {status.name: status.status for status in probe.left}


def test_a_faster_layout_is_found_confirmed_and_told(mesh: Callable[..., tuple[Outcome, list[Launch]]]) -> None:
    outcome, launches = mesh({("layout", "process-per-device"): -math.log(1.2)})
    confirmed = record(outcome, ConfirmRecord)
    assert isinstance(confirmed, ConfirmRecord)
    assert confirmed.verdict is Verdict.FASTER
    assert confirmed.chosen.as_dict() == {"layout": "process-per-device"}
    assert {launch.processes for launch in launches} == {1, 4}
    for launch in launches:
        assert (launch.processes == 4) == (launch.config.get("layout") == "process-per-device")
        assert "layout" not in {name.lower() for name in launch.env}
    head = Path(outcome.files["env"]).read_text()
    assert "Start one process per device" in head
    assert "layout=" not in [line for line in head.splitlines() if not line.startswith("#")]


PRESETS = (
    """
version = 1
"""
    + "".join(
        f"""
[[knob]]
name = "xla_{kind.replace("-", "_")}"
carrier = "xla_flag"
type = "bool"
values = ["unset", "true"]
lane = "option"
acts_on = "hlo"
when = {{ min_devices = {devices}, collectives = ["{kind}"] }}
why = "made up"
source = "test"
"""
        for kind, devices in (("all-reduce", 2), ("all-gather", 2), ("all-to-all", 99))
    )
    + """
[[preset]]
name = "both"
settings = { xla_all_reduce = "true", xla_all_gather = "true" }
source = "test"

[[preset]]
name = "idle"
settings = { xla_all_gather = "true" }
source = "test"

[[preset]]
name = "larger"
settings = { xla_all_reduce = "true", xla_all_to_all = "true" }
source = "test"
"""
)


def test_a_preset_goes_without_what_acts_on_collectives_that_the_program_has_not(tmp_path: Path, tune_on: Tune) -> None:
    (tmp_path / "presets.toml").write_text(PRESETS)
    machine = FakeMachine(effects={("xla_all_reduce", "true"): -0.1}, device_count=4, collectives={"all-reduce": 2})
    outcome = tune_on(machine, spaces=(str(tmp_path / "presets.toml"),))
    presets = record(outcome, PresetsRecord)
    assert isinstance(presets, PresetsRecord)
    assert [(m.label, m.config.as_dict()) for m in presets.measured] == [("preset both", {"xla_all_reduce": "true"})]
    told = [e.text for e in outcome.events if isinstance(e, Notice) and "not raced" in e.text]
    assert told == [
        "preset idle is not raced: all that it sets acts on collectives that the program hasn't",
        "preset larger is not raced: it sets xla_all_to_all, which is not live here",
    ]


SHARES = """
version = 1

[[knob]]
name = "xla_threshold_bytes"
carrier = "xla_flag"
type = "int"
values = ["unset", "1/4", "1"]
scale = ["all-gather"]
lane = "option"
acts_on = "hlo"
why = "made up"
source = "test"
"""


def test_shares_of_the_programs_bytes_are_tried_as_numbers(tmp_path: Path, tune_on: Tune) -> None:
    (tmp_path / "shares.toml").write_text(SHARES)
    spaces = (str(tmp_path / "shares.toml"),)
    faster = {("xla_threshold_bytes", "250"): -0.1}
    machine = FakeMachine(effects=faster, device_count=4, collectives={"all-gather": 3}, collective_bytes=1000)
    outcome = tune_on(machine, spaces=spaces)
    probe = record(outcome, ProbeRecord)
    assert isinstance(probe, ProbeRecord)
    assert probe.knobs[0].values == ("unset", "250", "1000")
    confirmed = record(outcome, ConfirmRecord)
    assert isinstance(confirmed, ConfirmRecord)
    assert confirmed.chosen.as_dict() == {"xla_threshold_bytes": "250"}
    assert left(tune_on(FakeMachine(collectives={"all-reduce": 1}), spaces=spaces, fresh=True)) == {
        "xla_threshold_bytes": "inapplicable"
    }


def test_knobs_of_collectives_leave_where_there_are_none(mesh: Callable[..., tuple[Outcome, list[Launch]]]) -> None:
    outcome, _ = mesh({}, collectives={})
    assert left(outcome) == {"layout": "inapplicable", "NCCL_PROTO": "inapplicable", "NCCL_NVLS_ENABLE": "risky"}


def test_what_may_hang_the_machine_is_offered_only_when_it_is_named(
    mesh: Callable[..., tuple[Outcome, list[Launch]]],
) -> None:
    faster = {("NCCL_NVLS_ENABLE", "1"): -math.log(1.5)}
    outcome, launches = mesh(faster)
    assert left(outcome) == {"NCCL_NVLS_ENABLE": "risky"}
    assert not any("NCCL_NVLS_ENABLE" in launch.env for launch in launches)
    outcome, launches = mesh(faster, override=("NCCL_NVLS_ENABLE",))
    assert "NCCL_NVLS_ENABLE" not in left(outcome)
    assert any(launch.env.get("NCCL_NVLS_ENABLE") == "1" for launch in launches)


@pytest.mark.parametrize("launcher", ["", "srun -N 2"])
def test_no_knob_changes_what_somebody_set_outside(
    mesh: Callable[..., tuple[Outcome, list[Launch]]], launcher: str
) -> None:
    faster = {("NCCL_PROTO", "Simple"): -math.log(1.5), ("layout", "process-per-device"): -math.log(1.2)}
    outcome, launches = mesh(faster, env={**OUTSIDE, "NCCL_PROTO": "LL128"}, launch=launcher)
    assert left(outcome)["NCCL_PROTO"] == "pinned"
    pinned = {**OUTSIDE, "NCCL_PROTO": "LL128"}
    for launch in launches:
        assert not pinned.keys() & launch.env.keys()
        assert launch.launcher == tuple(launcher.split())
        if launcher:
            assert pinned.items() <= launch.pins.items()


def test_what_nccl_says_of_a_session_is_kept(
    mesh: Callable[..., tuple[Outcome, list[Launch]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "n:1:2 [0] NCCL INFO 16 coll channels, 0 nvls channels, 32 p2p channels",
        "n:1:2 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
    ]
    monkeypatch.setattr("tuner.pipeline.bench.Bench._log", lambda self: lines)
    outcome, _ = mesh({})
    said = [e for e in outcome.events if isinstance(e, NcclRead)]
    assert {(e.channels, tuple(e.ran.items())) for e in said} == {(16, (("AllReduce 1024", "RING LL"),))}
    asked = {e.config.get("NCCL_PROTO"): e.asked for e in said}
    assert asked["unset"] == ()
    assert asked["Simple"] == ("requested NCCL_PROTO=Simple, ran LL for AllReduce of 1024 bytes",)


def test_with_a_launcher_the_layout_is_the_launchers(mesh: Callable[..., tuple[Outcome, list[Launch]]]) -> None:
    outcome, launches = mesh({("layout", "process-per-device"): -math.log(1.2)}, launch="srun -N 2 --ntasks=8")
    assert left(outcome)["layout"] == "inapplicable"
    assert {launch.processes for launch in launches} == {1}


def test_a_pinned_variable_is_not_held_at_another_value_by_the_way(
    mesh: Callable[..., tuple[Outcome, list[Launch]]],
) -> None:
    with pytest.raises(UsageError, match="NCCL_PROTO is inherited as 'LL128'"):
        mesh({}, env={"NCCL_PROTO": "LL128"}, hold={"NCCL_PROTO": "Simple"})
    with pytest.raises(UsageError, match="--launch"):
        mesh({}, launch="srun 'unfinished")


REPORTS_ENVIRONMENT = """
import json, os, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def build():
    names = ("NCCL_NVLS_ENABLE", "NCCL_DEBUG", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "XLA_FLAGS", "OF_THE_LAUNCHER")
    with open({folder!r} + f"/rank{{jax.process_index()}}.json", "w") as file:
        json.dump({{name: os.environ.get(name) for name in names}}, file)
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d"))
    return lambda x: x + x.sum(), (jax.device_put(np.ones(8, np.float32), rows),)
"""

# Starts two processes as launchers do, and hands on next to nothing, as some do.
LAUNCHER = """
import os, subprocess, sys
kept = {n: v for n, v in os.environ.items() if not n.startswith(("NCCL_", "TORCH_", "XLA_", "TUNER_"))}
given = lambda rank: kept | {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "OF_THE_LAUNCHER": "here"}
ranks = [subprocess.Popen(sys.argv[1:], env=given(rank)) for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.mark.jax
@pytest.mark.parametrize("launched", [False, True], ids=["started here", "launched"])
def test_what_was_set_outside_reaches_every_real_rank(tmp_path: Path, launched: bool) -> None:
    (tmp_path / "workload.py").write_text(REPORTS_ENVIRONMENT.format(folder=str(tmp_path)))
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    launch = Launch(
        name="gang",
        role="home",
        workload=tmp_path / "workload.py",
        log=tmp_path / "logs" / "gang.log",
        python=sys.executable,
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        platform="cpu",
        processes=1 if launched else 2,
        launcher=(sys.executable, str(tmp_path / "launcher.py")) if launched else (),
        pins=OUTSIDE if launched else {},
    )
    from tuner.machine import inherited
    from tuner.session import Deadlines

    environ = {n: v for n, v in inherited().items() if not n.startswith(("XLA_", "JAX_"))} | OUTSIDE
    session = GangSession(launch, environ=environ, deadlines=Deadlines())
    try:
        loaded = session.start()
    finally:
        session.close()
    assert loaded.process_count == 2
    for rank in range(2):
        seen = msgspec.json.decode((tmp_path / f"rank{rank}.json").read_bytes())
        assert OUTSIDE.items() <= seen.items()
        assert seen["XLA_FLAGS"] == f"--xla_force_host_platform_device_count={2 if launched else 1}"
        assert seen["OF_THE_LAUNCHER"] == ("here" if launched else None)
    assert not list((tmp_path / "logs").glob("*.token"))
