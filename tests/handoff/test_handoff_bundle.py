"""Bundles: written whole or not at all, checked when loaded."""

from __future__ import annotations

import json
import math
import re
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from handoff_samples import DEFAULT, FASTER, FLAGS

from tuner.errors import StoreError, TunerError
from tuner.handoff import Options, content_of, latest_bundle, load_bundle, write_bundle
from tuner.handoff.dialects import DIALECTS, parse_raw
from tuner.measure.objective import Objective
from tuner.measure.types import Estimate, Verdict


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A folder as sealing leaves it."""
    folder = tmp_path / "sealed"
    (folder / "deeper").mkdir(parents=True)
    (folder / "jit_step-123-cache").write_bytes(b"\x28\xb5compiled")
    (folder / "deeper" / "entry").write_bytes(b"more")
    return folder


def test_what_is_written_is_loaded(tmp_path: Path, sealed: Path) -> None:
    """Every part comes back, and each file says what it is and in which version."""
    options = Options(compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""}, jax_config={})
    knobs = {"bodies": 512}
    written = write_bundle(
        tmp_path / "bundle", FASTER, options=options, workload_knobs=knobs, profile=b"pgle", cache=sealed
    )
    loaded = load_bundle(written.path)
    assert loaded == written
    assert loaded.path == tmp_path / "bundle" / "0001"
    assert loaded.manifest.settings == FASTER.settings
    assert loaded.manifest.estimate == FASTER.estimate
    assert loaded.best.options == options
    assert loaded.best.workload_knobs == knobs
    assert loaded.best.speedup == pytest.approx(2.0)
    assert loaded.profile is not None
    assert loaded.profile.read_bytes() == b"pgle"
    assert loaded.cache is not None
    assert (loaded.cache / "deeper" / "entry").read_bytes() == b"more"
    present = {p.relative_to(loaded.path).as_posix() for p in loaded.path.rglob("*") if p.is_file()}
    assert present == {*loaded.manifest.files, "manifest.json"}
    for name, schema in (("manifest.json", "xla-tuner/bundle"), ("best.json", "xla-tuner/best")):
        document = json.loads((loaded.path / name).read_bytes())
        assert (document["schema"], document["v"]) == (schema, 1)


def test_parts_that_were_not_given_are_absent(tmp_path: Path) -> None:
    """No profile, no cache, no variables for one; None says that there is no form for one function alone."""
    bundle = write_bundle(tmp_path, FASTER)
    assert set(bundle.manifest.files) == {"best.env", "best.sh", "best.json"}
    assert (bundle.profile, bundle.cache, bundle.best.options) == (None, None, None)
    assert bundle.environment() == {"XLA_FLAGS": FLAGS, "JAX_DEFAULT_MATMUL_PRECISION": None}
    assert "JAX_COMPILATION_CACHE_DIR" not in bundle.shell_file.read_text()


def test_env_file_holds_the_exact_text_and_how_to_load_it(tmp_path: Path, sealed: Path) -> None:
    bundle = write_bundle(tmp_path, FASTER, cache=sealed)
    assert bundle.env_file is not None
    text = bundle.env_file.read_text()
    assert parse_raw(text) == {"XLA_FLAGS": FLAGS, "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"}
    for needed in (
        "nbody.py",
        "jax 0.10.2",
        "2.000x the default's speed, 95% interval 1.900x to 2.100x, from 6 pairs",
        "10 ms a step, the default 20 ms",
        "xla_cpu_experimental_ynn_fusion_type=<empty>",
        "docker run --env-file best.env",
        "Don't source it",
        "these must not be set: JAX_DEFAULT_MATMUL_PRECISION",
        "JAX_COMPILATION_CACHE_DIR=/where/it/is/jax_cache",
    ):
        assert needed in text


@pytest.mark.parametrize("verdict", [Verdict.SAME, Verdict.UNCLEAR, Verdict.UNSTABLE])
def test_without_a_gain_the_files_hold_the_default_and_say_so(tmp_path: Path, verdict: Verdict) -> None:
    bundle = write_bundle(tmp_path, msgspec.structs.replace(DEFAULT, verdict=verdict))
    assert bundle.env_file is not None
    for file in (bundle.env_file, bundle.shell_file):
        lines = file.read_text().splitlines()
        assert all(line.startswith("#") for line in lines)
        assert any(f"Verdict {verdict.value}:" in line and "holds the default" in line for line in lines)
    assert bundle.environment() == {}
    assert bundle.best.settings == {}


def test_the_two_claims_stand_apart_in_the_files(tmp_path: Path, sealed: Path) -> None:
    """The one executable has a gain of its own, or a reason why that isn't known; without a cache there is none."""
    own = Estimate(gain=math.log(1.8), se=0.01, low=math.log(1.7), high=math.log(1.9), n=4)
    measured = msgspec.structs.replace(FASTER, sealed=own)
    told = write_bundle(tmp_path / "b", measured, cache=sealed).shell_file.read_text()
    assert "Verdict faster: 2.000x" in told
    assert "The sealed executable by itself: 1.800x" in told
    assert "1.700x to 1.900x, from 4 pairs" in told
    unknown = msgspec.structs.replace(FASTER, sealed_note="no time was left")
    text = write_bundle(tmp_path / "b", unknown, cache=sealed).shell_file.read_text()
    assert "The sealed executable was not measured by itself: no time was left" in text
    assert "sealed executable" not in write_bundle(tmp_path / "b", measured).shell_file.read_text()


def test_a_default_may_carry_what_was_held(tmp_path: Path) -> None:
    """What the user fixed was on in both arms, so it is part of the default that was measured."""
    held = msgspec.structs.replace(DEFAULT, held={"jax_optimization_level": "O1"}, env={"JAX_OPTIMIZATION_LEVEL": "O1"})
    bundle = write_bundle(tmp_path, held)
    assert bundle.env_file is not None
    assert parse_raw(bundle.env_file.read_text()) == {"JAX_OPTIMIZATION_LEVEL": "O1"}
    assert "Held for the whole run: jax_optimization_level=O1" in bundle.env_file.read_text()


def test_settings_without_a_gain_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must hold the default"):
        write_bundle(tmp_path, msgspec.structs.replace(FASTER, verdict=Verdict.UNCLEAR))
    assert list(tmp_path.iterdir()) == []


def test_an_estimate_that_could_not_be_computed_is_none(tmp_path: Path) -> None:
    """JSON has no infinity; a bundle with one could not be read again."""
    endless = Estimate(gain=0.1, se=math.inf, low=-math.inf, high=math.inf, n=1)
    bundle = write_bundle(tmp_path, msgspec.structs.replace(FASTER, estimate=endless))
    assert load_bundle(bundle.path).manifest.estimate is None
    assert bundle.best.speedup is None


def test_a_value_that_raw_cannot_carry_leaves_the_shell_form_alone(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, msgspec.structs.replace(FASTER, env={"XLA_FLAGS": "--a=1\n--b=2"}, unset=()))
    assert bundle.env_file is None
    assert not (bundle.path / "best.env").exists()
    assert any("no best.env: XLA_FLAGS" in notice for notice in bundle.manifest.notices)
    assert "export XLA_FLAGS='--a=1\n--b=2'\n" in bundle.shell_file.read_text()


def test_names_in_the_header_cannot_become_settings(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, msgspec.structs.replace(DEFAULT, workload="x\nEVIL=1\n.py"))
    assert bundle.env_file is not None
    assert parse_raw(bundle.env_file.read_text()) == {}


# -- numbers, atomicity ----------------------------------------------------------------------------------------------


def test_bundles_are_numbered_and_not_overwritten(tmp_path: Path) -> None:
    assert latest_bundle(tmp_path) is None
    paths = [write_bundle(tmp_path, FASTER).path for _ in range(2)]
    assert [p.name for p in paths] == ["0001", "0002"]
    assert latest_bundle(tmp_path) == paths[1]
    for file in paths[0].iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o444


def test_writers_at_the_same_time_get_numbers_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        bundles = list(pool.map(lambda _: write_bundle(tmp_path, FASTER), range(8)))
    assert sorted(b.path.name for b in bundles) == [f"{n:04d}" for n in range(1, 9)]
    assert all(load_bundle(b.path) == b for b in bundles)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_bundle(tmp_path, FASTER, workload_knobs={"bodies": object()})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_left_behind_is_stepped_over(tmp_path: Path) -> None:
    (tmp_path / ".0001.part").mkdir()
    assert write_bundle(tmp_path, FASTER).path.name == "0002"


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        write_bundle(tmp_path / "file", FASTER)
    assert caught.value.where == str(tmp_path / "file")


def test_an_empty_cache_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TunerError, match="holds nothing") as caught:
        write_bundle(tmp_path / "bundle", FASTER, cache=tmp_path / "empty")
    assert caught.value.where == str(tmp_path / "empty")


# -- loading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["best.env", "best.sh", "best.json", "jax_cache/jit_step-123-cache"])
@pytest.mark.parametrize("change", ["edited", "removed"])
def test_loading_names_the_file_that_differs(tmp_path: Path, sealed: Path, name: str, change: str) -> None:
    bundle = write_bundle(tmp_path / "bundle", FASTER, cache=sealed)
    file = bundle.path / name
    data = file.read_bytes()
    file.unlink()
    if change == "edited":
        file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(
        TunerError, match="not the file that was sealed" if change == "edited" else "can't be read"
    ) as e:
        load_bundle(bundle.path)
    assert e.value.where == str(file)


def test_entries_that_production_added_do_not_matter(tmp_path: Path, sealed: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", FASTER, cache=sealed)
    (bundle.path / "jax_cache" / "jit_other-cache").write_bytes(b"new")
    assert load_bundle(bundle.path) == bundle


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        (b"{", "can't be understood"),
        (b'{"schema": "xla-tuner/bundle", "v": 1}', "can't be understood: .*created"),
        (b'{"schema": "other", "v": 1}', "has the schema 'other'"),
        (b'{"schema": "xla-tuner/bundle", "v": 2}', "has version 2, this tune reads up to 1"),
    ],
)
def test_manifests_that_cannot_be_read_are_refused(tmp_path: Path, head: bytes, complaint: str) -> None:
    (tmp_path / "manifest.json").write_bytes(head)
    with pytest.raises(TunerError, match=complaint) as caught:
        load_bundle(tmp_path)
    assert caught.value.where == str(tmp_path / "manifest.json")


def test_a_folder_without_a_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=re.escape("no bundle: No such file")):
        load_bundle(tmp_path)


# -- best.sh in real shells ------------------------------------------------------------------------------------------


def after(shell: str, file: Path, **env: str) -> dict[str, str]:
    """The environment of a strict shell after it sourced `file` from another folder."""
    command = [shutil.which(shell) or shell, "-c", 'set -eu; . "$0"; exec env -0', str(file)]
    found = subprocess.run(
        command, cwd="/", env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, check=True
    ).stdout.decode()
    return dict(entry.split("=", 1) for entry in found.split("\0") if entry)


@pytest.mark.parametrize("shell", [name for name in ("bash", "dash", "sh") if shutil.which(name)])
def test_the_shell_file_sets_flags_and_cache(tmp_path: Path, sealed: Path, shell: str) -> None:
    """Also in a folder whose name needs quoting; nothing else stays behind."""
    bundle = write_bundle(tmp_path / "it's a $HOME", FASTER, cache=sealed)
    env = after(shell, bundle.shell_file, JAX_DEFAULT_MATMUL_PRECISION="highest")
    expected = {name: value for name, value in bundle.environment().items() if value is not None}
    assert {n: v for n, v in env.items() if n.startswith(("XLA_", "JAX_"))} == expected
    assert not [name for name in env if "tuner" in name.lower()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_finds_the_cache_of_a_bundle_that_moved(tmp_path: Path, sealed: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", FASTER, cache=sealed)
    moved = shutil.move(bundle.path, tmp_path / "elsewhere")
    env = after("bash", Path(moved) / "best.sh")
    assert env["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "elsewhere" / "jax_cache")


EXPECT = "JAX_COMPILATION_CACHE_EXPECT_PGLE"
GUIDED = msgspec.structs.replace(FASTER, settings={"pgle": "3x90"}, env={EXPECT: "true"}, unset=(), pgle="cache")


def test_what_is_bound_to_the_cache_is_emitted_only_with_its_place(tmp_path: Path, sealed: Path) -> None:
    """Without the cache, a program that expects a profile compiles without profile and command buffers."""
    bundle = write_bundle(tmp_path, GUIDED, cache=sealed)
    assert bundle.env_file is not None
    text = bundle.env_file.read_text()
    expected = {n: v for n, v in bundle.environment().items() if v is not None}
    assert expected["JAX_COMPILATION_CACHE_DIR"] == str(bundle.cache)
    assert parse_raw(text) == bundle.best.env == expected
    assert f"leave out {EXPECT}" in text


@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - {"flags-file", "python"}))
def test_every_dialect_says_where_the_cache_of_a_guided_step_is(tmp_path: Path, sealed: Path, dialect: str) -> None:
    bundle = write_bundle(tmp_path, GUIDED, cache=sealed)
    content = content_of(bundle.manifest, bundle.best, cache=bundle.cache)
    text = DIALECTS[dialect].write(content, "file")
    assert re.search(rf"^[^#\n]*{EXPECT}", text, re.M)
    assert re.search(r"^[^#\n]*JAX_COMPILATION_CACHE_DIR", text, re.M)


@pytest.mark.parametrize("shell", [name for name in ("bash", "dash", "sh") if shutil.which(name)])
def test_a_shell_expects_a_profile_only_where_it_finds_the_cache(tmp_path: Path, sealed: Path, shell: str) -> None:
    bundle = write_bundle(tmp_path / "bundle", GUIDED, cache=sealed)
    assert after(shell, bundle.shell_file)[EXPECT] == "true"
    alone = shutil.copy(bundle.shell_file, tmp_path / "best.sh")
    shutil.move(bundle.path, tmp_path / "elsewhere")
    env = after(shell, Path(alone))
    assert not {EXPECT, "JAX_COMPILATION_CACHE_DIR"} & env.keys()
    assert env["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] == "none"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_copy_of_the_shell_file_alone_finds_the_cache_where_it_was_written(tmp_path: Path, sealed: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", FASTER, cache=sealed)
    copy = shutil.copy(bundle.shell_file, tmp_path / "best.sh")
    assert after("bash", Path(copy))["JAX_COMPILATION_CACHE_DIR"] == str(bundle.cache)


@pytest.mark.skipif(shutil.which("dash") is None, reason="needs dash")
def test_a_shell_that_cannot_find_the_cache_sets_no_folder(tmp_path: Path, sealed: Path) -> None:
    """JAX would create the folder and fill it; the settings still hold."""
    bundle = write_bundle(tmp_path / "bundle", FASTER, cache=sealed)
    moved = shutil.move(bundle.path, tmp_path / "elsewhere")
    env = after("dash", Path(moved) / "best.sh")
    assert "JAX_COMPILATION_CACHE_DIR" not in env
    assert env["XLA_FLAGS"] == FLAGS


def test_the_files_say_what_was_made_small(tmp_path: Path) -> None:
    manifest = msgspec.structs.replace(FASTER, objective=Objective(name="p99"))
    bundle = write_bundle(tmp_path, manifest)
    assert bundle.shell_file is not None
    assert "10 ms a step at p99, the default 20 ms" in bundle.shell_file.read_text()
    assert load_bundle(bundle.path).manifest.objective.name == "p99"
