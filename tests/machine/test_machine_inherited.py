from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tuner.machine.inherited import inherited, relevant


def test_inherited_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--a=1")
    copy = inherited()
    assert copy["XLA_FLAGS"] == "--a=1"
    copy["XLA_FLAGS"] = "changed"
    assert os.environ["XLA_FLAGS"] == "--a=1"


def test_only_what_can_change_a_jax_program_is_relevant() -> None:
    kept = {
        "CUDA_VISIBLE_DEVICES": "0",
        "JAX_ENABLE_X64": "1",
        "LD_PRELOAD": "libtcmalloc.so",
        "LIBTPU_INIT_ARGS": "",
        "NCCL_ALGO": "Ring",
        "NVSHMEM_DISABLE_NCCL": "1",
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "1",
        "TF_GPU_ALLOCATOR": "x",
        "TORCH_SYMM_MEM_ALLOW": "1",
        "XLA_FLAGS": "",
    }
    found = relevant(kept | {"HOME": "/root", "PATH": "/bin", "MY_XLA_FLAGS": "x", "TERM": "xterm"})
    assert list(kept.items()) == list(found.items())


@pytest.mark.parametrize("name", ["JAX_API_TOKEN", "NCCL_SECRET", "TF_KEY", "XLA_AUTH", "JAX_password", "TF_APIKEY"])
def test_secrets_are_never_taken(name: str) -> None:
    assert relevant({name: "hunter2", "XLA_FLAGS": ""}) == {"XLA_FLAGS": ""}


def test_a_word_inside_another_is_no_secret() -> None:
    assert relevant({"XLA_KEYWORDS": "a", "TF_XLA_MONKEY": "b"}) == {"TF_XLA_MONKEY": "b", "XLA_KEYWORDS": "a"}


def reads_environment(path: Path) -> bool:
    text = path.read_text()
    return ("environ" in text or "getenv" in text) and any(
        (isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.environb", "os.getenv"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any("env" in a.name for a in node.names))
        for node in ast.walk(ast.parse(text))
    )


@pytest.mark.slow
def test_no_other_library_module_reads_the_environment() -> None:
    """The CLI and the worker process may; it is their own environment."""
    package = Path(tuner.__file__).parent
    modules = [p for p in package.rglob("*.py") if p.relative_to(package).parts[0] not in ("cli", "worker")]
    assert [p.relative_to(package).as_posix() for p in modules if reads_environment(p)] == ["machine/inherited.py"]


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, tuner.machine\n"
        "heavy = {'jax', 'psutil', 'pynvml', 'importlib.metadata'} & sys.modules.keys()\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0
