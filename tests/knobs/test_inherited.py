"""What a run inherits: sound flags, and pins."""

from __future__ import annotations

import pytest

from tuner.errors import FlagsError
from tuner.knobs import check_flags, pins


def test_a_sound_text_passes() -> None:
    check_flags("")
    check_flags("--xla_a=1 --xla_b='x y'")


def test_the_token_and_the_lost_flags_are_named() -> None:
    text = "--xla_dump_to=/d foo=1 --xla_force_host_platform_device_count=4"
    with pytest.raises(FlagsError) as caught:
        check_flags(text)
    assert "foo=1" in caught.value.what
    assert "xla_force_host_platform_device_count" in caught.value.what
    assert caught.value.where == "XLA_FLAGS"
    assert caught.value.exit_code == 2


def test_every_problem_is_named() -> None:
    with pytest.raises(FlagsError, match=r"2 places(.|\n)*-xla_a(.|\n)*foo"):
        check_flags("-xla_a=1 foo", where="base.env")


def test_pins_are_what_was_set_for_the_network() -> None:
    inherited = {"NCCL_ALGO": "Ring", "NVSHMEM_X": "", "TORCH_SYMM_MEM_Y": "1", "XLA_FLAGS": "", "MY_NCCL": "1"}
    assert pins(inherited) == {"NCCL_ALGO", "NVSHMEM_X", "TORCH_SYMM_MEM_Y"}
