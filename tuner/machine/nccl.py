"""What NCCL itself says that it ran, from the debug lines of ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

__all__ = ["NcclRun", "read_nccl", "requested_and_ran"]

_LINE = re.compile(r"NCCL (?:INFO|WARN) (.*)|.*(NCCL version \S+)")
_VERSION = re.compile(r"NCCL version (\d[\w.]*)")
_CHANNELS = re.compile(r"(\d+) coll channels.*?(?:(\d+) nvls channels.*?)?(\d+) p2p channels")
_TUNED = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)")
# Numbers that older versions print in place of names, in the order of nccl_common.h.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


class NcclRun(msgspec.Struct, frozen=True, kw_only=True):
    """`channels`: of collectives, and of those by NVLink multicast (`nvls_channels`), as the last communicator had
    them; None: not told. `ran`: (operation, bytes) → (algorithm, protocol), in capitals."""

    version: str = ""
    channels: int | None = None
    nvls_channels: int | None = None
    ran: Mapping[tuple[str, int], tuple[str, str]] = {}


def read_nccl(lines: Iterable[str]) -> NcclRun:
    """What the debug lines among `lines` say. Several ranks' lines may be mixed: they choose alike."""
    version, channels, nvls = "", None, None
    ran: dict[tuple[str, int], tuple[str, str]] = {}
    for line in lines:
        if (match := _LINE.search(line)) is None:
            continue
        text = match[1] or match[2]
        if found := _VERSION.search(text):
            version = found[1]
        if found := _CHANNELS.search(text):
            channels, nvls = int(found[1]), None if found[2] is None else int(found[2])
        if found := _TUNED.search(text):
            ran[found[1], int(found[2])] = (_named(found[3], _ALGORITHMS), _named(found[4], _PROTOCOLS))
    return NcclRun(version=version, channels=channels, nvls_channels=nvls, ran=ran)


def requested_and_ran(settings: Mapping[str, str], run: NcclRun) -> list[str]:
    """Where NCCL did something else than `settings` (variables by name) ask: "requested X, ran Y" each."""
    texts = []
    for name, place in (("NCCL_ALGO", 0), ("NCCL_PROTO", 1)):
        wanted = {word.strip().upper() for word in settings.get(name, "").split(",") if word.strip()}
        others = {key: chosen[place] for key, chosen in run.ran.items() if chosen[place] not in wanted}
        if wanted and others:
            ran = ", ".join(f"{other} for {op} of {size} bytes" for (op, size), other in sorted(others.items())[:3])
            texts.append(f"requested {name}={settings[name]}, ran {ran}")
    for name in ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"):
        value = settings.get(name, "")
        if run.channels is not None and value.isdecimal():
            beyond = run.channels < int(value) if "_MIN_" in name else run.channels > int(value)
            texts += [f"requested {name}={value}, ran {run.channels} channels"] if beyond else []
    if settings.get("NCCL_NVLS_ENABLE") == "0" and run.nvls_channels:
        texts.append(f"requested NCCL_NVLS_ENABLE=0, ran {run.nvls_channels} channels of NVLink multicast")
    return texts


def _named(text: str, names: tuple[str, ...]) -> str:
    return names[int(text)] if text.isdecimal() and int(text) < len(names) else text.upper()
