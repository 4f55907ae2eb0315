"""Verifying a bundle: each thing that may not hold any more is found, on a made-up machine and, once, on a real one."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from tuner.errors import TunerError, UsageError
from tuner.handoff import Bundle, load_bundle, sealing
from tuner.handoff.doctor.finding import Finding
from tuner.handoff.verify import FIELDS, verify, why_missed
from tuner.pipeline.options import RunOptions
from tuner.pipeline.run import tune
from tuner.protocol.messages import CacheModule
from tuner.session import Deadlines, FakeMachine, FakeSession, Launch, LocalSession

pytestmark = pytest.mark.slow

SPACE = """
version = 1

[[knob]]
name = "xla_good"
carrier = "xla_flag"
type = "bool"
values = ["unset", "true"]
lane = "option"
acts_on = "hlo"
why = "made up: faster"
source = "test"
"""


def machine(effect: float = -0.3, **kwargs: object) -> FakeMachine:
    return FakeMachine(effects={("xla_good", "true"): effect}, seed=1, **kwargs)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A workload and its bundle, as the pipeline leaves them."""
    folder = tmp_path_factory.mktemp("sealed")
    (folder / "space.toml").write_text(SPACE)
    (folder / "w.py").write_text("def build():\n    raise RuntimeError('never executed')\n")
    fake = machine()
    options = RunOptions(
        workload=folder / "w.py",
        spaces=(str(folder / "space.toml"),),
        platform="cpu",
        store=str(folder / "store"),
        budget_s=200.0,
        python=sys.executable,
        command=("tune", "w.py"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))  # a device lock of its own
        done = tune(options, factory=fake.factory, clock=fake.now)
    return folder / "w.py", done.folder / "bundle" / "0001"


@pytest.fixture
def bundle(sealed: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy elsewhere, to be spoilt."""
    shutil.copytree(sealed[1], tmp_path / "copy")
    return tmp_path / "copy"


def checked(bundle: Bundle, workload: Path, fake: FakeMachine) -> dict[str, Finding]:
    found = verify(bundle, workload, python=sys.executable, environ={}, factory=fake.factory, clock=fake.now)
    findings = {finding.check: finding for finding in found}
    assert not fake.living
    return findings


def levels(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.level for name, finding in findings.items() if name != "place"}


GOOD = {"flags": "ok", "program": "ok", "cache": "ok", "numbers": "ok", "gain": "ok"}


def test_what_holds_holds_also_elsewhere(sealed: tuple[Path, Path], bundle: Path) -> None:
    for path in (sealed[1], bundle):
        findings = checked(load_bundle(path), sealed[0], machine())
        assert levels(findings) == GOOD
        assert "sealed with 1.3" in findings["gain"].what


def test_a_step_of_other_work_is_held_against_the_default_at_that_work(sealed: tuple[Path, Path]) -> None:
    whole, many = load_bundle(sealed[1]), ("batch", "64")
    best = msgspec.structs.replace(whole.best, workload_knobs={"batch": 64})
    objective = msgspec.structs.replace(whole.manifest.objective, name="throughput")
    manifest = msgspec.structs.replace(whole.manifest, objective=objective)
    bundle = msgspec.structs.replace(whole, best=best, manifest=manifest)

    def found(**kwargs: object) -> dict[str, Finding]:
        effects = {("xla_good", "true"): -0.3, many: math.log(2)}
        fake = FakeMachine(effects=effects, works={frozenset(): 16.0, many: 64.0}, seed=1, **kwargs)  # type: ignore[arg-type]
        return checked(bundle, sealed[0], fake)

    right = found()
    assert (right["numbers"].level, right["gain"].level) == ("ok", "ok")
    assert right["gain"].what.startswith("2.7")  # four times the work in twice the time, and the setting's 1.35
    assert found(wrong={("xla_good", "true"): 0.1})["numbers"].level == "fail"


def test_a_layout_is_verified_over_as_many_processes_as_it_has(sealed: tuple[Path, Path]) -> None:
    whole = load_bundle(sealed[1])
    assert whole.manifest.control is not None
    place = whole.manifest.environment
    place = msgspec.structs.replace(place, identity={**place.identity, "device_count": "4"})
    settings = {**whole.manifest.settings, "layout": "process-per-device"}
    manifest = msgspec.structs.replace(whole.manifest, settings=settings, environment=place)
    launched: list[Launch] = []

    def started(control_launch: str) -> set[tuple[str, int, tuple[str, ...]]]:
        launched.clear()
        fake = machine(device_count=4)
        control = msgspec.structs.replace(whole.manifest.control, launch=control_launch)
        bundle = msgspec.structs.replace(whole, manifest=msgspec.structs.replace(manifest, control=control))

        def factory(launch: Launch) -> FakeSession:
            launched.append(launch)
            return fake.factory(launch)

        for _ in verify(
            bundle, sealed[0], python=sys.executable, environ={"NCCL_DEBUG": "WARN"}, factory=factory, clock=fake.now
        ):
            pass
        return {(launch.name, launch.processes, launch.launcher) for launch in launched}

    assert started("") == {("default", 1, ()), ("tuned", 4, ())}
    assert all(launch.pins == {} for launch in launched)
    assert started("srun -N 2") == {("default", 1, ("srun", "-N", "2")), ("tuned", 1, ("srun", "-N", "2"))}
    assert all(launch.pins["NCCL_DEBUG"] == "WARN" for launch in launched)
    assert all(launch.log.is_relative_to(sealed[1].parent) for launch in launched)
    assert [path.name for path in sealed[1].parent.iterdir()] == [sealed[1].name]


def test_verifying_changes_nothing(sealed: tuple[Path, Path], bundle: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in bundle.rglob("*")}
    checked(load_bundle(bundle), sealed[0], machine())
    assert {p: p.stat().st_mtime_ns for p in bundle.rglob("*")} == before


def test_a_gain_that_is_gone_is_found(sealed: tuple[Path, Path]) -> None:
    findings = checked(load_bundle(sealed[1]), sealed[0], machine(effect=0.02))
    assert levels(findings) == GOOD | {"gain": "fail"}
    assert findings["gain"].what.startswith("gone: ")


def test_a_gain_that_is_smaller_is_told(sealed: tuple[Path, Path]) -> None:
    findings = checked(load_bundle(sealed[1]), sealed[0], machine(effect=-0.15))
    assert levels(findings) == GOOD | {"gain": "warn"}
    assert findings["gain"].what.startswith("smaller than it was: ")


def test_a_flag_that_is_no_more_ends_it_with_the_flags_name(sealed: tuple[Path, Path]) -> None:
    findings = checked(load_bundle(sealed[1]), sealed[0], machine(unsupported=("xla_good",)))
    assert levels(findings) == {"flags": "fail"}
    assert "xla_good" in findings["flags"].what


def test_wrong_numbers_are_found_and_no_gain_is_measured(sealed: tuple[Path, Path]) -> None:
    findings = checked(load_bundle(sealed[1]), sealed[0], machine(wrong={("xla_good", "true"): 0.1}))
    assert levels(findings) == {"flags": "ok", "program": "ok", "cache": "ok", "numbers": "fail"}


def test_an_entry_that_is_gone_is_named(sealed: tuple[Path, Path], bundle: Path) -> None:
    loaded = load_bundle(bundle)
    for entry in (bundle / "jax_cache").iterdir():
        entry.unlink()
    with pytest.raises(TunerError):
        load_bundle(bundle)
    findings = checked(loaded, sealed[0], machine())
    assert findings["cache"].level == "fail"
    assert "jit_step: sealed, but the entry is gone" in findings["cache"].what


def test_another_program_is_found(sealed: tuple[Path, Path]) -> None:
    loaded = load_bundle(sealed[1])
    other = msgspec.structs.replace(loaded, manifest=msgspec.structs.replace(loaded.manifest, program="other"))
    findings = checked(other, sealed[0], machine())
    assert findings["program"].level == "fail"


def test_another_place_is_named(sealed: tuple[Path, Path]) -> None:
    loaded = load_bundle(sealed[1])
    place = loaded.manifest.environment
    there = msgspec.structs.replace(place, identity={**place.identity, "jaxlib": "0.0.1"})
    other = msgspec.structs.replace(loaded, manifest=msgspec.structs.replace(loaded.manifest, environment=there))
    assert "not 0.0.1" in checked(other, sealed[0], machine())["place"].what


def test_a_bundle_of_an_older_version_is_refused(sealed: tuple[Path, Path]) -> None:
    loaded = load_bundle(sealed[1])
    old = msgspec.structs.replace(loaded, manifest=msgspec.structs.replace(loaded.manifest, control=None))
    with pytest.raises(UsageError, match="sealed without what verifying takes"):
        checked(old, sealed[0], machine())


# -- a real cache ------------------------------------------------------------------------------------------------------

REAL = """
import jax, jax.numpy as jnp


def build():
    return jax.jit(lambda x: jnp.tanh(x @ x)), (jnp.eye(64),)
"""


def test_modules_that_are_missed_for_one_reason_are_named_together() -> None:
    def modules(flags: str, *names: str) -> list[CacheModule]:
        fields = {"XLA flags": flags, "compression": "yes"}
        return [CacheModule(module=f"jit_{n}", key=f"{n}-{flags}", hit=False, fields=fields) for n in names]

    sealed = modules("old", "a", "b", "c", "d")
    missed = [*modules("new", "a", "b", "c", "d"), *modules("old", "a"), *modules("new", "e")]
    reasons = why_missed(sealed, missed).split("; ")
    assert reasons == [
        f"jit_a, jit_b, jit_c and 1 more: another XLA flags ({FIELDS['XLA flags']})",
        "jit_a: sealed, but the entry is gone or can't be read",
        "jit_e: not sealed under this name",
    ]


@pytest.mark.jax
def test_the_part_of_the_key_that_differs_is_named_and_home_and_folder_do_not_matter(tmp_path: Path) -> None:
    """A real process fills a cache. It is copied, and loaded from another folder with another home, then with other
    flags and another number of devices."""
    workload = tmp_path / "w.py"
    workload.write_text(REAL)
    environ = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))} | {"JAX_PLATFORMS": "cpu"}

    def modules(env: dict[str, str | None], name: str):  # type: ignore[no-untyped-def]
        from tuner.protocol.messages import Variant

        launch = Launch(
            name=name, role="seal", workload=workload, log=tmp_path / f"{name}.log", python=sys.executable, env=env
        )
        session = LocalSession(launch, environ=environ, deadlines=Deadlines())
        try:
            session.start()
            return session.compile([Variant(id="control")]).modules
        finally:
            session.close()

    first = modules(sealing(tmp_path / "cache"), "first")
    assert first
    assert not any(module.hit for module in first)
    shutil.move(tmp_path / "cache", tmp_path / "else where")
    (tmp_path / "home").mkdir()
    moved = sealing(tmp_path / "else where")
    again = modules({**moved, "HOME": str(tmp_path / "home")}, "again")
    assert [m.key for m in again if m.hit] == [m.key for m in first]

    for flags, part in (
        ("--xla_cpu_enable_fast_math=true", "XLA flags"),
        ("--xla_force_host_platform_device_count=2", "accelerator_config"),
    ):
        other = modules({**moved, "XLA_FLAGS": flags}, part.replace(" ", "-"))
        (step,) = [m for m in other if m.module == [f.module for f in first][-1]]
        assert not step.hit
        assert part in why_missed(first, [step])
