"""Whether a workload's file is part of a package, and where Python then looks for what it imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Package", "package_of"]


@dataclass(frozen=True)
class Package:
    """`names`: the package that the file runs in, as under `python -m`; () for one that runs as `python FILE`.
    `first`: the folder that imports look in before any other. `last`: one after all others, or None."""

    names: tuple[str, ...]
    first: Path
    last: Path | None = None

    @property
    def outermost(self) -> Path:
        """The folder that holds all that the file may import beside it."""
        return self.last or self.first


def package_of(path: Path, source: bytes) -> Package:
    """Of the file `path` with this text. One with relative imports can only run in its package, which begins at the
    outermost folder that has an __init__.py, or as many folders up as the imports go. One that imports a module of a
    folder around it by that folder's name was written to be run from outside of it. What is no Python is in no package.
    """
    path = path.resolve()
    folders = path.parents
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return Package((), path.parent)
    depth = max((node.level for node in nodes if isinstance(node, ast.ImportFrom)), default=0)
    if 0 < depth < len(folders):
        while depth + 1 < len(folders) and (folders[depth] / "__init__.py").is_file():
            depth += 1
        return Package(tuple(folder.name for folder in reversed(folders[:depth])), folders[depth])
    imports = [alias.name.split(".") for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            imports += [[*node.module.split("."), alias.name] for alias in node.names]
    return Package(
        (), path.parent, next((f.parent for f in folders if any(_holds(f, *parts) for parts in imports)), None)
    )


def _holds(folder: Path, top: str, inner: str = "", *_deeper: str) -> bool:
    """Whether the module `top`.`inner` is in `folder`."""
    return folder.name == top and bool(inner) and ((folder / inner).is_dir() or (folder / f"{inner}.py").is_file())
