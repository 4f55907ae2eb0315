"""`tune export`: a result in a consumer's dialect, and what is said where there is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from command_line import Tune
from handoff_samples import DEFAULT, FASTER, FLAGS, indexed, keep_run, seal

from tuner.cli.export import FORMATS
from tuner.handoff import DIALECTS
from tuner.handoff.dialects import parse_raw
from tuner.measure.types import Verdict
from tuner.store import RunFolder

SET = msgspec.structs.replace(FASTER, unset=())


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    Path("nbody.py").write_text("def build(): ...\n")
    return keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd")


def test_the_command_knows_every_dialect() -> None:
    assert tuple(DIALECTS) == FORMATS


@pytest.mark.parametrize("target", ["nbody-ab12cd", "nbody.py"])
def test_every_format_is_written_to_standard_output(tune: Tune, run: RunFolder, target: str) -> None:
    seal(run, SET)
    indexed(run)
    for form in FORMATS:
        got = tune("export", target, "--format", form)
        assert got.code == 0
        assert "xla_cpu_max_isa" in got.out
        assert bool(got.err) == (not DIALECTS[form].comments)
        if not DIALECTS[form].comments:
            assert "2.000x the default's speed, 95% interval 1.900x to 2.100x" in got.err
            assert "Load: " in got.err


def test_a_file_of_that_name_is_replaced_and_names_itself(tune: Tune, run: RunFolder, folder: Path) -> None:
    seal(run, SET)
    out = folder / "prod.env"
    out.write_text("old")
    got = tune("export", "nbody-ab12cd", "--format", "docker", "--out", "prod.env")
    assert (got.code, got.out) == (0, "")
    assert "wrote prod.env for docker run --env-file" in got.err
    assert parse_raw(out.read_text()) == {"XLA_FLAGS": FLAGS}
    assert "docker run --env-file prod.env" in out.read_text()
    assert [p.name for p in folder.iterdir() if "prod" in p.name] == ["prod.env"]


def test_a_folder_that_is_not_there_is_said(tune: Tune, run: RunFolder) -> None:
    seal(run, SET)
    got = tune("export", "nbody-ab12cd", "--format", "docker", "--out", "none/prod.env")
    assert got.code == 2
    assert "can't be written: No such file or directory" in got.err
    assert "where: none/prod.env" in got.err


@pytest.mark.parametrize("verdict", [Verdict.SAME, Verdict.UNCLEAR, Verdict.UNSTABLE])
@pytest.mark.parametrize("form", [f for f in FORMATS if DIALECTS[f].comments])
def test_without_a_gain_the_file_holds_the_default_and_says_so(
    tune: Tune, run: RunFolder, form: str, verdict: Verdict
) -> None:
    from tuner.handoff import Options

    seal(run, msgspec.structs.replace(DEFAULT, verdict=verdict), options=Options())
    got = tune("export", "nbody-ab12cd", "--format", form)
    assert got.code == 0
    assert f"# Verdict {verdict.value}: " in got.out
    assert "holds the default" in got.out
    assert "xla_cpu" not in got.out


def test_what_cannot_be_unset_is_said_on_the_screen_too(tune: Tune, run: RunFolder) -> None:
    seal(run)
    got = tune("export", "nbody-ab12cd", "--format", "docker")
    assert got.err == "tune: docker can't unset variables: JAX_DEFAULT_MATMUL_PRECISION must not be set\n"
    assert tune("export", "nbody-ab12cd", "--format", "docker", "--quiet").err == ""
    assert tune("export", "nbody-ab12cd", "--format", "shell").err == ""


def test_flags_of_this_environment_are_merged_on_demand(
    tune: Tune, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(run, SET)
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1 --xla_cpu_max_isa=AVX512")
    assert parse_raw(tune("export", "nbody-ab12cd", "--format", "docker").out) == {"XLA_FLAGS": FLAGS}
    got = tune("export", "nbody-ab12cd", "--format", "docker", "--merge-flags")
    assert parse_raw(got.out) == {"XLA_FLAGS": f"--xla_mine=1 {FLAGS}"}
    assert "kept --xla_mine=1, overruled --xla_cpu_max_isa=AVX512" in got.out
    monkeypatch.setenv("XLA_FLAGS", "xla_mine=1")
    got = tune("export", "nbody-ab12cd", "--format", "docker", "--merge-flags")
    assert (got.code, got.out) == (2, "")
    assert "where: inherited XLA_FLAGS" in got.err


def test_flags_that_were_inherited_when_measured_are_told(tune: Tune, run: RunFolder) -> None:
    seal(run, msgspec.structs.replace(SET, env={"XLA_FLAGS": f"--xla_was_there=1 {FLAGS}"}))
    out = tune("export", "nbody-ab12cd", "--format", "docker").out
    assert "# Inherited where it was measured, and part of XLA_FLAGS: --xla_was_there=1\n" in out


def test_the_place_of_the_cache_can_be_given(tune: Tune, run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "entry").write_bytes(b"x")
    seal(run, SET, cache=tmp_path / "c")
    for form in ("docker", "shell"):
        out = tune("export", "nbody-ab12cd", "--format", form, "--cache-dir", "/mnt/cache").out
        assert re.search(r"^(export )?JAX_COMPILATION_CACHE_DIR='?/mnt/cache'?$", out, re.M)
        assert str(run.bundle) not in out


def test_a_workload_that_has_changed_is_said(tune: Tune, run: RunFolder) -> None:
    seal(run, SET)
    Path("nbody.py").write_text("def build(): pass\n")
    got = tune("export", "nbody.py", "--format", "json", "--quiet")
    assert json.loads(got.out)["env"] == {"XLA_FLAGS": FLAGS}
    assert got.err == "tune: nbody.py has changed since run nbody-ab12cd tuned it\n"


# -- wrong input -----------------------------------------------------------------------------------------------------


def test_an_unknown_format_gets_a_suggestion(tune: Tune, run: RunFolder) -> None:
    got = tune("export", "nbody-ab12cd", "--format", "dokcer")
    assert (got.code, got.out) == (2, "")
    assert "unknown format 'dokcer'; did you mean docker?" in got.err
    assert "where: --format" in got.err
    assert "there are docker, shell, systemd" in tune("export", "x", "--format", "?").err


def test_without_a_format_nothing_is_written(tune: Tune, run: RunFolder) -> None:
    got = tune("export", "nbody-ab12cd")
    assert (got.code, got.out) == (2, "")
    assert "--format is missing" in got.err


def test_an_unfinished_run_has_nothing_to_export(tune: Tune, run: RunFolder) -> None:
    got = tune("export", "nbody-ab12cd", "--format", "docker")
    assert (got.code, got.out) == (4, "")
    assert "nothing to export: run nbody-ab12cd is unfinished" in got.err


def test_several_runs_of_that_name_are_listed(tune: Tune, run: RunFolder, folder: Path) -> None:
    keep_run(folder / ".tuner", Path("nbody.py"), "nbody-ab12cd-2")
    got = tune("export", "nbody-ab", "--format", "docker")
    assert (got.code, got.out) == (2, "")
    assert "'nbody-ab' could be any of 2 runs" in got.err
    assert "nbody-ab12cd, nbody-ab12cd-2" in got.err


def test_no_such_run_and_no_such_file(tune: Tune, run: RunFolder) -> None:
    got = tune("export", "nbody-ab12ce", "--format", "docker")
    assert (got.code, got.out) == (2, "")
    assert "did you mean nbody-ab12cd?" in got.err
    got = tune("export", "nbdy.py", "--format", "docker")
    assert got.code == 2
    assert "no such file; did you mean nbody.py?" in got.err


def test_what_a_format_cannot_carry_leaves_the_old_file(tune: Tune, run: RunFolder, folder: Path) -> None:
    seal(run, msgspec.structs.replace(SET, env={"XLA_FLAGS": "--a=1\n--b=2"}))
    (folder / "prod.env").write_text("old")
    got = tune("export", "nbody-ab12cd", "--format", "docker", "--out", "prod.env")
    assert got.code == 2
    assert "no raw env-file can carry" in got.err
    assert "where: XLA_FLAGS" in got.err
    assert "--format shell" in got.err
    assert (folder / "prod.env").read_text() == "old"
