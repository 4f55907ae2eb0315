"""Cuts what `tune profile --out FOLDER` left on a card to a small file that tests can keep: some steps of both traces,
and of the HLO what profiles read. No paths of the machine stay in it.

``python tests/profile/cut_trace.py FOLDER OUT.json.xz --profile profile.json`` (of ``tune profile --json``)
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from pathlib import Path
from typing import Any

import msgspec

from tuner.protocol.messages import ProfileReply, TraceLine
from tuner.worker.trace import STEP, read_trace

_KEPT = ("dot_dimension_numbers", "known_trip_count", "intermediate_tensor_shape")


def cut(folder: Path, name: str, *, steps: int, **timed: float) -> ProfileReply:
    """The first `steps` steps of the trace in `folder`, with the labels that they use."""
    (trace,) = (folder / name).glob("**/*.xplane.pb")
    labels, lines = read_trace(trace, python=False)
    marks = [
        (start, start + lasts)
        for line in lines
        for number, start, lasts in zip(line.labels, line.starts_ns, line.durations_ns, strict=True)
        if labels[number].name == STEP
    ]
    begin, end = sorted(marks)[0][0], sorted(marks)[steps - 1][1]
    used: dict[int, int] = {}
    kept = [_within(line, begin, end, used) for line in lines]
    return ProfileReply(
        xplane="",
        seconds=(end - begin) / 1e9,
        labels=tuple(labels[number] for number in used),
        lines=tuple(line for line in kept if line.labels),
        **timed,
    )


def _within(line: TraceLine, begin: int, end: int, used: dict[int, int]) -> TraceLine:
    inside = [i for i, start in enumerate(line.starts_ns) if begin <= start < end]
    return TraceLine(
        plane=line.plane,
        name=line.name,
        labels=tuple(used.setdefault(line.labels[i], len(used)) for i in inside),
        starts_ns=tuple(line.starts_ns[i] - begin for i in inside),
        durations_ns=tuple(line.durations_ns[i] for i in inside),
        launched=tuple(line.launched[i] for i in inside) if line.launched else (),
    )


def stripped(text: str) -> str:
    """The module without what profiles don't read."""
    lines = []
    for line in text.splitlines():
        if line.startswith("HloModule "):
            line = line.split(",")[0]
        elif found := re.match(r'^(\d+) "([^"]*/)?([^"/]*)"$', line):
            line = f'{found.group(1)} "{found.group(3)}"'
        line = re.sub(r"/\*.*?\*/", "", line)
        line = re.sub(r' (scheduling_name|deduplicated_name)="[^"]*"', "", line)
        line = re.sub(r'metadata=\{(scheduling_name|deduplicated_name)="[^"]*"\}', "metadata={}", line)
        line = re.sub(r", frontend_attributes=\{[^}]*\}|, metadata=\{\}|, sharding=\{[^}]*\}", "", line)
        place = line.find(", backend_config=")
        if place >= 0 and not any(word in line for word in _KEPT):
            line = line[:place]
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--step-ms", type=float, help="without a trace; default: as the profile says")
    parser.add_argument("--under-ms", type=float, default=0.0, help="of steps in a row under the tracer")
    parser.add_argument("--steps", type=int, default=2)
    asked = parser.parse_args()
    profile: dict[str, Any] = json.loads(asked.profile.read_text())["profile"]
    breakdown = profile["breakdown"]
    step_ms = asked.step_ms or breakdown["step_ms"]
    found = {
        "as_run": cut(
            asked.folder,
            "as-run",
            steps=asked.steps,
            plain_s=step_ms / 1e3,
            under_s=asked.under_ms / 1e3,
            dispatch_s=breakdown["dispatch_ms"] / 1e3,
        ),
        "named": cut(asked.folder, "attributed", steps=1),
        "texts": [stripped(path.read_text()) for path in sorted((asked.folder / "as-run").glob("*.hlo.txt"))],
        "ceiling": profile["roofline"]["ceiling"],
    }
    asked.out.write_bytes(lzma.compress(msgspec.json.encode(found), preset=9))


if __name__ == "__main__":
    main()
