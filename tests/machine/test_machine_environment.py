from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tuner.machine.devices import Device
from tuner.machine.environment import Environment, environment_of
from tuner.machine.host import Host
from tuner.protocol.messages import Loaded

HOST = Host(cpu="Made Up 9000", cores=2, memory_bytes=16 << 30, kernel="Linux 6.1")
CARD = Device(index=0, name="H100", uuid="GPU-1", driver="580.1", capability="9.0", max_sm_clock_mhz=1980.0)
LOADED = Loaded(
    source="build",
    step_name="step",
    platform="cpu",
    device_kind="cpu",
    device_count=1,
    process_count=1,
    versions={"python": "3.11.7", "jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.0", "zstandard": "no"},
    devices=("cpu",),
    xla_flags="",
    xla_flags_after="",
    environ_changed={},
    knobs_declared={},
    carried=(),
    inputs=(),
    input_bytes=0,
    device_memory_bytes=None,
    has_check=False,
    work=None,
    import_s=0.0,
    init_s=0.0,
    build_s=0.0,
)
GPU = replace(
    LOADED,
    platform="gpu",
    device_kind="NVIDIA H100 80GB HBM3",
    device_count=4,
    versions=LOADED.versions | {"jax-cuda13-plugin": "0.11.2", "nvidia-nccl-cu13": "2.28"},
)


def test_on_a_cpu_the_processor_is_the_device() -> None:
    found = environment_of(LOADED, (), HOST)
    assert found.identity == {
        "platform": "cpu",
        "device_kind": "cpu",
        "device_count": "1",
        "process_count": "1",
        "jax": "0.10.2",
        "jaxlib": "0.10.2",
        "cpu": "Made Up 9000",
        "cores": "2",
    }
    assert found.context == {
        "python": "3.11.7",
        "numpy": "2.0",
        "zstandard": "no",
        "kernel": "Linux 6.1",
        "memory_gib": "16",
    }


def test_on_a_gpu_the_processor_and_the_driver_are_context() -> None:
    found = environment_of(GPU, (CARD, msgspec.structs.replace(CARD, index=1)), HOST)
    assert found.identity["jax-cuda13-plugin"] == "0.11.2"
    assert found.identity["nvidia-nccl-cu13"] == "2.28"
    assert not {"cpu", "cores", "driver"} & found.identity.keys()
    wanted = {"driver": "580.1", "capability": "9.0", "max_clock_mhz": "1980", "cpu": "Made Up 9000"}
    assert wanted.items() <= found.context.items()


def test_what_the_driver_does_not_tell_is_left_out() -> None:
    assert "driver" not in environment_of(GPU, (), HOST).context


@pytest.mark.parametrize(
    ("loaded", "host", "same"),
    [
        (replace(LOADED, versions=LOADED.versions | {"jaxlib": "0.10.3"}), HOST, False),
        (replace(LOADED, device_count=2), HOST, False),
        (LOADED, msgspec.structs.replace(HOST, cores=1), False),
        (LOADED, msgspec.structs.replace(HOST, quota=1.0), False),
        (replace(LOADED, versions=LOADED.versions | {"python": "3.11.8"}), HOST, True),
        (LOADED, msgspec.structs.replace(HOST, kernel="Linux 6.2"), True),
    ],
)
def test_only_identity_changes_the_key(loaded: Loaded, host: Host, same: bool) -> None:
    assert (environment_of(loaded, (), host).key == environment_of(LOADED, (), HOST).key) == same


def test_the_key_does_not_depend_on_the_order() -> None:
    one = Environment(identity={"a": "1", "b": "2"}, context={})
    assert one.key == Environment(identity={"b": "2", "a": "1"}, context={"c": "3"}).key
    assert len(one.key) == 16
