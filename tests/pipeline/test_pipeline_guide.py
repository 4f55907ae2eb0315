"""`tune pgle`: one profile by itself, in processes of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tuner.errors import TunerError
from tuner.handoff.dialects import parse_raw
from tuner.knobs import Recipe
from tuner.pipeline.guide import GuideOptions, guide_workload
from tuner.profile.guided import costs_in
from tuner.protocol.failure import FailureClass
from tuner.report.guide import Guide, guide_document, render_guide
from tuner.session import FakeMachine
from tuner.session.fake import FakeSession

ON = ("pgle", "on")


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Guide, FakeMachine]]:
    """A profile on two made-up GPUs; and the machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "w.py").write_text("def build(width=8):\n    ...\n")
    plain = GuideOptions(workload=tmp_path / "w.py", folder=tmp_path / "out", platform="gpu", argv=("--mine",))

    def run(machine: dict[str, Any] | None = None, **changes: object) -> tuple[Guide, FakeMachine]:
        given = {"platform": "gpu", "device_count": 2, "collectives": {"all-reduce": 1}, **(machine or {})}
        made = FakeMachine(**given)
        return guide_workload(msgspec.structs.replace(plain, **changes), factory=made.factory), made  # type: ignore[arg-type]

    return run


def test_a_profile_is_made_judged_and_found_in_a_warmed_cache(
    guide: Callable[..., tuple[Guide, FakeMachine]], tmp_path: Path
) -> None:
    found, machine = guide(env={"XLA_FLAGS": "--xla_a=true", "GONE": None})
    assert (found.cause, found.said, found.changed, found.found) == ("", True, True, True)
    assert found.facts is not None
    assert (found.facts.covered, found.facts.operations, found.facts.traces) == (3, 3, 3)
    assert found.profile is not None
    assert costs_in(found.profile.read_bytes()).keys() == {"all-reduce-start.1", "fusion.1", "fusion.2"}
    assert found.scale == "2 fake, 1 process"
    assert found.env_file is not None
    variables = dict(parse_raw(found.env_file.read_text(), where="pgle.env"))
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "out" / "jax_cache")}
    assert variables.items() >= {**cache, "JAX_COMPILATION_CACHE_EXPECT_PGLE": "true"}.items()
    assert variables["XLA_FLAGS"] == "--xla_a=true"
    first, warm, last = (session.launch.env for session in machine.sessions)
    assert first["JAX_ENABLE_COMPILATION_CACHE"] == "false"
    assert first["JAX_ENABLE_PGLE"] is None
    assert first["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert warm["XLA_FLAGS"] == last["XLA_FLAGS"] == "--xla_a=true"
    assert not machine.living


def test_every_form_and_the_command_for_nsight_systems_are_told(
    guide: Callable[..., tuple[Guide, FakeMachine]], tmp_path: Path
) -> None:
    found, _ = guide(recipe=Recipe(runs=5, percentile=50))
    text = render_guide(found, Path("w.py"), width=100)
    assert text.startswith("the profile is used\n")
    assert "3 of 3 operations and 1 of 1 collective, from 5 runs that differ by 0 %" in " ".join(text.split())
    assert f"--xla_gpu_pgle_profile_file_or_directory_path={tmp_path}/out/profile.pb" in text
    assert "JAX_PGLE_PROFILING_RUNS=5 JAX_PGLE_AGGREGATION_PERCENTILE=50" in text
    assert f"tune profile w.py --env-file {tmp_path}/out/pgle.env --nsys" in text
    assert found.nsight[0] == "env"
    assert "JAX_COMPILATION_CACHE_EXPECT_PGLE=true" in found.nsight
    at = found.nsight.index("nsys")
    assert found.nsight[at + 1] == "profile"
    assert not any("capture-range" in word for word in found.nsight)  # the program marks nothing
    assert found.nsight[-2:] == (str(tmp_path / "w.py"), "--mine")
    document = guide_document(found)
    assert (document["active"], document["facts"]["collectives"]) == (True, 1)


@pytest.mark.parametrize(
    ("machine", "cause"),
    [
        ({"collectives": {}}, "the program has no collectives"),
        ({"pgle": "empty"}, "the profile is empty"),
        ({"pgle": "foreign"}, "of another module"),
        ({"pgle": "silent", "inert": [ON]}, "makes the same without it"),
    ],
)
def test_a_profile_of_no_use_is_told_with_its_cause(
    guide: Callable[..., tuple[Guide, FakeMachine]], machine: dict[str, Any], cause: str
) -> None:
    found, made = guide(machine)
    assert cause in found.cause
    assert cause in " ".join(render_guide(found, Path("w.py")).split())
    assert guide_document(found)["active"] is False
    assert not made.living
    assert len(made.sessions) == 1


def test_a_profile_that_changes_nothing_is_used_and_that_is_told(
    guide: Callable[..., tuple[Guide, FakeMachine]],
) -> None:
    found, _ = guide({"inert": [ON]})
    assert (found.cause, found.said, found.changed) == ("", True, False)
    assert "the same as without: nothing is gained by it" in " ".join(render_guide(found, Path("w.py")).split())


def test_a_cache_in_which_nothing_is_found_is_told(
    guide: Callable[..., tuple[Guide, FakeMachine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.session.fake_cache.FakeCache.has", lambda *_: False)
    found, _ = guide()
    assert found.found is False
    assert "a fresh process does NOT find it" in render_guide(found, Path("w.py"))


def test_a_step_that_fails_is_an_error(guide: Callable[..., tuple[Guide, FakeMachine]]) -> None:
    with pytest.raises(TunerError, match="made to fail"):
        guide({"failures": {("XLA_A", "1"): FailureClass.COMPILE}}, env={"XLA_A": "1"})


def test_nothing_is_timed(guide: Callable[..., tuple[Guide, FakeMachine]], monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    real = FakeSession.round

    def noting(self: FakeSession, arms: Any, **more: Any) -> Any:
        timed.append(self.launch.name)
        return real(self, arms, **more)

    monkeypatch.setattr(FakeSession, "round", noting)
    guide()
    assert timed == ["warm"]  # one step, so that all of its modules are in the cache
