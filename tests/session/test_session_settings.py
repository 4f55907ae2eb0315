"""Settings mean the same in whichever form they travel."""

from __future__ import annotations

import pytest

from tuner.protocol.messages import OptionValue, Variant
from tuner.session.settings import canonical_text, environment_settings, variant_settings


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        ("True", "true"),
        ("false", "false"),
        (3, "3"),
        ("3", "3"),
        (0.5, "0.5"),
        ("", ""),
        ("A,b", "A,b"),
    ],
)
def test_all_spellings_of_a_value_are_one_text(value: OptionValue, text: str) -> None:
    assert canonical_text(value) == text


def test_the_environment_is_split_into_compiler_settings_and_other_variables() -> None:
    flags, variables = environment_settings(
        {
            "XLA_FLAGS": "--xla_a=True --xla_b --xla_c= word --xla_a=false\n--xla_d=x=y",
            "JAX_DEFAULT_MATMUL_PRECISION": "highest",
            "JAX_OPTIMIZATION_LEVEL": "O1",
            "NCCL_ALGO": "Ring",
            "GONE": None,
        }
    )
    assert flags == {
        "xla_a": "false",
        "xla_b": "true",
        "xla_c": "",
        "xla_d": "x=y",
        "jax_default_matmul_precision": "highest",
        "jax_optimization_level": "O1",
    }
    assert variables == {"NCCL_ALGO": "Ring"}


def test_a_variant_and_an_environment_agree() -> None:
    variant = Variant(
        id="v",
        compiler_options={"xla_a": True, "optimization_level": 19},
        jax_config={"jax_default_matmul_precision": "highest"},
    )
    flags, _ = environment_settings(
        {"XLA_FLAGS": "--xla_a=true", "JAX_OPTIMIZATION_LEVEL": "O1", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    )
    assert variant_settings(variant) == flags


def test_a_profile_is_a_setting() -> None:
    assert variant_settings(Variant(id="v", profile="AAAA")) == {"pgle": "on"}


def test_a_profile_in_the_environment_in_either_form() -> None:
    file = "--xla_a=1 --xla_gpu_pgle_profile_file_or_directory_path=/opt/profile.pb"
    assert environment_settings({"XLA_FLAGS": file}) == ({"xla_a": "1", "pgle": "on"}, {})
    assert environment_settings({"JAX_ENABLE_PGLE": "true"}) == ({"pgle": "on"}, {})
    assert environment_settings({"JAX_ENABLE_PGLE": "false"}) == ({}, {})
    assert environment_settings({"JAX_ENABLE_PGLE": None}) == ({}, {})
