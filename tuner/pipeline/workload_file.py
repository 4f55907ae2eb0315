"""What can be known of a workload file without executing it."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

import msgspec

from tuner.errors import UsageError, WorkloadError
from tuner.store.find import similar_files

__all__ = ["WorkloadFile", "inspect", "typed_knob"]


class WorkloadFile(msgspec.Struct, frozen=True, kw_only=True):
    """`source`: "build" if a top-level ``def build`` is there, else "script". `parameters`: those of build();
    `open_ended` if it takes ``**kwargs``; `defaults`: the texts of those defaults that are written as literals."""

    path: Path
    source: str
    parameters: tuple[str, ...] = ()
    open_ended: bool = False
    defaults: dict[str, str] = {}

    def check_knob(self, name: str, known: frozenset[str]) -> None:
        """Raises UsageError unless build() takes `name`; `known` are the search space's names, for the suggestion."""
        if self.open_ended or name in self.parameters:
            return
        close = difflib.get_close_matches(name, sorted(known | set(self.parameters)), n=3, cutoff=0.5)
        raise UsageError(
            f"unknown knob {name!r}: neither the search space nor build() in {self.path.name} has it"
            + (f"; did you mean {' or '.join(close)}?" if close else ""),
            where="--knob",
            next="tune knobs lists what there is",
        )


def inspect(path: Path) -> WorkloadFile:
    """Raises WorkloadError if the file is missing, not a file, or not Python."""
    if not path.exists():
        module = Path(*str(path).split("."))  # as `python -m` takes it; of dots alone nothing is left
        file = module.with_suffix(".py") if module.name else path
        near = [file] if file.is_file() else similar_files(path)
        hint = f"did you mean {' or '.join(map(str, near))}?" if near else "check the path"
        raise WorkloadError("no such file", where=str(path), next=hint)
    if path.is_dir():
        main = path / "__main__.py"
        hint = f"did you mean {main}?" if main.is_file() else "name one workload file"
        raise WorkloadError("is a folder, not a Python file", where=str(path), next=hint)
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise WorkloadError(
            f"is not Python: {error.msg if isinstance(error, SyntaxError) else error}",
            where=f"{path}:{line}" if line else str(path),
            next="fix the file; python -m py_compile shows the same error",
        ) from None
    except OSError as error:
        raise WorkloadError(f"can't be read: {error.strerror}", where=str(path), next="check its permissions") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "build":
            arguments = node.args
            names = tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
            return WorkloadFile(
                path=path,
                source="build",
                parameters=names,
                open_ended=arguments.kwarg is not None,
                defaults=_defaults(arguments),
            )
    return WorkloadFile(path=path, source="script")


def _defaults(arguments: ast.arguments) -> dict[str, str]:
    """Parameter → its default as KNOBS would write it, where that is a literal of a simple type."""
    placed = [*arguments.posonlyargs, *arguments.args]
    given: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(placed[len(placed) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    texts = {}
    for parameter, node in given:
        try:
            value = ast.literal_eval(node) if node is not None else None
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, (str, int, float)):
            texts[parameter.arg] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def typed_knob(text: str) -> str | int | float | bool:
    """The value of `--knob NAME=text` for build(): a Python literal of a simple type, else the text itself."""
    lowered = {"true": True, "false": False}.get(text.lower())
    if lowered is not None:
        return lowered
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, (str, int, float, bool)) else text
