"""What devices can do at most, measured once for each environment and kept beside the runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tuner.profile.types import Ceiling

__all__ = ["ceiling_of", "keep_ceiling"]

_FILE = "ceilings.json"
# Counted up when they are measured in another way: what an older one found is measured anew.
_WAY = 2


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """`way`: in which they were measured. `ceilings`: by environment."""

    way: int
    ceilings: dict[str, Ceiling]


def ceiling_of(root: Path, key: str) -> Ceiling | None:
    """The ceiling known for the environment `key`; None if it was never measured, or the file can't be read."""
    return _read(root).get(key)


def keep_ceiling(root: Path, key: str, ceiling: Ceiling) -> None:
    """Keep it. A disk that refuses costs another measurement, nothing more."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        kept = _Kept(way=_WAY, ceilings=_read(root) | {key: ceiling})
        (root / _FILE).write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
    except OSError:
        return


def _read(root: Path) -> dict[str, Ceiling]:
    try:
        kept = msgspec.json.decode((root / _FILE).read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return {}
    return kept.ceilings if kept.way == _WAY else {}
