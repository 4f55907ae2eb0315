"""Which jax an interpreter would import, without importing it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import msgspec

from tuner.errors import UsageError

__all__ = ["Interpreter", "read_interpreter"]

_PACKAGES = (
    "jax",
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "jax-rocm7-plugin",
    "jax-rocm7-pjrt",
    "libtpu",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
)
_TIMEOUT_S = 60.0

# Runs under the other interpreter. The first entry of sys.path is the current folder, whose files must not stand in
# for the standard library's.
_ASK = """
import sys
sys.path = [p for p in sys.path if p]
import importlib.metadata, json, platform
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps([platform.python_version(), found]))
"""


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """`path`: absolute, links kept (a virtual environment's python is a link). `packages`: name → version of jax,
    jaxlib and what else decides about the compiler."""

    path: str
    python: str
    packages: dict[str, str]


def read_interpreter(python: str = sys.executable) -> Interpreter:
    """What the interpreter `python` (a path, or a name on the search path) would run with.

    Raises UsageError if there is no such program, it doesn't run, or it has no jax.
    """
    found = shutil.which(python)
    if found is None:
        raise UsageError(
            f"there is no program {python}", where="--python", next="give the path of a Python that has jax"
        )
    path = os.path.abspath(found)
    version, packages = _own() if path == os.path.abspath(sys.executable) else _ask(path)
    for name in ("jax", "jaxlib"):
        if name not in packages:
            raise UsageError(f"{path} has no {name}", where="--python", next=f"{path} -m pip install jax")
    return Interpreter(path=path, python=version, packages=packages)


def _own() -> tuple[str, dict[str, str]]:
    import importlib.metadata  # slow to import: it pulls in email and zipfile

    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return sys.version.split()[0], packages


def _ask(path: str) -> tuple[str, dict[str, str]]:
    try:
        done = subprocess.run(
            [path, "-c", _ASK, *_PACKAGES],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        version, packages = json.loads(done.stdout.splitlines()[-1])  # a sitecustomize may print before it
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["nothing"])[-1]
        raise _unusable(path, f"it ended with status {error.returncode} and said: {said}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise _unusable(path, str(error)) from error
    except (ValueError, IndexError) as error:
        raise _unusable(path, "it answers nothing that a Python would") from error
    return version, packages


def _unusable(path: str, why: str) -> UsageError:
    return UsageError(
        f"{path} doesn't run as a Python: {why}", where="--python", next="give the path of a Python that has jax"
    )
