"""`tune best`: what is known for a workload, for this place or another, and going back."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from command_line import Tune
from handoff_samples import DEFAULT, FASTER, indexed, keep_run, seal

from tuner.errors import WorkloadError
from tuner.handoff import lowering
from tuner.handoff.target import resolve
from tuner.machine import Environment
from tuner.machine.here import visible
from tuner.measure import Verdict
from tuner.protocol.failure import Failure, FailureClass
from tuner.session import FakeMachine, FakeSession, Launch, Session
from tuner.store import RunFolder

pytestmark = pytest.mark.slow

IDENTITY = {**FASTER.environment.identity, **{n: v for n, v in visible().items() if n in ("cpu", "cores")}}
MACHINE = FakeMachine(seed=1)
PROGRAM = MACHINE.code({})


def fits(**context: str) -> Environment:
    return Environment(identity=IDENTITY, context=context)


FITS = msgspec.structs.replace(FASTER, environment=fits(), program=PROGRAM)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Under an interpreter that has no packages, so that no versions differ."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to("/bin/true")
    monkeypatch.setenv("TUNER_PYTHON", str(python))
    Path("nbody.py").write_text("def build(): ...\n")
    return keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd")


def test_the_settings_are_shown_with_where_they_are_from(tune: Tune, run: RunFolder) -> None:
    seal(run, FITS)
    indexed(run)
    got = tune("best", "nbody.py")
    assert (got.code, got.err) == (0, "")
    assert got.out.startswith("nbody.py #1: faster, 2.00x (1.90–2.10); sealed ")
    assert "found by alias" in got.out
    assert "--xla_cpu_max_isa=AVX2" in got.out
    assert str(run.bundle / "0001") in got.out
    document = json.loads(tune("best", "nbody.py", "--json").out)
    assert (document["schema"], document["by"], document["number"]) == ("tuner/best/1", "alias", 1)
    assert document["env"] == {"XLA_FLAGS": FASTER.env["XLA_FLAGS"]}
    assert document["speedup"] == pytest.approx(2.0)


def test_the_next_command_finds_the_same_bundle(tune: Tune, run: RunFolder, folder: Path) -> None:
    """Also if the store was named on the command line."""
    bundle = seal(run, FITS)
    assert "use it: tune exec nbody.py --number 1 -- COMMAND\n" in tune("best", "nbody.py").out
    (folder / ".tuner").rename(folder / "my store")
    said = next(line for line in tune("best", "nbody.py", "--store", "my store").out.splitlines() if "use it" in line)
    assert said == "use it: tune exec nbody.py --number 1 --store 'my store' -- COMMAND"
    found = resolve("nbody.py", store="my store", number=bundle.manifest.number)
    assert found.bundle is not None


def test_what_the_program_was_tuned_with_is_told(tune: Tune, run: RunFolder, folder: Path) -> None:
    seal(run, FITS)
    assert "tuned with" not in tune("best", "nbody.py").out
    options = {"hold": "bodies=768", "argv": "--fast 'a b'"}
    later = keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd-2", options=options)
    seal(later, msgspec.structs.replace(FITS, number=2))
    got = tune("best", "nbody.py", "--knob", "bodies=768")
    assert "tuned with --knob bodies=768 -- --fast 'a b'\n" in got.out
    document = json.loads(tune("best", "nbody.py", "--knob", "bodies=768", "--json").out)
    assert (document["held"], document["argv"]) == ({"bodies": "768"}, "--fast 'a b'")
    assert "tuned with" not in tune("best", "nbody.py").out
    got = tune("best", "nbody.py", "--knob", "bodies=512")
    assert (got.code, got.out) == (4, "")
    assert "not tuned so, only as it stands, with bodies=768 -- --fast 'a b'" in got.err


def test_another_identity_is_no_answer_and_the_field_is_named(tune: Tune, run: RunFolder) -> None:
    seal(run)
    got = tune("best", "nbody.py")
    assert (got.code, got.out) == (4, "")
    assert f"cpu is {IDENTITY['cpu']}, not Made Up 9000" in got.err


def test_another_context_is_usable_with_a_notice(tune: Tune, run: RunFolder) -> None:
    seal(run, msgspec.structs.replace(FITS, environment=fits(kernel="Linux 1.0")))
    got = tune("best", "nbody.py")
    assert got.code == 0
    assert "usable, but measured elsewhere: kernel is " in got.err
    assert "not Linux 1.0" in got.err
    assert json.loads(tune("best", "nbody.py", "--json").out)["context_differs"]["kernel"][0] == "Linux 1.0"
    assert "kernel" not in tune("best", "nbody.py", "--quiet").err


def test_another_place_can_be_asked_for(tune: Tune, run: RunFolder, folder: Path) -> None:
    bundle = seal(run)
    indexed(run)
    key = FASTER.environment.key
    for place in (key, key[:6], "cpu=Made Up 9000,jax=0.10.2", str(bundle.path / "manifest.json")):
        assert tune("best", "nbody.py", "--for", place).code == 0, place
    got = tune("best", "nbody.py", "--for", "device_kind=NVIDIA T4")
    assert (got.code, got.out) == (4, "")
    assert "platform is gpu, not cpu" in got.err
    (folder / "x.json").write_text("[]")
    for wrong in ("ffff", "x.json", ""):
        got = tune("best", "nbody.py", "--for", wrong)
        assert (got.code, got.out) == (2, "")
        assert "where: --for" in got.err


def test_going_back(tune: Tune, run: RunFolder, folder: Path) -> None:
    seal(run, FITS)
    got = tune("best", "nbody.py", "--previous")
    assert (got.code, got.out) == (4, "")
    assert "no bundle of nbody.py before the newest" in got.err
    later = keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd-2")
    seal(later, msgspec.structs.replace(DEFAULT, environment=fits(), number=2))
    assert tune("best", "nbody.py").out.startswith("nbody.py #2: same")
    assert tune("best", "nbody.py", "--previous").out.startswith("nbody.py #1: faster")
    assert tune("best", "nbody.py", "--number", "1").out.startswith("nbody.py #1: faster")
    assert "no bundle 7 of nbody.py" in tune("best", "nbody.py", "--number", "7").err
    assert tune("best", "nbody.py", "--number", "1", "--previous").code == 2


def test_an_edited_file_is_told_and_its_program_settles_it(
    tune: Tune, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(run, FITS)
    Path("nbody.py").write_text("def build(): pass\n")
    assert "found by name" in tune("best", "nbody.py").out
    lowered = [PROGRAM]
    monkeypatch.setattr(lowering, "lowered_program", lambda *_args, **_kw: lowered[0])
    assert "found by program" in tune("best", "nbody.py", "--check").out
    lowered[0] = "another"
    got = tune("best", "nbody.py", "--check")
    assert (got.code, got.out) == (4, "")
    assert "lowers to another program" in got.err


def test_lowering_asks_a_fresh_process_under_the_default(folder: Path) -> None:
    Path("nbody.py").write_text("def build(): ...\n")
    launches = []

    def factory(launch: Launch) -> Session:
        launches.append(launch)
        return MACHINE.factory(launch)

    program = lowering.lowered_program(Path("nbody.py"), control=None, python="p", environ={}, factory=factory)
    assert program == PROGRAM
    assert launches[0].env["JAX_ENABLE_COMPILATION_CACHE"] == "false"
    assert not MACHINE.living


def test_a_default_tells_of_the_gain_before_it(tune: Tune, run: RunFolder, folder: Path) -> None:
    """A second run with less time finds less."""
    seal(run, FITS)
    assert "before it" not in tune("best", "nbody.py").out
    later = keep_run(Path(".tuner"), Path("nbody.py"), "nbody-ff12cd")
    seal(later, msgspec.structs.replace(DEFAULT, environment=fits(), number=2))
    said = tune("best", "nbody.py").out.splitlines()
    assert said[0].startswith("nbody.py #2: same")
    assert said[-1] == "the bundle before it has 2.00x (1.90–2.10): tune best nbody.py --previous"
    assert "before it" not in tune("best", "nbody.py", "--previous").out
    assert "before it" not in tune("best", "nbody.py", "--number", "2").out


def test_an_unclear_run_takes_back_no_gain_and_is_told(tune: Tune, run: RunFolder, folder: Path) -> None:
    seal(run, FITS)
    later = keep_run(Path(".tuner"), Path("nbody.py"), "nbody-ff12cd")
    seal(later, msgspec.structs.replace(DEFAULT, environment=fits(), number=2, verdict=Verdict.UNCLEAR))
    said = tune("best", "nbody.py").out.splitlines()
    assert said[0].startswith("nbody.py #1: faster")
    assert said[-1] == "run nbody-ff12cd came later and settled nothing (unclear): tune report nbody-ff12cd"
    assert json.loads(tune("best", "nbody.py", "--json").out)["later"] == {"run": "nbody-ff12cd", "verdict": "unclear"}
    assert json.loads(tune("best", "nbody.py", "--number", "1", "--json").out)["later"] is None
    assert tune("store", "gc", "--keep", "1").out.startswith(str((folder / later.bundle).resolve()))


def test_a_step_that_cannot_be_lowered_is_the_workloads_and_what_it_said_is_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = Failure(kind=FailureClass.WORKLOAD, phase="load", message="no step", log_tail=("its last words",))
    monkeypatch.setattr(FakeSession, "lower", lambda _: failure)
    with pytest.raises(WorkloadError, match="no step") as caught:
        lowering.lowered_program(Path("w.py"), control=None, python="p", environ={}, factory=MACHINE.factory)
    assert (caught.value.next, caught.value.log) == ("fix the workload", ("its last words",))
    assert not MACHINE.living


def test_a_file_that_is_not_there_and_one_never_tuned(tune: Tune, run: RunFolder) -> None:
    assert tune("best", "none.py").code == 2
    Path("new.py").write_text("")
    got = tune("best", "new.py")
    assert (got.code, got.out) == (4, "")
    assert "not tuned yet" in got.err
    assert "unfinished" in tune("best", "nbody.py").err
