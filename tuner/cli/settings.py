"""Settings: what each option is worth, from the option, its TUNER_* variable, a settings file, or its default.

A settings file is ``tuner.toml``, or the table ``[tool.tuner]`` in ``pyproject.toml``; the first one found in the
current folder or above it counts, ``tuner.toml`` before ``pyproject.toml`` in the same folder. A source that gives a
setting replaces what later sources say of it; lists are not merged. Paths in a file are relative to that file.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from tuner.cli.params import (
    ASSIGNMENT,
    COUNT,
    DURATION,
    FRACTION,
    INTEGER,
    INTERPRETER,
    MEMORY,
    STORE,
    SWITCH,
    TEXT,
    VARIABLE,
    ParamType,
)
from tuner.cli.suggest import did_you_mean
from tuner.errors import UsageError

__all__ = ["SETTINGS", "Chosen", "Setting", "SettingsFile", "choose", "converted", "find_file", "stray_variables"]

PREFIX = "TUNER_"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. `default` None: left to the run, as `unset` says. `many`: may be given more than once."""

    name: str
    type: ParamType
    help: str
    default: str | None = None
    unset: str = ""
    metavar: str | None = None
    many: bool = False

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper().replace("-", "_")

    @property
    def option(self) -> str:
        return f"--{self.name}"


_ALL = (
    Setting(
        name="space",
        type=TEXT,
        many=True,
        metavar="FILE|NAME",
        unset="by platform",
        help="Search space: a TOML file, or the name of one that comes with tune. Repeatable.",
    ),
    Setting(
        name="budget", type=DURATION, default="10m", metavar="TIME", help="Time for the whole run: 90s, 10m, 1h30m."
    ),
    Setting(
        name="trials",
        type=COUNT,
        metavar="N",
        unset="no limit",
        help="At most N trials of the sampler, after presets and single settings.",
    ),
    Setting(
        name="min-gain",
        type=FRACTION,
        default="0.5%",
        metavar="SHARE",
        help="Smallest gain worth having: 0.5% or 0.005.",
    ),
    Setting(
        name="objective",
        type=click.Choice(["mean", "p50", "p99", "throughput"]),
        default="mean",
        help="Make small: mean, p50 or p99 step time, or time per work.",
    ),
    Setting(
        name="max-memory",
        type=MEMORY,
        metavar="SIZE",
        unset="no limit",
        help="Most device memory a step may need: 70GiB or 90%.",
    ),
    Setting(
        name="first",
        type=TEXT,
        many=True,
        metavar="GROUP",
        unset="the space's order",
        help="Screen this group of knobs first; tune profile names those that fit. Repeatable.",
    ),
    Setting(
        name="knob",
        type=ASSIGNMENT,
        many=True,
        metavar="NAME=VALUE",
        unset="none",
        help="Hold a knob at one value for the whole run, the default included. Repeatable.",
    ),
    Setting(
        name="platform",
        type=click.Choice(["cpu", "gpu"]),
        unset="the one JAX picks",
        help="Tune for this platform.",
    ),
    Setting(
        name="allow",
        type=click.Choice(["numerics"]),
        many=True,
        unset="nothing",
        help="Admit, and label, settings that trade accuracy.",
    ),
    Setting(
        name="launch",
        type=TEXT,
        metavar="COMMAND",
        unset="none",
        help="Start the workload's processes with it, on several hosts: 'srun -N 2'.",
    ),
    Setting(
        name="seal-with",
        type=TEXT,
        metavar="COMMAND",
        unset="none",
        help="Production's own command: seals what it compiles too, and proves it: 'python train.py --steps 2'.",
    ),
    Setting(name="seal-time", type=DURATION, default="2m", metavar="TIME", help="After so long --seal-with is ended."),
    Setting(
        name="pgle",
        type=click.Choice(["cache", "file", "auto"]),
        default="cache",
        help="Deliver a PGLE profile in the sealed cache, as a file, or have JAX take it.",
    ),
    Setting(
        name="install-path",
        type=TEXT,
        metavar="DIR",
        unset="the run's folder",
        help="With --pgle file: where the profile will be in production.",
    ),
    Setting(name="require-gain", type=SWITCH, default="no", help="Exit with 4 if nothing faster was proved."),
    Setting(
        name="override",
        type=VARIABLE,
        many=True,
        metavar="NAME",
        unset="none",
        help="Let knobs change this inherited variable. Repeatable.",
    ),
    Setting(
        name="python",
        type=INTERPRETER,
        metavar="PATH",
        unset="the one that runs tune",
        help="Interpreter that runs the workload.",
    ),
    Setting(name="store", type=STORE, default=".tuner", metavar="URL|DIR", help="Where runs are kept."),
    Setting(name="seed", type=INTEGER, default="0", metavar="N", help="Orders rounds and seeds the sampler."),
    Setting(name="quiet", type=SWITCH, default="no", help="Show no progress and no notices, only the result."),
    Setting(name="debug", type=SWITCH, default="no", help="Show tracebacks."),
)

SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _ALL}


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What a setting is worth. `where`: the option, the variable, the file; "" for a default."""

    setting: Setting
    value: Any
    source: Literal["option", "variable", "file", "default"]
    where: str = ""


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A settings file as found: `path`, the table's name in it ("" in tuner.toml), and what it says by setting."""

    path: Path
    table: str
    values: Mapping[str, Any]

    def place(self, name: str) -> str:
        return f"{self.path}: {self.table}.{name}" if self.table else f"{self.path}: {name}"


def choose(given: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> dict[str, Chosen]:
    """Every setting by name. `given`: converted options, without those the user left out.

    Raises UsageError for a value that does not fit, an unknown key in the file, and a variable that nearly is ours.
    """
    for name, meant in stray_variables(environ).items():
        if meant:
            raise UsageError(f"unknown variable {name}; did you mean {meant}?", where=name, next=f"unset {name}")
    file = find_file(folder)
    return {setting.name: _choose_one(setting, given, environ, file) for setting in SETTINGS.values()}


def stray_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """TUNER_* variables that no setting reads, each with the one that it resembles, or ""."""
    known = [setting.variable for setting in SETTINGS.values()]
    strays = [name for name in sorted(environ) if name.startswith(PREFIX) and name not in known]
    ends = {variable.removeprefix(PREFIX): variable for variable in known}
    return {name: ends.get(did_you_mean(name.removeprefix(PREFIX), ends), "") for name in strays}


def find_file(folder: Path) -> SettingsFile | None:
    """The settings file that counts in `folder`. Raises UsageError if it can't be read or holds unknown keys."""
    for place in (folder, *folder.parents):
        own, shared = place / "tuner.toml", place / "pyproject.toml"
        if own.is_file():
            return _checked(SettingsFile(path=own, table="", values=_load(own)))
        if shared.is_file():
            tool = _load(shared).get("tool", {})
            table = tool.get("tuner") if isinstance(tool, dict) else None
            if table is not None:
                if not isinstance(table, dict):
                    raise UsageError("is not a table", where=f"{shared}: tool.tuner", next="write [tool.tuner]")
                return _checked(SettingsFile(path=shared, table="tool.tuner", values=table))
    return None


def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"malformed TOML: {error}", where=str(path), next="correct the file") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"can't be read: {reason}", where=str(path), next="check its permissions") from None


def _checked(file: SettingsFile) -> SettingsFile:
    """`file` with its keys in the options' spelling (``min_gain`` is ``min-gain``)."""
    values: dict[str, Any] = {}
    for key, value in file.values.items():
        name = key.replace("_", "-")
        if name not in SETTINGS:
            meant = did_you_mean(name, SETTINGS)
            raise UsageError(
                f"unknown setting {key!r}" + (f"; did you mean {meant}?" if meant else ""),
                where=str(file.path),
                next="`tune config` lists the settings",
            )
        if name in values:
            raise UsageError(f"{name} is given twice", where=file.place(key), next="keep one of them")
        values[name] = value
    return SettingsFile(path=file.path, table=file.table, values=values)


def _choose_one(
    setting: Setting, given: Mapping[str, Any], environ: Mapping[str, str], file: SettingsFile | None
) -> Chosen:
    name, variable = setting.name, setting.variable
    if name in given:
        value = _joined(setting, given[name], setting.option)
        return Chosen(setting=setting, value=value, source="option", where=setting.option)
    if environ.get(variable):
        value = _converted(setting, _words(setting, environ[variable]), variable)
        return Chosen(setting=setting, value=value, source="variable", where=variable)
    if file is not None and name in file.values:
        place = file.place(name)
        texts = [_anchored(name, text, file.path.parent) for text in _texts(setting, file.values[name], place)]
        return Chosen(setting=setting, value=_converted(setting, texts, place), source="file", where=place)
    return Chosen(setting=setting, value=_default(setting), source="default")


def converted(setting: Setting, value: Any) -> Any:
    """`value` as a program gives it, held to what the option takes: a text or a number; of several, a list; None or an
    empty list for the default. Raises UsageError."""
    if value is None or value == []:
        return _default(setting)
    if setting.type is MEMORY and isinstance(value, float):
        value = f"{value:%}"  # a share; a number of bytes is an int
    texts = [str(one) for one in value] if setting.many else [str(value)]
    return _converted(setting, texts, setting.name.replace("-", "_"))


def _default(setting: Setting) -> Any:
    if setting.name == "python":
        return sys.executable
    if setting.many:
        return _joined(setting, (), "")
    return None if setting.default is None else _converted(setting, [setting.default], "")


def _words(setting: Setting, text: str) -> list[str]:
    """A variable's values: one, or words as a shell would split them."""
    if not setting.many:
        return [text]
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} can't be split into words: {error}", where=setting.variable, next="balance the quotes"
        ) from None


def _texts(setting: Setting, value: Any, place: str) -> list[str]:
    """A TOML value as the texts an option would get."""
    if setting.name == "knob":
        if not isinstance(value, dict):
            raise UsageError('is not a table; write NAME = "VALUE" in it', where=place, next="correct the file")
        return [f"{name}={_text(entry, place)}" for name, entry in value.items()]
    if isinstance(value, list):
        if not setting.many:
            raise UsageError("takes one value, not a list", where=place, next="correct the file")
        return [_text(entry, place) for entry in value]
    return [_text(value, place)]


def _text(value: Any, place: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise UsageError(f"{value!r} is neither a text nor a number", where=place, next="correct the file")


def _anchored(name: str, text: str, folder: Path) -> str:
    """`text` with a path in it made relative to `folder`, the settings file's own."""
    is_path = {
        "space": os.sep in text or text.endswith(".toml"),
        "python": os.sep in text,
        "store": bool(text) and "://" not in text,
        "install-path": bool(text),
    }
    return str(folder / os.path.expanduser(text)) if is_path.get(name, False) else text


def _converted(setting: Setting, texts: list[str], place: str) -> Any:
    try:
        values = [setting.type.convert(text, None, None) for text in texts]
    except click.BadParameter as error:
        raise UsageError(error.message, where=place, next=f"see {setting.option} in `tune run --help`") from None
    return _joined(setting, tuple(values), place) if setting.many else values[0]


def _joined(setting: Setting, values: Any, place: str) -> Any:
    """The value of a setting from its converted values: knobs as a dict, other lists without repetition."""
    if not setting.many:
        return values
    if setting.name != "knob":
        return tuple(dict.fromkeys(values))
    held: dict[str, str] = {}
    for name, value in values:
        if held.setdefault(name, value) != value:
            raise UsageError(
                f"{name} is given twice, as {held[name]!r} and as {value!r}", where=place, next="keep one of them"
            )
    return held
