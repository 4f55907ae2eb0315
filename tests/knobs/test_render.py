"""How configs reach the program: variants, environments, fingerprints."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import FlagsError, UsageError
from tuner.knobs import (
    DEFAULT,
    DELIVERIES,
    PROFILE_FLAG,
    XLA_FLAGS,
    Config,
    Delivery,
    Form,
    Knob,
    Recipe,
    SearchSpace,
    environment,
    fingerprint,
    forbidden,
    from_workload,
    load_spaces,
    recipe_of,
    split,
    variant,
    workload_knobs,
)
from tuner.protocol.messages import Variant
from tuner.protocol.xla_flags import parse

SPACE = load_spaces(["cpu", "gpu", "precision"]).with_knobs(
    from_workload({"unroll": ("1", "2"), "remat": ("True", "False"), "rate": ("0.5", "1")}, source="w.py")
)


def config(**settings: str) -> Config:
    return Config.of(settings)


def with_alias(name: str, alias: str) -> SearchSpace:
    knobs = [msgspec.structs.replace(k, aliases=(alias,)) if k.name == name else k for k in SPACE.knobs]
    return msgspec.structs.replace(SPACE, knobs=tuple(knobs))


def test_a_config_is_split_by_lane() -> None:
    whole = config(xla_gpu_enable_triton_gemm="false", xla_gpu_autotune_level="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
    env, option = split(whole, SPACE)
    assert env == config(xla_gpu_autotune_level="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
    assert option == config(xla_gpu_enable_triton_gemm="false")
    assert env.join(option) == whole


def test_splitting_by_an_unknown_name_says_so() -> None:
    with pytest.raises(UsageError, match="no knob xla_gpu_ftzz"):
        split(config(xla_gpu_ftzz="true"), SPACE)


# -- variant


def test_compile_options_have_the_types_that_compilers_take() -> None:
    option = config(
        xla_gpu_enable_triton_gemm="false",
        xla_gpu_memory_limit_slop_factor="80",
        xla_gpu_enable_command_buffer="",
        xla_cpu_scheduler_type="CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
        jax_default_matmul_precision="tensorfloat32",
    )
    made = variant("h", option, SPACE)
    assert made.id == "h"
    assert made.compiler_options == {
        "xla_gpu_enable_triton_gemm": False,
        "xla_gpu_memory_limit_slop_factor": 80,
        "xla_gpu_enable_command_buffer": "",
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    }
    assert type(made.compiler_options["xla_gpu_enable_triton_gemm"]) is bool
    assert made.jax_config == {"jax_default_matmul_precision": "tensorfloat32"}


@pytest.mark.parametrize(("level", "number"), [("O1", 19), ("O2", 29), ("O3", 39)])
def test_effort_is_a_number_as_an_option_and_a_name_in_the_environment(level: str, number: int) -> None:
    effort = config(optimization_level=level)
    assert variant("h", effort, SPACE).compiler_options == {"optimization_level": number}
    assert environment(effort, SPACE, {}) == {"JAX_OPTIMIZATION_LEVEL": level}


def test_the_default_is_an_empty_variant() -> None:
    made = variant("control", DEFAULT, SPACE)
    assert (made.compiler_options, made.jax_config, made.profile) == ({}, {}, None)


def test_an_environment_setting_is_no_variant() -> None:
    with pytest.raises(UsageError, match="xla_gpu_autotune_level needs a new process"):
        variant("h", config(xla_gpu_autotune_level="0"), SPACE)


# -- environment


def test_the_whole_config_becomes_environment_changes() -> None:
    whole = config(
        xla_gpu_enable_triton_gemm="false",
        xla_gpu_autotune_level="0",
        CUDA_DEVICE_MAX_CONNECTIONS="1",
        jax_default_matmul_precision="tensorfloat32",
        unroll="2",
    )
    assert environment(whole, SPACE, {}) == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "JAX_DEFAULT_MATMUL_PRECISION": "tensorfloat32",
        "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false",
    }


def test_inherited_flags_stay_byte_for_byte_and_ours_win() -> None:
    inherited = {XLA_FLAGS: "--xla_dump_to='/a b'   --xla_gpu_ftz=True", "HOME": "/h"}
    made = environment(config(xla_gpu_ftz="true", xla_gpu_enable_cublaslt="true"), SPACE, inherited)
    assert made == {XLA_FLAGS: "--xla_dump_to='/a b' --xla_gpu_ftz=true --xla_gpu_enable_cublaslt=true"}


def test_the_default_changes_nothing() -> None:
    assert environment(DEFAULT, SPACE, {XLA_FLAGS: "--xla_gpu_ftz=true"}) == {}


def test_flags_that_are_inherited_already_are_still_written_out() -> None:
    """What is emitted stands by itself: it must not lean on what the tuning run inherited."""
    inherited = {XLA_FLAGS: "--xla_gpu_ftz=true"}
    assert environment(config(xla_gpu_ftz="true"), SPACE, inherited) == inherited


def test_empty_and_unset_differ() -> None:
    empty = environment(config(xla_gpu_enable_command_buffer=""), SPACE, {})
    assert empty == {XLA_FLAGS: "--xla_gpu_enable_command_buffer="}
    assert environment(config(xla_gpu_enable_command_buffer="unset"), SPACE, {}) == {}


def test_an_inherited_old_name_gives_way_to_the_new_one() -> None:
    space = with_alias("xla_gpu_ftz", "xla_gpu_old")
    made = environment(config(xla_gpu_ftz="true"), space, {XLA_FLAGS: "--xla_gpu_old=false --xla_b=1"})
    assert made == {XLA_FLAGS: "--xla_b=1 --xla_gpu_ftz=true"}


def test_flags_are_never_merged_into_a_text_that_xla_would_misread() -> None:
    with pytest.raises(FlagsError, match=r"'foo=1'.*loses xla_b"):
        environment(config(xla_gpu_ftz="true"), SPACE, {XLA_FLAGS: "--xla_a=1 foo=1 --xla_b=2"})


def test_flags_inherited_from_a_file_are_written_out(tmp_path: Path) -> None:
    file = tmp_path / "flags.txt"
    file.write_text("--xla_a=1\n")
    made = environment(config(xla_gpu_ftz="true"), SPACE, {XLA_FLAGS: str(file)})
    assert made == {XLA_FLAGS: "--xla_a=1 --xla_gpu_ftz=true"}


def test_a_profile_is_handed_to_a_compile_and_delivered_in_one_of_three_forms() -> None:
    space = load_spaces(["pgle"])
    guided = config(pgle="3x90")
    with pytest.raises(UsageError, match="pgle needs a profile"):
        variant("h", guided, space)
    assert variant("h", guided, space, profile="AAAA") == Variant(id="h", profile="AAAA")
    forms: dict[Form, dict[str, str | None]] = {
        form: environment(guided, space, {XLA_FLAGS: "--xla_a=1"}, delivery=Delivery(form=form, path="/opt/a b.pb"))
        for form in DELIVERIES
    }
    assert forms["cache"] == environment(guided, space, {}) == {"JAX_COMPILATION_CACHE_EXPECT_PGLE": "true"}
    assert forms["file"] == {XLA_FLAGS: f"--xla_a=1 --{PROFILE_FLAG}='/opt/a b.pb'"}
    assert forms["auto"] == {
        "JAX_ENABLE_PGLE": "true",
        "JAX_PGLE_PROFILING_RUNS": "3",
        "JAX_PGLE_AGGREGATION_PERCENTILE": "90",
    }


@pytest.mark.parametrize("text", ["0x90", "3x101", "on", "3x", "x90", "3 x 90", "10000x50", ""])
def test_what_says_not_how_a_profile_is_taken(text: str) -> None:
    assert recipe_of(config(pgle=text)) is None


def test_how_a_profile_is_taken() -> None:
    assert recipe_of(config(pgle="10x50")) == Recipe(runs=10, percentile=50)
    assert recipe_of(config(xla_gpu_ftz="true")) is None


def test_the_layout_is_no_variable_and_no_compile_option() -> None:
    knob = msgspec.structs.replace(SPACE.knob("xla_gpu_ftz"), name="layout", carrier="layout", lane="environment")
    space = SearchSpace(name="layouts", knobs=(knob,))
    assert environment(config(layout="process-per-device"), space, {}) == {}
    with pytest.raises(UsageError, match="needs a new process"):
        variant("h", config(layout="process-per-device"), space)


def _some_value(knob: Knob) -> st.SearchStrategy[str]:
    return st.sampled_from(knob.values)


CONFIGS = st.fixed_dictionaries({knob.name: _some_value(knob) for knob in SPACE.knobs}).map(Config.of)


@settings(max_examples=10)
@given(CONFIGS, st.randoms())
def test_rendering_is_deterministic_and_complete(whole: Config, random: object) -> None:
    """The same config gives the same bytes, in whatever order it was put together, and XLA reads back every flag."""
    made = environment(whole, SPACE, {})
    shuffled = list(whole.settings)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert environment(Config.of(dict(shuffled)), SPACE, {}) == made
    flags = {flag.name: flag.value for flag in parse(made.get(XLA_FLAGS) or "")}
    assert flags == {n: v for n, v in whole.settings if SPACE.knob(n).carrier == "xla_flag"}


@settings(max_examples=10)
@given(CONFIGS)
def test_every_option_setting_reaches_the_variant(whole: Config) -> None:
    _, option = split(whole, SPACE)
    made = variant("h", option, SPACE)
    assert {*made.compiler_options, *made.jax_config} == option.names


# -- workload knobs


def test_a_workloads_knobs_go_to_build_with_their_types() -> None:
    chosen = config(unroll="2", remat="false", rate="0.5", xla_gpu_ftz="true")
    assert workload_knobs(chosen, SPACE) == {"unroll": 2, "remat": False, "rate": 0.5}
    assert environment(config(unroll="2"), SPACE, {}) == {}


# -- fingerprint


def test_settings_that_the_code_shows_do_not_count() -> None:
    """They are in the hash of the code already: if it is equal, they do nothing."""
    shown = config(xla_backend_optimization_level="1", xla_cpu_scheduler_type="CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED")
    assert fingerprint("c", "hlo+codegen", shown, SPACE) == fingerprint("c", "hlo+codegen", DEFAULT, SPACE)


def test_settings_that_the_code_can_hide_count() -> None:
    default = fingerprint("c", "hlo+codegen", DEFAULT, SPACE)
    for hidden in (
        config(xla_cpu_enable_platform_dependent_math="false"),  # library
        config(xla_gpu_enable_command_buffer=""),  # runtime
        config(xla_gpu_autotune_level="0"),  # autotune
    ):
        assert fingerprint("c", "hlo+codegen", hidden, SPACE) != default


def test_code_generation_counts_where_machine_code_is_out_of_reach() -> None:
    ftz = config(xla_gpu_ftz="true")
    assert fingerprint("c", "hlo", ftz, SPACE) != fingerprint("c", "hlo", DEFAULT, SPACE)
    assert fingerprint("c", "hlo+codegen", ftz, SPACE) == fingerprint("c", "hlo+codegen", DEFAULT, SPACE)


def test_other_code_is_another_fingerprint() -> None:
    assert fingerprint("c", "hlo", DEFAULT, SPACE) != fingerprint("d", "hlo", DEFAULT, SPACE)


# -- forbidden combinations


def test_a_forbidden_pair_is_named_and_each_half_is_allowed() -> None:
    nhwc, nchw = config(xla_gpu_force_conv_nhwc="true"), config(xla_gpu_force_conv_nchw="true")
    assert forbidden(nhwc, SPACE) is None
    assert forbidden(nchw, SPACE) is None
    assert "a convolution has one layout" in (forbidden(nhwc.join(nchw), SPACE) or "")


def test_a_setting_without_what_it_requires_is_named() -> None:
    alone = config(xla_cpu_fast_math_honor_nans="false")
    assert forbidden(alone, SPACE) == (
        "xla_cpu_fast_math_honor_nans=false means nothing without xla_cpu_enable_fast_math=true"
    )
    assert forbidden(alone.set("xla_cpu_enable_fast_math", "true"), SPACE) is None


def test_the_default_is_never_forbidden() -> None:
    assert forbidden(DEFAULT, SPACE) is None
