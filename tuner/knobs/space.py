"""SearchSpace: what is tuned, loaded from one or several TOML files and checked as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from tuner.errors import SpaceError, UsageError
from tuner.knobs.combinations import forbidden
from tuner.knobs.config import Config
from tuner.knobs.declare import Declared, Faults, SpaceFile, companions, did_you_mean, read
from tuner.knobs.knob import UNSET, Forbid, Knob, Preset, Risk
from tuner.knobs.values import complaint

__all__ = ["SearchSpace", "default_spaces", "load_spaces", "shipped_spaces"]

SHIPPED = Path(__file__).resolve().parents[2] / "search_spaces"
"""The spaces that come with the tuner: the folder beside the package, in a checkout and when installed. It is not
looked up by import, where a folder of the same name in the user's directory would win."""


class SearchSpace(msgspec.Struct, frozen=True, kw_only=True):
    """Knobs, presets and forbidden combinations.

    `name`: the spaces it was made of, joined by "+". `files`: where they came from. `digest`: 16 hex digits of all that
    was declared; it stays what was loaded when knobs leave later.
    """

    name: str
    knobs: tuple[Knob, ...]
    presets: tuple[Preset, ...] = ()
    forbid: tuple[Forbid, ...] = ()
    files: tuple[str, ...] = ()
    digest: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(knob.name for knob in self.knobs)

    def knob(self, name: str) -> Knob:
        """The knob of this name or alias. Raises UsageError with the nearest names."""
        for knob in self.knobs:
            if name == knob.name or name in knob.aliases:
                return knob
        raise UsageError(
            f"the search space {self.name} has no knob {name}{did_you_mean(name, self.names)}",
            next="`tune knobs` lists what there is",
        )

    def __contains__(self, name: object) -> bool:
        return any(name == knob.name or name in knob.aliases for knob in self.knobs)

    def risks(self, names: Collection[str], risk: Risk) -> bool:
        """Whether one of these knobs is declared to have this risk."""
        return any(k.risk == risk and k.name in names for k in self.knobs)

    def with_knobs(self, more: Iterable[Knob]) -> SearchSpace:
        """This space with `more` knobs behind its own. Raises SpaceError if a name is taken."""
        more = tuple(more)
        for knob in more:
            if knob.name in self:
                raise SpaceError(
                    f"{knob.name} is declared here and in the search space {self.name}",
                    where=knob.source,
                    next="give one of them another name",
                )
        return msgspec.structs.replace(self, knobs=(*self.knobs, *more))

    def unshown(self, names: Collection[str]) -> SearchSpace:
        """This space with the knowledge that no hash of the code shows what the knobs `names` do."""
        knobs = (msgspec.structs.replace(k, acts_on="runtime") if k.name in names else k for k in self.knobs)
        return msgspec.structs.replace(self, knobs=tuple(knobs))


def shipped_spaces() -> tuple[str, ...]:
    """The names that `load_spaces` knows without a file."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def default_spaces(platform: str, *, devices: int = 1) -> tuple[str, ...]:
    """The spaces that are tuned on a platform ("cpu", "gpu") if the user names none; several `devices` have more to
    tune. Raises UsageError for other platforms."""
    if platform not in ("cpu", "gpu"):
        raise UsageError(f"there is no search space for platform {platform!r}", next="name one with --space")
    return (platform, "precision", *(("pgle", "collectives", "nccl") if platform == "gpu" and devices > 1 else ()))


def load_spaces(spaces: Sequence[str | Path]) -> SearchSpace:
    """Several spaces as one, in the order given. Each is the name of a shipped space, or a TOML file; the spaces that
    one names in its ``with`` come along.

    Raises SpaceError that names file and place of everything that is wrong.
    """
    named = [_open(space) for space in dict.fromkeys(str(space) for space in spaces)]
    along = [_open(space) for _, file in named for space in companions(file)]
    files = list({file.label: (name, file) for name, file in (*along, *named)}.values())
    if not files:
        raise SpaceError("no search space was named", next=f"name one of {', '.join(shipped_spaces())}, or a file")
    faults = Faults()
    declared = [d for _, file in files for d in read(file, faults)]
    faults.stop()
    knobs = _by_name(declared, faults)
    faults.stop()
    declared = [_canonical(d, knobs) for d in declared]
    _check_settings(declared, knobs, faults)
    _check_presets(declared, faults)
    faults.stop()
    values = {t: tuple(d.value for d in declared if d.table == t) for t in ("knob", "preset", "forbid")}
    return SearchSpace(
        name="+".join(name for name, _ in named),
        knobs=values["knob"],
        presets=values["preset"],
        forbid=values["forbid"],
        files=tuple(file.label for _, file in files),
        digest=hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:16],
    )


def _open(space: str) -> tuple[str, SpaceFile]:
    """The name and text of a space."""
    path = SHIPPED / f"{space}.toml" if space in shipped_spaces() else Path(space)
    if not path.is_file():
        known = [*shipped_spaces(), *(p.name for p in path.parent.glob("*.toml"))]
        raise SpaceError(
            f"no search space of this name, and no file{did_you_mean(path.name, known)}",
            where=space,
            next=f"name one of {', '.join(shipped_spaces())}, or a TOML file",
        )
    try:
        return path.stem, SpaceFile(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise SpaceError(f"is not UTF-8 (byte {error.start})", where=str(path)) from None
    except OSError as error:
        raise SpaceError(f"can't be read: {error.strerror}", where=str(path)) from None


def _by_name(declared: Sequence[Declared], faults: Faults) -> dict[str, Knob]:
    """Every knob under its name and its aliases; one that is declared twice goes to `faults`."""
    owners: dict[str, Declared] = {}
    for d in declared:
        if d.table != "knob":
            continue
        for name in (d.value.name, *d.value.aliases):
            other = owners.setdefault(name, d)
            if other is not d:
                key = "name" if name == d.value.name else "aliases"
                there = f"{other.title} in {other.file.place(other.table, other.index)}"
                faults.of(d, key, f'"{name}" is declared already, by {there}; never tune both')
    return {name: d.value for name, d in owners.items()}


def _canonical(d: Declared, knobs: dict[str, Knob]) -> Declared:
    """The declaration with aliases in its settings replaced by the knobs' names."""
    key = "requires" if d.table == "knob" else "settings"
    settings = {knobs[n].name if n in knobs else n: v for n, v in getattr(d.value, key).items()}
    return msgspec.structs.replace(d, value=msgspec.structs.replace(d.value, **{key: settings}))


def _check_settings(declared: Sequence[Declared], knobs: dict[str, Knob], faults: Faults) -> None:
    """Settings name known knobs, and values of their types."""
    for d in declared:
        key = "requires" if d.table == "knob" else "settings"
        for name, value in getattr(d.value, key).items():
            if name not in knobs:
                faults.of(d, key, f'no knob is named "{name}"{did_you_mean(name, knobs)}')
            elif wrong := complaint(knobs[name].type, value):
                faults.of(d, key, f'{name}: "{value}" {wrong}')
            elif value == UNSET and d.table == "preset":
                faults.of(d, key, f'{name}: a preset sets values; leave out what stays "unset"')


def _check_presets(declared: Sequence[Declared], faults: Faults) -> None:
    """Presets have names of their own and can be tried."""
    space = SearchSpace(
        name="",
        knobs=tuple(d.value for d in declared if d.table == "knob"),
        forbid=tuple(d.value for d in declared if d.table == "forbid"),
    )
    seen: dict[str, Declared] = {}
    for d in declared:
        if d.table != "preset":
            continue
        other = seen.setdefault(d.value.name, d)
        if other is not d:
            faults.of(d, "name", f"a preset of this name is in {other.file.place('preset', other.index)} already")
        if why := forbidden(Config.of(d.value.settings), space):
            faults.of(d, "settings", why)
