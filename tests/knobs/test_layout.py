"""The process layout: over how many processes a config divides a host's devices."""

from __future__ import annotations

import pytest

from tuner.knobs import DEFAULT, Config, forced_cpu_devices, processes


def test_one_process_has_all_devices_unless_each_is_to_have_its_own() -> None:
    assert processes(DEFAULT, 8) == 1
    assert processes(Config.of({"layout": "process-per-device"}), 8) == 8
    assert processes(Config.of({"layout": "process-per-device"}), 0) == 1


@pytest.mark.parametrize(
    ("inherited", "count"),
    [
        ({}, 1),
        ({"XLA_FLAGS": "--a --xla_force_host_platform_device_count=8"}, 8),
        (
            {
                "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_force_host_platform_device_count=2",
                "JAX_NUM_CPU_DEVICES": "5",
            },
            2,
        ),
        ({"JAX_NUM_CPU_DEVICES": "4"}, 4),
        ({"JAX_NUM_CPU_DEVICES": "-1"}, 1),
    ],
)
def test_how_many_devices_a_cpu_is_made_into(inherited: dict[str, str], count: int) -> None:
    assert forced_cpu_devices(inherited) == count
