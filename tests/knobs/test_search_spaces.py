"""The spaces that are shipped: they load, alone and together, and say what they must."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tuner.knobs import DEFAULT, UNSET, Config, SearchSpace, default_spaces, forbidden, load_spaces, shipped_spaces

SHIPPED = ("cpu", "gpu", "precision", "collectives", "nccl", "pgle")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def everything() -> SearchSpace:
    return load_spaces(SHIPPED)


def test_every_shipped_space_loads_alone() -> None:
    assert set(SHIPPED) <= set(shipped_spaces())
    for name in shipped_spaces():
        assert load_spaces([name]).name == name


def test_the_default_spaces_of_each_platform_load_together() -> None:
    assert load_spaces(default_spaces("cpu")).name == "cpu+precision"
    assert load_spaces(default_spaces("gpu")).name == "gpu+precision"
    assert load_spaces(default_spaces("gpu", devices=4)).name == "gpu+precision+pgle+collectives+nccl"
    assert default_spaces("cpu", devices=4) == default_spaces("cpu")


def test_there_are_a_dozen_knobs_for_each_platform() -> None:
    for name in ("cpu", "gpu"):
        assert len(load_spaces([name]).knobs) >= 12


def test_every_knob_offers_unset_first_and_at_most_four_values(everything: SearchSpace) -> None:
    """Of matrix precisions there are more: each is a program of its own."""
    for knob in everything.knobs:
        assert knob.values[0] == UNSET
        assert 2 <= len(knob.values) <= 4 or knob.name == "jax_default_matmul_precision", knob.name


def test_about_a_dozen_knobs_are_tried_first() -> None:
    """Ten minutes on a GPU screen some 25 settings: the first tier must fit. A required knob comes no later."""
    for platform in ("cpu", "gpu"):
        space = load_spaces([platform])
        first = [knob for knob in space.knobs if knob.tier == 1]
        assert 10 <= len(first) <= 14
        assert sum(len(knob.values) - 1 for knob in first) <= 25
        assert len({knob.tier for knob in space.knobs}) == 3
        for knob in space.knobs:
            assert all(space.knob(name).tier <= knob.tier for name in knob.requires), knob.name


def test_every_knob_says_why_where_from_and_what_group(everything: SearchSpace) -> None:
    for knob in everything.knobs:
        assert knob.why.endswith("."), knob.name
        assert knob.source, knob.name
        assert knob.group, knob.name


def test_platform_flags_apply_on_their_platform_alone(everything: SearchSpace) -> None:
    for knob in everything.knobs:
        for platform in ("cpu", "gpu"):
            if knob.name.startswith(f"xla_{platform}_"):
                assert knob.when.platform == platform, knob.name


def test_knobs_that_act_on_the_autotuner_need_a_new_process(everything: SearchSpace) -> None:
    tuned = [knob for knob in everything.knobs if knob.acts_on == "autotune"]
    assert {"xla_gpu_autotune_level", "xla_gpu_exhaustive_tiling_search"} <= {knob.name for knob in tuned}
    assert {knob.lane for knob in tuned} == {"environment"}


def test_settings_that_trade_accuracy_are_labelled(everything: SearchSpace) -> None:
    assert {knob.risk for knob in load_spaces(["precision"]).knobs} == {"numerics"}
    for name in ("xla_cpu_enable_fast_math", "jax_default_matmul_precision", "xla_gpu_ftz"):
        assert everything.knob(name).risk == "numerics"


def test_a_flag_that_xla_flags_cannot_carry_is_not_offered(everything: SearchSpace) -> None:
    """XLA_FLAGS has no effect on it, so an env-file could not hand a gain on."""
    assert "xla_cpu_enable_fast_min_max" not in everything


MULTICAST = ("nvls", "multicast", "symmetric", "symm_mem", "user_buffers", "one_shot", "multimem", "collective_kernels")


def test_what_can_turn_on_multicast_over_nvlink_is_a_risk_and_in_no_preset(everything: SearchSpace) -> None:
    risky = {knob.name for knob in everything.knobs if knob.risk == "hang"}
    for knob in everything.knobs:
        assert (knob.name in risky) == any(word in knob.name.lower() for word in MULTICAST), knob.name
        assert not any("nvls" in value.lower() for value in knob.values), knob.name
    assert risky
    for preset in everything.presets:
        assert not risky & preset.settings.keys(), preset.name
        assert not any("nvls" in value.lower() for value in preset.settings.values()), preset.name


def test_knobs_of_collectives_need_several_devices_and_collectives() -> None:
    gpu = load_spaces(["gpu"]).names
    for knob in load_spaces(["collectives", "nccl", "pgle"]).knobs:
        if knob.name not in gpu:
            assert (knob.when.min_devices or 0) >= 2, knob.name
            assert knob.when.collectives is not None, knob.name


def test_a_space_brings_along_what_its_presets_set() -> None:
    space = load_spaces(["collectives"])
    assert space.name == "collectives"
    assert set(load_spaces(["gpu"]).names) < set(space.names)
    assert load_spaces(["gpu", "collectives"]).names == space.names
    published = {preset.name for preset in load_spaces(["gpu", "collectives", "nccl"]).presets}
    assert {"toolbox-fsdp", "pipeline", "nccl-single-host", "jax-tips"} <= published
    assert [preset.name for preset in load_spaces(["pgle"]).presets][-1] == "pgle-o1"


def test_command_buffers_can_be_left_alone_emptied_or_chosen(everything: SearchSpace) -> None:
    values = everything.knob("xla_gpu_enable_command_buffer").values
    assert values[:2] == (UNSET, "")
    assert any("FUSION" in value for value in values)


def test_presets_can_be_tried_and_are_not_the_default(everything: SearchSpace) -> None:
    assert {"O1"} <= {preset.name for preset in everything.presets}
    for preset in everything.presets:
        config = Config.of(preset.settings)
        assert config != DEFAULT
        assert forbidden(config, everything) is None
        assert preset.source


@pytest.mark.slow
def test_spaces_are_found_beside_the_package_wherever_it_is_installed(tmp_path: Path) -> None:
    """Not by import, where a folder of the same name in the user's directory would win."""
    site = tmp_path / "site"
    for folder in ("tuner", "search_spaces"):
        shutil.copytree(ROOT / folder, site / folder, ignore=shutil.ignore_patterns("__pycache__"))
    user = tmp_path / "user"
    (user / "search_spaces").mkdir(parents=True)
    (user / "search_spaces" / "__init__.py").touch()
    script = (
        f"import sys; sys.path.insert(1, {str(site)!r}); import tuner.knobs as k; print(k.load_spaces(['cpu']).files)"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    child = subprocess.run(
        [sys.executable, "-c", script], cwd=user, env=env, check=True, capture_output=True, text=True, timeout=60
    )
    assert str(site / "search_spaces" / "cpu.toml") in child.stdout


def test_a_wheel_takes_the_spaces_along() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "search_spaces" in setuptools["packages"]["find"]["include"]
    assert setuptools["package-data"]["search_spaces"] == ["*.toml"]
