from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.machine import nvml as nvml_module
from tuner.machine.devices import (
    Device,
    DeviceReader,
    DeviceState,
    FakeDevices,
    open_devices,
    throttle_names,
    visible,
)
from tuner.machine.nvidia_smi import SmiDevices
from tuner.machine.nvml import NvmlDevices, open_nvml

CARDS = tuple(Device(index=i, name="Card", uuid=f"GPU-{c}{i}") for i, c in enumerate("abcc"))


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        (" 1 , 3", [1, 3]),
        ("GPU-b", [1]),
        ("GPU-c3,GPU-a0", [3, 0]),
        ("", []),
        ("-1", []),
        ("0,9,1", [0]),  # as in CUDA, the first entry that fits nothing ends the list
        ("0,GPU-c,1", [0]),  # fits two
        ("0,0", [0]),
        ("MIG-123", []),
    ],
)
def test_cuda_visible_devices_is_understood(value: str | None, indices: list[int]) -> None:
    assert [d.index for d in visible(CARDS, value)] == indices


def test_throttle_reasons_have_names() -> None:
    assert throttle_names(0) == ()
    assert throttle_names(0x4 | 0x20) == ("sw_power_cap", "sw_thermal")
    assert throttle_names(0x1000 | 0x1) == ("idle", "0x1000")


def test_a_fake_plays_its_states_and_repeats_the_last() -> None:
    states = [[DeviceState(index=0, sm_clock_mhz=mhz)] for mhz in (1400.0, 1150.0)]
    fake = FakeDevices(CARDS[:1], states)
    assert [fake.states()[0].sm_clock_mhz for _ in range(3)] == [1400.0, 1150.0, 1150.0]
    assert FakeDevices(CARDS).states() == tuple(DeviceState(index=i) for i in range(4))
    assert FakeDevices().states() == ()


class NvmlError(Exception):
    pass


class FakeNvml(SimpleNamespace):
    """A driver with two cards, of which the second one supports little."""

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, count: int = 2) -> None:
        super().__init__(shut=0, nvmlDeviceGetCount=lambda: count)

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        self.shut += 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:
        return b"Old Card" if handle else "New Card"  # older packages answer bytes

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return (9 - handle, 0)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 << 30, free=79 << 30)

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1755

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x4

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:
        return 55

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=40, memory=10)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle:
            raise NvmlError("not supported")
        return 350_500

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7), SimpleNamespace(pid=5)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7)]


def test_nvml_answers_become_devices_and_states() -> None:
    reader: DeviceReader = NvmlDevices(FakeNvml())
    assert reader.devices()[0] == Device(
        index=0,
        name="New Card",
        uuid="GPU-0",
        driver="580.1",
        capability="9.0",
        memory_bytes=80 << 30,
        max_sm_clock_mhz=1980,
    )
    assert reader.states()[0] == DeviceState(
        index=0,
        memory_free_bytes=79 << 30,
        sm_clock_mhz=1755,
        throttle=("sw_power_cap",),
        temperature_c=55,
        power_w=350.5,
        pids=(5, 7),
        utilisation=0.4,
    )


def test_what_a_card_does_not_support_is_none() -> None:
    reader = NvmlDevices(FakeNvml())
    assert reader.devices()[1].name == "Old Card"
    assert reader.states()[1].power_w is None


def test_hidden_cards_are_not_read() -> None:
    assert [d.index for d in NvmlDevices(FakeNvml(), "1").devices()] == [1]
    assert [s.index for s in NvmlDevices(FakeNvml(), "1").states()] == [1]


def test_nvml_is_shut_down_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    reader = open_nvml()
    assert reader is not None
    reader.close()
    reader.close()
    assert fake.shut == 1


def test_without_package_driver_or_card_there_is_no_nvml_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvml() is None

    def no_driver() -> None:
        raise NvmlError("driver not loaded")

    broken = FakeNvml()
    broken.nvmlInit = no_driver
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    assert open_nvml() is None
    empty = FakeNvml(count=0)
    monkeypatch.setitem(sys.modules, "pynvml", empty)
    assert open_nvml() is None
    assert empty.shut == 1


SMI = {
    "--query-gpu=index,uuid": (
        "0, GPU-a, NVIDIA H100 80GB HBM3, 580.159, 9.0, 81559, 1980\n1, GPU-b, Old Card, 580.159, 7.5, 16384, [N/A]\n"
    ),
    "--query-gpu=index,memory": (
        "0, 80000, 1755, 41, 350.52, 0x0000000000000004, 97\n1, 16000, 300, [N/A], [N/A], [N/A], [N/A]\n"
    ),
    "--query-compute-apps": "GPU-a, 77\nGPU-b, 5\nGPU-a, 12\n",
}


def smi(arguments: Sequence[str]) -> str:
    return next(text for start, text in SMI.items() if arguments[0].startswith(start))


def test_nvidia_smi_answers_become_devices_and_states() -> None:
    reader: DeviceReader = SmiDevices(smi)
    first, second = reader.devices()
    assert (first.name, first.capability, first.memory_bytes) == ("NVIDIA H100 80GB HBM3", "9.0", 81559 << 20)
    assert (second.uuid, second.max_sm_clock_mhz) == ("GPU-b", None)
    state, other = reader.states()
    assert state == DeviceState(
        index=0,
        memory_free_bytes=80000 << 20,
        sm_clock_mhz=1755,
        throttle=("sw_power_cap",),
        temperature_c=41,
        power_w=350.52,
        pids=(12, 77),
        utilisation=0.97,
    )
    assert (other.power_w, other.throttle, other.pids, other.utilisation) == (None, (), (5,), None)


def test_nvidia_smi_that_fails_later_gives_states_that_know_nothing() -> None:
    answers = [smi, smi]

    def ask(arguments: Sequence[str]) -> str:
        if not answers:
            raise subprocess.CalledProcessError(9, "nvidia-smi")
        return answers.pop()(arguments)

    reader = SmiDevices(ask, "1")
    assert reader.states() == (DeviceState(index=1),)  # the second question already fails


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvml_module, "importlib", SimpleNamespace(import_module=_no_module))
    return tmp_path


def _no_module(name: str) -> Any:
    raise ImportError(name)


def test_the_nvidia_smi_program_is_the_second_choice(path: Path) -> None:
    program = path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-a, Card, 580, 9.0, 100, 200'\n")
    program.chmod(0o755)
    (found,) = open_devices({}).devices()
    assert (found.name, found.memory_bytes) == ("Card", 100 << 20)
    assert open_devices({"CUDA_VISIBLE_DEVICES": ""}).devices() == ()


def test_a_broken_or_missing_nvidia_smi_means_no_device(path: Path) -> None:
    assert open_devices({}).devices() == ()
    program = path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    program.chmod(0o755)
    assert open_devices({}).devices() == ()
