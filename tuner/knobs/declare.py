"""One search-space file: TOML text → knobs, presets and forbidden combinations, every fault with its place."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from tuner.errors import SpaceError
from tuner.knobs.applies import range_complaint
from tuner.knobs.knob import TIERS, UNSET, Forbid, Knob, Preset, When
from tuner.knobs.pgle import PGLE, recipe
from tuner.knobs.scale import KINDS, share
from tuner.knobs.values import complaint, text_of

__all__ = ["FORMAT", "Declared", "Faults", "SpaceFile", "companions", "did_you_mean", "read"]

FORMAT = 1
"""The file format's version: the top-level ``version`` of a space file."""

Table = Literal["knob", "preset", "forbid"]
D = TypeVar("D", Knob, Preset, Forbid)

_NAMES: Mapping[str, tuple[str, str]] = {  # carrier → (pattern, what it means)
    "xla_flag": (r"xla_[a-z0-9_]+", 'an XLA flag is written without dashes and value, e.g. "xla_gpu_ftz"'),
    "env": (r"[A-Za-z_][A-Za-z0-9_]*", "an environment variable is letters, digits and underscores"),
    "jax_config": (r"jax_[a-z0-9_]+", 'a jax setting is written as in jax.config, e.g. "jax_default_matmul_precision"'),
    "effort": (r"optimization_level|memory_fitting_level", "write optimization_level or memory_fitting_level"),
    "pgle": (PGLE, f"there is one profile-guided estimator, and its knob is called {PGLE}"),
    "layout": (r"\w+", "one word"),
    "workload": (r"[A-Za-z_]\w*", "a workload knob is an argument of build()"),
}
_EFFORTS = ("O0", "O1", "O2", "O3")
_CAPABILITY = re.compile(r"\d+\.\d+")


class SpaceFile(msgspec.Struct, frozen=True):
    """A file's label (as errors name it) and its text."""

    label: str
    text: str

    def place(self, table: str, index: int, key: str = "") -> str:
        """`label:line` of the index-th (from 1) [[table]], of its `key` if it has that; `label` if it isn't found."""
        lines = self.text.splitlines()
        heads = [i for i, line in enumerate(lines) if re.match(rf"\s*\[\[\s*{table}\s*\]\]", line)]
        if index < 1 or index > len(heads):
            return self.label
        start = heads[index - 1]
        found = start
        for i in range(start + 1, len(lines)):
            if re.match(r"\s*\[\[", lines[i]):
                break
            if key and re.match(rf'\s*(\[\w+\.)?"?{re.escape(key)}"?\s*[=.\]]', lines[i]):
                found = i
                break
        return f"{self.label}:{found + 1}"


class Declared(msgspec.Struct, frozen=True):
    """Something that a file declares: the index-th (from 1) [[table]] of `file`."""

    file: SpaceFile
    table: Table
    index: int
    value: Any  # a Knob, Preset or Forbid

    @property
    def title(self) -> str:
        """`knob 3 ("xla_foo")`."""
        return _title(self.table, self.index, getattr(self.value, "name", ""))


class Faults:
    """Collects what is wrong, so that one run names it all; `stop` raises if there is anything."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str] = {}  # place and complaint → the file's label

    def add(self, file: SpaceFile, what: str, *, where: str = "") -> None:
        self._found[where or file.label, what] = file.label

    def of(self, declared: Declared, key: str, what: str) -> None:
        """Something about the `key` of a declaration."""
        where = declared.file.place(declared.table, declared.index, key)
        self.add(declared.file, f'{declared.title}, key "{key}": {what}', where=where)

    def stop(self) -> None:
        """Raises SpaceError with everything found, if anything was."""
        advice = "correct the search space and start again"
        if len(self._found) == 1:
            ((where, what),) = self._found
            raise SpaceError(what, where=where, next=advice)
        if self._found:
            listed = "".join(f"\n  {where}: {what}" for where, what in self._found)
            files = dict.fromkeys(self._found.values())
            raise SpaceError(f"{len(self._found)} faults{listed}", where=", ".join(files), next=advice)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)`, or nothing if nothing known is near."""
    near = difflib.get_close_matches(name, sorted(known), n=2, cutoff=0.6)
    quoted = " or ".join(f'"{n}"' for n in near)
    return f" (did you mean {quoted}?)" if near else ""


_fields = functools.cache(msgspec.structs.fields)  # they are found out anew at every call


@functools.lru_cache(maxsize=8)  # what comes along is asked first, then everything
def _toml(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def companions(file: SpaceFile) -> tuple[str, ...]:
    """The spaces that `file` is loaded with, for its presets set their knobs too: its top-level ``with``."""
    try:
        named = _toml(file.text).get("with", [])
    except tomllib.TOMLDecodeError:
        return ()  # `read` says where
    return tuple(str(name) for name in named) if isinstance(named, list) else (str(named),)


def read(file: SpaceFile, faults: Faults) -> tuple[Declared, ...]:
    """Everything that `file` declares and that is well formed by itself; the rest goes to `faults`."""
    try:
        top = _toml(file.text)
    except tomllib.TOMLDecodeError as error:
        where, what = _toml_fault(file, error)
        faults.add(file, what, where=where)
        return ()
    tables: Mapping[str, Callable[[_Raw], Any]] = {"knob": _knob, "preset": _preset, "forbid": _forbid}
    for key in top.keys() - tables.keys() - {"version", "with"}:
        faults.add(file, f'unknown key "{key}"{did_you_mean(key, [*tables, "version", "with"])}')
    if top.get("version") != FORMAT or isinstance(top["version"], bool):
        has = f"version = {top['version']!r}" if "version" in top else "no version"
        faults.add(file, f"has {has}; this tuner reads version = {FORMAT}")
    declared = []
    for table, convert in tables.items():
        entries = top.get(table, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            faults.add(file, f'"{table}" must be written as [[{table}]] tables')
            continue
        for index, entry in enumerate(entries, start=1):
            raw = _Raw(file, typing.cast(Table, table), index, entry, faults)
            value = convert(raw)
            if value is not None:
                declared.append(Declared(file, raw.table, index, value))
    return tuple(declared)


def _title(table: str, index: int, name: Any) -> str:
    return f'{table} {index} ("{name}")' if isinstance(name, str) and name else f"{table} {index}"


def _toml_fault(file: SpaceFile, error: tomllib.TOMLDecodeError) -> tuple[str, str]:
    text = str(error)
    place = re.search(r" \(at line (\d+), column (\d+)\)$", text)
    if place:
        return f"{file.label}:{place[1]}:{place[2]}", f"is not TOML: {text[: place.start()]}"
    return f"{file.label}:{max(1, len(file.text.splitlines()))}", f"is not TOML: {text}"


class _Raw:
    """One [[table]] as TOML gave it, with checks that name the place."""

    def __init__(self, file: SpaceFile, table: Table, index: int, entry: dict[str, Any], faults: Faults) -> None:
        self.file, self.table, self.index, self.entry, self.faults = file, table, index, dict(entry), faults
        self.faulty: set[str] = set()

    @property
    def sound(self) -> bool:
        return not self.faulty

    def fault(self, key: str, what: str) -> None:
        self.faulty.add(key)
        head = _title(self.table, self.index, self.entry.get("name"))
        head = f'{head}, key "{key}"' if key else head
        where = self.file.place(self.table, self.index, key.partition(".")[0])
        self.faults.add(self.file, f"{head}: {what}", where=where)

    def convert(self, kind: type[D]) -> D | None:
        """The entry as a `kind`, or None after its faults were noted."""
        fields = {field.name: field for field in _fields(kind)}
        hints = {key: did_you_mean(key, fields) for key in self.entry if key not in fields}
        for key, hint in hints.items():
            self.fault(key, f"unknown{hint}")
        for name, field in fields.items():
            if name in self.entry and name not in self.faulty:
                self._check(name, field.type, self.entry[name])
            elif field.required and name not in self.entry and not any(f'"{name}"' in h for h in hints.values()):
                self.fault(name, "missing")
        if not self.sound:
            return None
        return msgspec.convert(self.entry, kind)

    def _check(self, key: str, kind: Any, value: Any) -> None:
        if kind is When:
            self._check_when(value)
            return
        words = _words(kind)
        if words and isinstance(value, str):
            if value not in words:
                self.fault(key, f'"{value}" is none of {", ".join(words)}{did_you_mean(value, words)}')
            return
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            self.fault(key, str(error).replace("`", ""))

    def _check_when(self, value: Any) -> None:
        if not isinstance(value, dict):
            self.fault("when", 'must be a table, e.g. when = { platform = "gpu" }')
            return
        fields = {field.name: field.type for field in _fields(When)}
        for key, given in value.items():
            if key not in fields:
                self.fault(f"when.{key}", f"unknown{did_you_mean(key, fields)}")
            else:
                self._check(f"when.{key}", fields[key], given)
        if isinstance(value.get("min_devices"), int) and value["min_devices"] < 1:
            self.fault("when.min_devices", "must be at least 1")
        if isinstance(value.get("capability"), str) and not _CAPABILITY.fullmatch(value["capability"]):
            self.fault("when.capability", 'is no compute capability; write e.g. "9.0"')
        if isinstance(value.get("jax"), str) and (wrong := range_complaint(value["jax"])):
            self.fault("when.jax", wrong)

    def texts(self, key: str) -> None:
        """Replace TOML booleans and numbers under `key` by their texts."""
        value = self.entry.get(key)
        try:
            if isinstance(value, list):
                self.entry[key] = [text_of(v) for v in value]
            elif isinstance(value, dict):
                self.entry[key] = {name: text_of(v) for name, v in value.items()}
        except TypeError as error:
            self.fault(key, str(error))


@functools.cache
def _words(kind: Any) -> tuple[str, ...]:
    """The words of a Literal type, also of one that may be None."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return next((w for arg in typing.get_args(kind) if (w := _words(arg))), ())


def _knob(raw: _Raw) -> Knob | None:
    raw.texts("values")
    raw.texts("requires")
    knob = raw.convert(Knob)
    if knob is None:
        return None
    for key, what in _knob_faults(knob):
        raw.fault(key, what)
    if not raw.sound:
        return None
    return msgspec.structs.replace(knob, values=(UNSET, *(v for v in knob.values if v != UNSET)))


def _knob_faults(knob: Knob) -> Iterator[tuple[str, str]]:
    pattern, hint = _NAMES[knob.carrier]
    for key, names in (("name", (knob.name,)), ("aliases", knob.aliases)):
        for name in names:
            if not re.fullmatch(pattern, name, re.ASCII):
                yield key, f'"{name}" is no name for carrier {knob.carrier}: {hint}'
    if knob.name == "XLA_FLAGS":
        yield "name", "XLA_FLAGS is written by the tuner; declare its flags, one knob each"
    if len(knob.aliases) != len({*knob.aliases, knob.name}) - 1:
        yield "aliases", "names the same flag twice"
    if knob.carrier in ("env", "workload", "layout") and knob.lane != "environment":
        yield "lane", f'carrier {knob.carrier} needs a new process; write lane = "environment"'
    if knob.carrier == "pgle" and (knob.lane, knob.acts_on) != ("option", "hlo"):
        yield "lane", 'a profile is handed to a compile and shows in its schedule; write "option", and acts_on = "hlo"'
    if knob.scale and knob.type != "int":
        yield "scale", 'shares of bytes are whole numbers; write type = "int"'
    for kind in knob.scale:
        if kind not in KINDS:
            yield "scale", f'"{kind}" is no kind of collective{did_you_mean(kind, KINDS)}'
    if knob.tier not in TIERS:
        yield "tier", f"must be {TIERS[0]} (tried first) to {TIERS[-1]} (tried last)"
    if knob.name in knob.requires:
        yield "requires", "names the knob itself"
    if not [value for value in knob.values if value != UNSET]:
        yield "values", 'offers nothing but "unset"'
    for value in knob.values:
        if knob.carrier == "effort" and value not in (*_EFFORTS, UNSET):
            yield "values", f'"{value}" is no effort level; levels are {", ".join(_EFFORTS)}'
        elif knob.carrier == "pgle" and value != UNSET and recipe(value) is None:
            yield "values", f'"{value}" is no runs x percentile, such as "3x90"'
        elif knob.scale and value != UNSET:
            if share(value) is None:
                yield "values", f'"{value}" is no share of the program\'s bytes, such as "1/8" or "1"'
        elif wrong := complaint(knob.type, value):
            yield "values", f'"{value}" {wrong}'
    if len(set(knob.values)) != len(knob.values):
        yield "values", "offers the same value twice"


def _preset(raw: _Raw) -> Preset | None:
    raw.texts("settings")
    preset = raw.convert(Preset)
    if preset is None:
        return None
    if not preset.name or preset.name == "default":
        raw.fault("name", "is taken: the default is always raced" if preset.name else "is empty")
    if not preset.settings:
        raw.fault("settings", "sets nothing")
    return preset if raw.sound else None


def _forbid(raw: _Raw) -> Forbid | None:
    raw.texts("settings")
    rule = raw.convert(Forbid)
    if rule is not None and not rule.settings:
        raw.fault("settings", "forbids nothing")
    return rule if raw.sound else None
