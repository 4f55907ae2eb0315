"""What of a machine's identity is seen without jax."""

from __future__ import annotations

from pathlib import Path

from tuner.machine import Environment, read_host
from tuner.machine.environment import mismatches
from tuner.machine.here import visible


def interpreter(folder: Path, *distributions: str, name: str = "python") -> Path:
    """A program in an installation that holds these distributions."""
    program = folder / "bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for distribution in distributions:
        (folder / "lib" / "python3.11" / "site-packages" / f"{distribution}.dist-info").mkdir(parents=True)
    return program


def card(folder: Path, name: str, model: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 40\n")


def test_the_host_is_seen(tmp_path: Path) -> None:
    host = read_host()
    assert visible(nvidia=tmp_path) == {
        "cpu": host.cpu,
        "cores": f"{host.usable_cores:g}",
        "kernel": host.kernel,
        "memory_gib": f"{host.memory_bytes / 2**30:.0f}",
    }


def test_versions_are_those_of_the_programs_own_installation(tmp_path: Path) -> None:
    """Of a virtual environment too, whose python is a link; and of a script that is installed beside it."""
    found = interpreter(
        tmp_path / "a",
        "jax-0.12.0",
        "jaxlib-0.12.1",
        "jax_cuda13_plugin-0.12.1",
        "nvidia_nccl_cu13-2.28.9",
        "jaxtyping-9",
    )
    expected = {"jax": "0.12.0", "jaxlib": "0.12.1", "jax-cuda13-plugin": "0.12.1", "nvidia-nccl-cu13": "2.28.9"}
    assert visible(str(found), nvidia=tmp_path).items() >= expected.items()
    venv = interpreter(tmp_path / "b", "jax-0.10.2", name="train")
    (venv.parent / "python").symlink_to(found)
    assert visible(str(venv.parent / "python"), nvidia=tmp_path)["jax"] == "0.10.2"
    assert visible("train", path=str(venv.parent), nvidia=tmp_path)["jax"] == "0.10.2"


def test_what_cannot_be_told_is_left_out(tmp_path: Path) -> None:
    """A program that isn't there, one of no installation, and one with a package in two versions."""
    twice = interpreter(tmp_path / "a", "jax-0.12.0", "jax-0.11.0", "jaxlib-0.12.0")
    assert "jax" not in visible(str(twice), nvidia=tmp_path)
    assert visible(str(twice), nvidia=tmp_path)["jaxlib"] == "0.12.0"
    assert "jax" not in visible("no-such-program", nvidia=tmp_path)


def test_cards_of_one_kind_are_a_device_kind(tmp_path: Path) -> None:
    for name in ("0000:01", "0000:02"):
        card(tmp_path / "one", name, "NVIDIA H100 80GB HBM3")
    assert visible(nvidia=tmp_path / "one")["device_kind"] == "NVIDIA H100 80GB HBM3"
    card(tmp_path / "one", "0000:03", "NVIDIA T4")
    assert "device_kind" not in visible(nvidia=tmp_path / "one")


def test_mismatches_are_named_both_ways() -> None:
    gpu = Environment(identity={"platform": "gpu", "device_kind": "H100", "jax": "0.12.0"}, context={"cpu": "A"})
    assert mismatches(gpu, {"device_kind": "H100", "cpu": "B", "cores": "3"}) == {}
    assert mismatches(gpu, {"device_kind": "NVIDIA T4", "jax": "0.12.0"}) == {"device_kind": ("H100", "NVIDIA T4")}
    cpu = Environment(identity={"platform": "cpu", "device_kind": "cpu", "cores": "2"}, context={})
    assert mismatches(cpu, {"device_kind": "NVIDIA T4", "cores": "1"}) == {"cores": ("2", "1")}
