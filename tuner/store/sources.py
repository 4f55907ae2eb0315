"""What a workload is made of: its file and the modules beside it that it imports."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.errors import WorkloadError
from tuner.protocol.package import Package, package_of

__all__ = ["local_sources", "workload_digest"]


def workload_digest(workload: Path) -> str:
    """16 hex digits of the workload's file and of all local modules that it imports, wherever the folder lies.

    Raises WorkloadError if the file can't be read.
    """
    workload = workload.resolve()
    folder = package_of(workload, _read(workload)).outermost
    digest = hashlib.sha256()
    for path in local_sources(workload):
        name = path.relative_to(folder).as_posix().encode()
        content = _read(path)
        # Lengths keep apart what would otherwise run into each other.
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.hexdigest()[:16]


def local_sources(workload: Path) -> tuple[Path, ...]:
    """The workload's file, then the files under its folder, or its package's, that its imports reach, in order of name;
    full paths.

    Imports are read, never executed: one whose name is computed isn't seen. A file that this Python can't parse
    contributes itself and no imports; the worker will say what is wrong with it.
    """
    workload = workload.resolve()
    package = package_of(workload, _read(workload))
    found: set[Path] = set()
    waiting = [workload, *_files(package.first, package.names)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path, package)
    return (workload, *sorted(found - {workload}))


def _imported(path: Path, package: Package) -> Iterator[Path]:
    try:
        tree = ast.parse(_read(path))
    except (SyntaxError, ValueError):
        return
    bases = [package.first] if package.last is None else [package.first, package.last]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for base in bases:
                    yield from _files(base, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parents = bases
            if node.level:  # from . import x: relative to the file's own package
                parents = [path.parent.joinpath(*[".."] * (node.level - 1)).resolve()]
                if not parents[0].is_relative_to(package.outermost):
                    continue
            parts = node.module.split(".") if node.module else []
            for base in parents:
                yield from _files(base, parts)
                for alias in node.names:  # each may be a module of the package, or a name in it
                    yield from _files(base.joinpath(*parts), [alias.name])


def _files(base: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The files that importing the dotted name `parts` from `base` executes, as far as they lie there."""
    for depth in range(1, len(parts) + 1):
        module = base.joinpath(*parts[:depth])
        for file in (module / "__init__.py", module.with_name(module.name + ".py")):
            if file.is_file():
                yield file
                break


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorkloadError(
            f"can't be read: {error.strerror or error}", where=str(path), next="give the path of a Python file"
        ) from error
