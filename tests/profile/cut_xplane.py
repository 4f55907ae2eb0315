"""Cuts a profiler's trace file (an XSpace in protocol buffers' wire format) to the first events of each line.

``python tests/profile/cut_xplane.py TRACE.xplane.pb OUT.xplane.pb --events 16``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

# Numbers of fields: of XSpace, XPlane, XLine, XEvent and XStat in their published description.
_PLANES, _PLANE_NAME, _LINES, _EVENT_KINDS, _STAT_KINDS, _PLANE_STATS = 1, 2, 3, 4, 5, 6
_EVENTS, _KIND, _STATS, _TEXT = 4, 1, 4, 7
_KEPT = (b"/device:", b"/host:CPU")


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, bytes | int, bytes]]:
    """Each field's number, its content, and all of it as it stands."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = number_at(data, at)
        if tag & 7 == 2:
            size, at = number_at(data, at)
            content: bytes | int = data[at : at + size]
            at += size
        elif tag & 7 == 0:
            content, at = number_at(data, at)
        else:
            content, at = b"", at + (8 if tag & 7 == 1 else 4)
        yield tag >> 3, content, data[begin:at]


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def first(data: bytes, number: int) -> bytes | int:
    return next((content for found, content, _ in fields(data) if found == number), 0)


def changed(data: bytes, change: Callable[[int, bytes], bytes | None]) -> bytes:
    """With each message in it replaced; None drops it."""
    out = []
    for number, content, whole in fields(data):
        new = change(number, content) if isinstance(content, bytes) and content else content
        if new is content:
            out.append(whole)
        elif isinstance(new, bytes):
            out.append(message(number, new))
    return b"".join(out)


def cut_line(line: bytes, most: int) -> bytes:
    seen = 0

    def keep(number: int, content: bytes) -> bytes | None:
        nonlocal seen
        seen += number == _EVENTS
        return content if number != _EVENTS or seen <= most else None

    return changed(line, keep)


def used_by(plane: bytes) -> tuple[set[int], set[int]]:
    """Kinds of events, and of stats (which hold texts too), that its events name."""
    events: set[int] = set()
    stats: set[int] = set()
    for number, line, _ in fields(plane):
        for inner, event, _ in fields(line) if number == _LINES and isinstance(line, bytes) else ():
            if inner == _EVENTS and isinstance(event, bytes):
                events.add(int(first(event, _KIND)))
                for field, stat, _ in fields(event):
                    if field == _STATS and isinstance(stat, bytes):
                        stats |= {int(first(stat, _KIND)), int(first(stat, _TEXT))}
    return events, stats


def cut_plane(plane: bytes, most: int) -> bytes:
    plane = changed(plane, lambda number, content: cut_line(content, most) if number == _LINES else content)
    events, stats = used_by(plane)
    # A kind of event has stats of its own.
    for number, kind, _ in fields(plane):
        if number == _EVENT_KINDS and isinstance(kind, bytes) and first(kind, 1) in events:
            about = first(kind, 2)
            for field, stat, _ in fields(about) if isinstance(about, bytes) else ():
                if field == 5 and isinstance(stat, bytes):
                    stats |= {int(first(stat, _KIND)), int(first(stat, _TEXT))}
    wanted = {_EVENT_KINDS: events, _STAT_KINDS: stats}

    def keep(number: int, content: bytes) -> bytes | None:
        if number == _PLANE_STATS or (number in wanted and first(content, 1) not in wanted[number]):
            return None
        return content

    return changed(plane, keep)


def cut(space: bytes, most: int) -> bytes:
    """The first `most` events of each line of the devices and of the host's threads."""
    return b"".join(
        message(_PLANES, cut_plane(plane, most))
        for number, plane, _ in fields(space)
        if number == _PLANES and isinstance(plane, bytes)
        if isinstance(name := first(plane, _PLANE_NAME), bytes) and name.startswith(_KEPT)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--events", type=int, default=16)
    asked = parser.parse_args()
    asked.out.write_bytes(cut(asked.trace.read_bytes(), asked.events))


if __name__ == "__main__":
    main()
