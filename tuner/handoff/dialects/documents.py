"""Dialects for programs: the settings as JSON, flags in a file of their own, compile options as Python."""

from __future__ import annotations

import msgspec

from tuner.errors import UsageError
from tuner.handoff.cache import production
from tuner.handoff.dialects.content import Content, Dialect
from tuner.handoff.dialects.text import comments, joined, refuse
from tuner.protocol.xla_flags import file_of, parse

__all__ = ["FLAGS_FILE", "JSON", "PYTHON"]

_XLA_FLAGS = "XLA_FLAGS"


def _json(content: Content, file: str) -> str:
    best = msgspec.structs.replace(content.best, env=content.set, unset=content.unset)
    return msgspec.json.format(msgspec.json.encode(best), indent=2).decode() + "\n"


def _flags(content: Content, file: str) -> str:
    """One flag a line, as they stand in XLA_FLAGS, and nothing else: the first other word ends XLA's reading."""
    others = [name for name in content.env if name != _XLA_FLAGS and name not in production()]
    if others:
        raise UsageError(
            f"a file of XLA flags can't set or unset {', '.join(others)}",
            where="--format flags-file",
            next="use --format shell, or json for a program of your own",
        )
    text = content.set.get(_XLA_FLAGS, "")
    if file_of(text) is not None:
        raise refuse(_XLA_FLAGS, f"it already names a file, {text}", next="use that file")
    return joined([flag.raw for flag in parse(text)])


def _python(content: Content, file: str) -> str:
    options = content.best.options
    if options is None:
        raise UsageError(
            f"some of these act on the whole process: {', '.join(content.best.settings or content.env)}",
            where="--format python",
            next="use --format shell, or another one that sets variables",
        )
    about = [
        *content.about,
        "Load: jax.jit(step, compiler_options=compiler_options), for that one function alone",
        "Not together with a file that sets XLA_FLAGS, and not for a jit that is called inside another one",
    ]
    if options.jax_config:
        about.append("Before the first call: for name, value in jax_config.items(): jax.config.update(name, value)")
    lines = [*comments(about), f"compiler_options = {_literal(options.compiler_options)}"]
    if options.jax_config:
        lines.append(f"jax_config = {_literal(options.jax_config)}")
    return joined(lines)


def _literal(values: dict[str, str | int | float | bool]) -> str:
    if not values:
        return "{}"
    return "{\n" + "".join(f"    {name!a}: {value!a},\n" for name, value in sorted(values.items())) + "}"


JSON = Dialect(
    name="json",
    consumer="any program",
    file="best.json",
    write=_json,
    unsets=True,
    comments=False,
    note="Load: set what is under env, remove what is under unset, before jax is imported",
)
FLAGS_FILE = Dialect(
    name="flags-file",
    consumer="XLA_FLAGS=/path/to/file",
    file="best.flags",
    write=_flags,
    comments=False,
    note="Load: XLA_FLAGS=/path/to/file. That path becomes part of the compilation cache's key: the step is not found "
    "in the sealed cache, and each path has entries of its own",
)
PYTHON = Dialect(name="python", consumer="jax.jit(…, compiler_options=…)", file="best.py", write=_python, unsets=True)
