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
        return self.first if self.names else self.last or self.first


def package_of(path: Path, source: bytes) -> Package:
    """Of the file `path` with this text. One with relative imports can only run in its package, which begins at the
    outermost folder that has an __init__.py, or as many folders up as the imports go. Its own folder comes last: such
    an import may be one that never runs, or may fail and have another in its place. A folder with a dot in its name is
    no package. A file that imports a module of a folder around it by that folder's name was written to be run from
    outside of it. What is no Python is in no package.
    """
    path = path.resolve()
    folders = path.parents
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return Package((), path.parent)
    depth = max((node.level for node in nodes if isinstance(node, ast.ImportFrom)), default=0)
    if 0 < depth < len(folders) and all(map(_can_be_package, folders[:depth])):
        while depth + 1 < len(folders) and _can_be_package(folders[depth]) and _is_package(folders[depth]):
            depth += 1
        names = tuple(folder.name for folder in reversed(folders[:depth]))
        # A module wins over a folder without __init__.py wherever both lie, and would be taken for the package.
        hidden = not _is_package(folders[depth - 1]) and _has_module(path.parent, names[0])
        return Package(names, folders[depth], None if hidden else path.parent)
    imports = [alias.name.split(".") for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            imports += [[*node.module.split("."), alias.name] for alias in node.names]
    return Package(
        (), path.parent, next((f.parent for f in folders if any(_holds(f, *parts) for parts in imports)), None)
    )


def _can_be_package(folder: Path) -> bool:
    """Whether an import could name it. A hyphen does no harm: `python -m my-project.train` works."""
    return "." not in folder.name


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _has_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or _is_package(folder / name)


def _holds(folder: Path, top: str, inner: str = "", *_deeper: str) -> bool:
    """Whether the module `top`.`inner` is in `folder`."""
    return folder.name == top and bool(inner) and ((folder / inner).is_dir() or (folder / f"{inner}.py").is_file())
