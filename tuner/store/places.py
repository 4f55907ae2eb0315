"""A place that isn't this one, as the user names it: for look-ups on a machine without the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tuner.errors import UsageError
from tuner.store.folder import Store
from tuner.store.listing import listed
from tuner.store.reader import reading

__all__ = ["place_of"]

_WHERE = "--for"
_NEXT = "give a key from `tune store ls environments`, NAME=VALUE[,NAME=VALUE], or a bundle's manifest.json"


def place_of(text: str, store: Store) -> dict[str, str]:
    """The identity that `text` names: the key of an environment in `store` or how it begins; ``name=value`` pairs, such
    as ``device_kind=NVIDIA H100 80GB HBM3,jax=0.11.2``; or a JSON file with an identity, such as a manifest.

    Raises UsageError if it names none, or several.
    """
    path = Path(text)
    if path.is_file():
        return _of_file(path)
    if "=" in text:
        pairs = [part.partition("=") for part in text.split(",")]
        found = {name.strip(): value.strip() for name, _, value in pairs}
        kind = found.get("device_kind", "cpu")
        return {"platform": "cpu" if kind == "cpu" else "tpu" if kind.startswith("TPU") else "gpu", **found}
    with reading(store) as reader:
        known = listed(reader, "environments")
    meant = [row for row in known if text and row["environment"].startswith(text)]
    if len(meant) != 1:
        what = f"{text!r} could be any of {len(meant)} environments" if meant else f"no environment {text!r} is known"
        raise UsageError(what, where=_WHERE, next=_NEXT)
    return {str(name): str(value) for name, value in meant[0]["identity"].items()}


def _of_file(path: Path) -> dict[str, str]:
    try:
        found: Any = msgspec.json.decode(path.read_bytes())
        while isinstance(found, dict) and ("environment" in found or "identity" in found):
            found = found.get("environment", found.get("identity"))
        return msgspec.convert(found, dict[str, str])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"holds no environment: {error}", where=f"{_WHERE} {path}", next=_NEXT) from error
