"""The doctor's checks, on facts made up and on facts of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from doctor_samples import CARD, CPU, DISK, FINE, GPU, HOST, IDLE, ON_GPU, levels, of, report, with_
from handoff_samples import FASTER, keep_run, seal

from tuner.handoff.doctor import Finding, Level, diagnose
from tuner.handoff.doctor.checkup import Checkup
from tuner.handoff.doctor.facts import FolderFact, WorkloadFact
from tuner.handoff.target import Target
from tuner.machine import Device, DeviceState
from tuner.machine.process import this_process


def test_a_machine_without_faults_is_fine() -> None:
    assert levels(FINE) == levels(ON_GPU) == {"ok"}
    assert of(ON_GPU, "devices", "ok").what == "gpu: 2 x NVIDIA H100"


def test_whatever_is_wrong_has_a_fix_and_what_is_fine_has_none() -> None:
    busy = with_(
        ON_GPU,
        env={"XLA_FLAGS": "--a b", "XLA_FLAG": "", "NCCL_DEBUG": "INFO"},
        checkup=Checkup(python="3.11.1", ended="ended by SIGSEGV"),
        clocksource="hpet",
        governor="powersave",
        shm_bytes=64 << 20,
        host=msgspec.structs.replace(HOST, quota=1.5, load=9.0),
    )
    for finding in (*diagnose(busy), *diagnose(FINE)):
        assert bool(finding.fix) == (finding.level != "ok"), finding
        assert finding.what


# -- software --------------------------------------------------------------------------------------------------------


def test_an_interpreter_that_does_not_run_ends_the_checks_of_it() -> None:
    facts = with_(FINE, checkup=Checkup(ended="can't be started: No such file or directory"))
    assert "doesn't run: can't be started" in of(facts, "python", "fail").what
    assert not [f for f in diagnose(facts) if f.check in ("jax", "devices", "profiler", "cache")]


def test_a_missing_or_broken_jax_is_told_with_its_versions() -> None:
    gone = with_(FINE, checkup=Checkup(python="3.12.1", ended="ended with exit code 1", log=("No module named 'jax'",)))
    assert of(gone, "jax", "fail").fix == "/usr/bin/python -m pip install -U jax"
    said = "RuntimeError: jaxlib version 0.12.0 is newer than and incompatible with jax version 0.11.0"
    packages = {"jax": "0.11.0", "jaxlib": "0.12.0"}
    unfit = of(with_(FINE, checkup=Checkup(python="3.12.1", packages=packages, ended="x", log=(said,))), "jax", "fail")
    assert "jax 0.11.0, jaxlib 0.12.0" in unfit.what
    assert said in unfit.what
    assert unfit.fix.endswith("jax==0.11.0 jaxlib==0.11.0")


def test_a_plugin_must_have_jaxlibs_version() -> None:
    old = report(ON_GPU, packages={**GPU.packages, "jax-cuda13-plugin": "0.11.2"})
    found = of(old, "plugin", "fail")
    assert "jax-cuda13-plugin 0.11.2 does not fit jaxlib 0.12.0" in found.what
    assert '"jax[cuda13]==0.12.0"' in found.fix
    both = report(ON_GPU, packages={**GPU.packages, "jax-cuda12-plugin": "0.12.0"})
    assert "cuda12 and cuda13 are both installed" in of(both, "plugin", "warn").what


def test_a_card_that_jax_does_not_use_is_a_failure() -> None:
    """Silent fall-back to the CPU: numbers would be nonsense."""
    fallen = report(ON_GPU, platform="cpu", devices=("cpu",), backend_errors={"cuda": "no driver", "tpu": "no libtpu"})
    found = of(fallen, "devices", "fail")
    assert "jax runs on the CPU although there is NVIDIA H100: cuda: no driver" in found.what
    assert "libtpu" not in found.what
    without = report(ON_GPU, packages=CPU.packages, platform="cpu", devices=("cpu",))
    assert "no plugin" in of(without, "plugin", "fail").what
    told = report(ON_GPU, platform="cpu", devices=("cpu",), platforms="cpu")
    assert of(told, "devices", "warn").fix == "unset JAX_PLATFORMS"


def test_the_profilers_rights() -> None:
    assert of(with_(ON_GPU, profiling_restricted=True, administrator=True), "profiler", "ok")
    assert "NVreg_Restrict" in of(with_(ON_GPU, profiling_restricted=True), "profiler", "warn").fix
    blind = report(ON_GPU, traced="the trace holds nothing of the device")
    assert "PGLE will not work" in of(blind, "profiler", "warn").fix


# -- devices and host ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"utilisation": 0.97}, "97% busy"),
        ({"memory_free_bytes": 9 << 30}, "9.0 of 80.0 GiB free"),
        ({"pids": (7, 8)}, "processes 7 (python train.py), 1 that can't be seen from here"),
    ],
)
def test_what_else_uses_a_card_is_named(changes: dict[str, object], said: str) -> None:
    state = msgspec.structs.replace(IDLE, **changes)  # type: ignore[arg-type]
    found = of(with_(ON_GPU, states=(state,), processes={7: "python train.py"}), "in use", "warn")
    assert said in found.what
    assert "CUDA_VISIBLE_DEVICES" in found.fix


def test_another_tuner_is_named() -> None:
    stamp = this_process("tune nbody.py")
    found = of(with_(FINE, holders=(stamp,)), "in use", "warn")
    assert "tune nbody.py" in found.what
    assert str(os.getpid()) in found.fix


def test_throttled_and_slow_cards() -> None:
    hot = msgspec.structs.replace(IDLE, throttle=("sw_power_cap", "hw_thermal"), sm_clock_mhz=1100)
    found = of(with_(ON_GPU, states=(hot,)), "clocks", "warn")
    assert found.what == "NVIDIA H100 0 is throttled (hw_thermal): 1100 MHz of 1980, 30 °C, 70 W"
    slow = msgspec.structs.replace(IDLE, utilisation=1.0, throttle=())
    assert "busy and slow" in of(with_(ON_GPU, states=(slow,)), "clocks", "warn").what
    capped = msgspec.structs.replace(IDLE, throttle=("sw_power_cap",))
    assert of(with_(ON_GPU, states=(capped,)), "clocks", "ok")


def test_a_driver_that_knows_nothing_is_no_fault() -> None:
    facts = with_(ON_GPU, devices=(Device(index=0, name="A"),), states=(DeviceState(index=0),))
    assert of(facts, "in use", "ok").what == "A 0: nothing is known"
    assert of(facts, "clocks", "ok").what == "A 0: nothing is known"


def test_the_host() -> None:
    quota = with_(FINE, host=msgspec.structs.replace(HOST, quota=1.5))
    assert "taskset -c 0-0" in of(quota, "cpu", "warn").fix
    assert "stopped this group for 12 s" in of(with_(FINE, throttled_s=12.0), "cpu", "warn").what
    assert "9.0" in of(with_(FINE, host=msgspec.structs.replace(HOST, load=9.0)), "load", "warn").what
    assert "hpet" in of(with_(FINE, clocksource="hpet"), "clock", "warn").what
    assert of(with_(FINE, clocksource="kvm-clock"), "clock", "ok")
    assert "powersave" in of(with_(FINE, governor="powersave"), "clocks", "warn").what


@pytest.mark.parametrize(
    ("folder", "level", "said"),
    [
        (msgspec.structs.replace(DISK, trouble="permission denied"), "fail", "can't be written: permission denied"),
        (msgspec.structs.replace(DISK, trouble="read-only", purpose="cache"), "warn", "can't be written"),
        (msgspec.structs.replace(DISK, free_bytes=1 << 20), "fail", "too little"),
        (msgspec.structs.replace(DISK, free_bytes=1 << 30), "warn", "1.0 GiB free"),
        (msgspec.structs.replace(DISK, network="nfs4"), "warn", "network filesystem (nfs4)"),
    ],
)
def test_folders(folder: FolderFact, level: Level, said: str) -> None:
    assert said in of(with_(FINE, folders=(folder,)), "disk", level).what


def test_shared_memory_matters_to_several_cards_alone() -> None:
    assert of(with_(ON_GPU, shm_bytes=64 << 20), "disk", "ok")
    two = with_(ON_GPU, devices=(CARD, CARD), states=(IDLE, IDLE), shm_bytes=64 << 20)
    assert "/dev/shm has 64 MiB" in of(two, "disk", "warn").what


# -- variables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("JAX_COMPILATION_CACHE_DIRECTORY", "JAX_COMPILATION_CACHE_DIR"),
        ("JAX_ENABLE_X46", "JAX_ENABLE_X64"),
        ("XLA_FLAG", "XLA_FLAGS"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTON", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        ("TF_XLA_FLAGS", "XLA_FLAGS"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE"),
        ("NCCL_ALGOO", "NCCL_ALGO"),
        ("NCCL_IB_TIME_OUT", "NCCL_IB_TIMEOUT"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_name_that_only_looks_right_gets_the_right_one(name: str, meant: str) -> None:
    found = of(with_(FINE, env={name: "1"}), "variables", "warn")
    assert found.what.startswith(f"{name}: ")
    assert "read" in found.what
    assert found.fix == f"did you mean {meant}?"


@pytest.mark.parametrize(
    "name",
    [
        "JAX_ENABLE_X64",
        "XLA_FLAGS",
        "NCCL_DEBUG",
        "CUDA_HOME",
        "NCCL_VERSION",
        "NCCL_OUR_OWN_PLUGINS_NAME",
        "PATH",
        "XLAB_X",
    ],
)
def test_names_that_are_read_or_that_nobody_knows_are_left_alone(name: str) -> None:
    assert of(with_(FINE, env={name: ""}), "variables", "ok")


def test_a_name_that_another_jax_version_reads_is_told() -> None:
    found = of(with_(FINE, env={"JAX_OLD_SETTING_OF_ANOTHER_KIND": "1"}), "variables", "warn")
    assert found.what == "JAX_OLD_SETTING_OF_ANOTHER_KIND: jax 0.12.0 does not read it"
    blind = with_(FINE, env={"JAX_OLD_SETTING_OF_ANOTHER_KIND": "1"}, checkup=Checkup(python="3.12.1"))
    assert of(blind, "variables", "ok")


def test_the_installed_nccl_has_the_last_word_on_its_names() -> None:
    facts = report(with_(FINE, env={"NCCL_NEWEST": "1", "NCCL_ALGO": "1"}), names=("NCCL_NEWEST", "NCCL_ALGO"))
    assert of(facts, "variables", "ok")


def test_flags_that_xla_would_misread_or_refuse() -> None:
    found = of(with_(FINE, env={"XLA_FLAGS": "--xla_a=1 foo=1 --xla_b=2"}), "XLA_FLAGS", "fail")
    assert "'foo=1'" in found.what
    assert "xla_b" in found.what
    log = ("F1128 05:14:28.997907   29016 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_nope=1",)
    dead = msgspec.structs.replace(CPU, platform="", devices=(), traced=None, ended="ended with exit code 1", log=log)
    facts = with_(FINE, env={"XLA_FLAGS": "--xla_nope=1"}, checkup=dead)
    assert (
        of(facts, "XLA_FLAGS", "fail").what == "this jaxlib ends the process: Unknown flag in XLA_FLAGS: --xla_nope=1"
    )
    devices = of(facts, "devices", "fail")
    assert "Unknown flag in XLA_FLAGS: --xla_nope=1 (ended with exit code 1)" in devices.what
    assert "parse_flags_from_env" not in devices.what
    assert "XLA_FLAGS" in devices.fix
    assert of(with_(FINE, env={"XLA_FLAGS": ""}), "XLA_FLAGS", "ok").what == "set and empty"


def test_pins_are_told() -> None:
    found = of(with_(FINE, env={"NCCL_DEBUG": "INFO", "NVSHMEM_X": "1"}), "pins", "ok")
    assert "NCCL_DEBUG, NVSHMEM_X" in found.what


# -- cache and workload ----------------------------------------------------------------------------------------------

CACHE = {
    "jax_enable_compilation_cache": "True",
    "jax_compilation_cache_dir": "/cache",
    "jax_compilation_cache_max_size": "-1",
    "jax_persistent_cache_min_compile_time_secs": "0.0",
    "jax_persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
}


@pytest.mark.parametrize(
    ("changes", "jax", "said"),
    [
        ({"jax_enable_compilation_cache": "False"}, "0.12.0", "switched off"),
        ({"jax_compilation_cache_max_size": "1000"}, "0.12.0", "filelock"),
        ({"jax_persistent_cache_min_compile_time_secs": "1.0"}, "0.12.0", "under 1 s is not kept"),
        ({}, "0.10.2", "the folder's path is in the key"),
        ({"jax_persistent_cache_enable_xla_caches": "all"}, "0.12.0", "the folder's path is in the key"),
    ],
)
def test_cache_settings_that_cost_hits(changes: dict[str, str], jax: str, said: str) -> None:
    assert said in of(report(FINE, cache={**CACHE, **changes}, jax=jax), "cache", "warn").what
    assert of(report(FINE, cache=CACHE), "cache", "ok").what == "in /cache, everything is kept"


def test_a_workloads_result_is_compared_with_this_place(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "entry").write_bytes(b"x")
    (tmp_path / "f.py").write_text("")
    environment = msgspec.structs.replace(FASTER.environment, context={"zstandard": "yes"})
    manifest = msgspec.structs.replace(FASTER, environment=environment)
    bundle = seal(keep_run(tmp_path, tmp_path / "f.py", "f-1"), manifest, cache=tmp_path / "c")

    def said(target: Target) -> list[Finding]:
        facts = with_(FINE, workload=WorkloadFact(path="f.py", target=target))
        return [finding for finding in diagnose(facts) if finding.check == "result"]

    fits, keys = said(Target(bundle=bundle))
    assert (fits.level, fits.what) == ("ok", "run f-1, faster, fits this machine")
    assert (keys.level, keys.fix) == ("warn", "/usr/bin/python -m pip install zstandard")
    assert "jax is 0.12, not 0.10" in said(Target(bundle=bundle, unlike={"jax": ("0.10", "0.12")}))[0].what
    assert "has changed since" in said(Target(bundle=bundle, edited=True))[0].what
    assert said(Target(why="not tuned yet"))[0].what == "not tuned yet"
    broken = with_(FINE, workload=WorkloadFact(path="f.py", trouble="no such file", next="check the path"))
    assert of(broken, "workload", "fail").fix == "check the path"
