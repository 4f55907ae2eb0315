"""What devices can do at most, measured once for each environment and kept beside the runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tuner.profile.types import Ceiling

__all__ = ["ceiling_of", "keep_ceiling"]

_FILE = "ceilings.json"


def ceiling_of(root: Path, key: str) -> Ceiling | None:
    """The ceiling known for the environment `key`; None if it was never measured, or the file can't be read."""
    return _read(root).get(key)


def keep_ceiling(root: Path, key: str, ceiling: Ceiling) -> None:
    """Keep it. A disk that refuses costs another measurement, nothing more."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / _FILE).write_bytes(msgspec.json.format(msgspec.json.encode(_read(root) | {key: ceiling})))
    except OSError:
        return


def _read(root: Path) -> dict[str, Ceiling]:
    try:
        return msgspec.json.decode((root / _FILE).read_bytes(), type=dict[str, Ceiling])
    except (OSError, msgspec.DecodeError):
        return {}
