"""Recordings of equal programs side by side: what `record.py` writes, typed, and the same made of an event log.

    python tests/calibration/recorded.py gpt.events.jsonl.gz --out tests/calibration/recordings/gpt-jax0.11.2.json.gz

takes the confirmation out of a run's log.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from tuner.store.events import AnyEvent, CandidateCompiled, PairTimed, RoundTimed, RunStarted, SessionStarted
from tuner.store.lines import decode

__all__ = ["Pair", "Process", "Recording", "from_events", "read", "write"]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One fresh process. `program`: what it ran; processes of different programs aren't expected to be equally fast."""

    compile_s: float
    code: str = ""
    program: str = ""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Processes alive together. `turns`: (start in seconds, process, seconds a step, seconds of the discarded step).
    `started`: the order in which they started and compiled; () in recordings that don't tell, and began with the first.
    """

    processes: tuple[Process, ...]
    turns: tuple[tuple[float, int, float, float], ...]
    started: tuple[int, ...] = ()

    def row(self, process: int) -> list[float]:
        """Seconds a step of one process, in the order timed."""
        return [seconds for _, owner, seconds, _ in self.turns if owner == process]


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """`steps`: of a block. `start_s`: what a process needs before it compiles; None: told by the gaps between pairs."""

    workload: str
    jax: str
    device: str
    machine: str
    cores: int
    steps: int
    pairs: tuple[Pair, ...]
    env: dict[str, str] = {}
    start_s: float | None = None

    def half(self, odd: bool) -> Recording:
        """Every second pair: one half to fit, the other to check, both spread over the whole time."""
        return msgspec.structs.replace(self, pairs=self.pairs[odd::2])

    @property
    def step_s(self) -> float:
        """A step's median seconds."""
        return median(seconds for pair in self.pairs for _, _, seconds, _ in pair.turns)

    @property
    def compile_s(self) -> float:
        return median(process.compile_s for pair in self.pairs for process in pair.processes)

    @property
    def starting_s(self) -> float:
        """Seconds from a process's begin to its compile. Between two pairs both processes start and compile in turn."""
        if self.start_s is not None:
            return self.start_s
        gaps = [b.turns[0][0] - _end(a, self.steps) for a, b in zip(self.pairs, self.pairs[1:], strict=False)]
        return max(0.1, median(gaps) / len(self.pairs[0].processes) - self.compile_s)


def _end(pair: Pair, steps: int) -> float:
    start, _, seconds, first = pair.turns[-1]
    return start + first + steps * seconds


def read(path: Path) -> Recording:
    """A file of `record.py` or of this script, or the event log of a run that confirmed something."""
    data = gzip.decompress(path.read_bytes())
    if path.name.endswith(".events.jsonl.gz"):
        return from_events([decode(line) for line in data.splitlines()])
    return msgspec.json.decode(data, type=Recording)


def write(recording: Recording, path: Path) -> None:
    """Write what `read` reads."""
    path.write_bytes(gzip.compress(msgspec.json.encode(recording), 9, mtime=0))


def from_events(events: Sequence[AnyEvent]) -> Recording:
    """The fresh processes of a run's confirmation. A finalist's program is not the default's: each is its own. A
    process whose compile the log doesn't tell is taken to compile as long as the home session did.

    Raises ValueError for a log that has no confirmation.
    """
    begun = next(e for e in events if isinstance(e, RunStarted))
    sessions = {e.session: e for e in events if isinstance(e, SessionStarted)}
    compiled: dict[str, CandidateCompiled] = {}
    for event in events:  # a session's first compile is its control's
        if isinstance(event, CandidateCompiled):
            compiled.setdefault(event.session, event)
    home = next(s for s in sessions.values() if s.role == "home")
    groups: dict[int, list[RoundTimed]] = {}
    waiting: list[RoundTimed] = []
    for event in events:
        if isinstance(event, RoundTimed) and event.stage == "confirm":
            waiting.append(event)
        elif isinstance(event, PairTimed) and waiting:
            groups[event.index], waiting = waiting, []
    if not groups:
        raise ValueError(f"the run {begun.run} confirmed nothing")
    zero = groups[min(groups)][0].time
    pairs = []
    for rounds in groups.values():
        names = list(dict.fromkeys(r.session for r in rounds))
        blocks = [(r, r.blocks[0]) for r in rounds]
        pairs.append(
            Pair(
                processes=tuple(
                    Process(
                        compile_s=compiled.get(n, compiled[home.session]).compiled.compile_s,
                        program=sessions[n].config.key,
                    )
                    for n in names
                ),
                turns=tuple(
                    (r.time - zero - b.seconds - b.first_s, names.index(r.session), b.seconds / b.steps, b.first_s)
                    for r, b in blocks
                ),
            )
        )
    loaded = home.loaded
    return Recording(
        workload=Path(begun.workload).name,
        jax=loaded.versions["jax"],
        device=loaded.device_kind,
        machine=begun.identity.get("cpu", ""),
        cores=int(float(begun.identity.get("cores", "1"))),
        steps=rounds[-1].blocks[0].steps,
        pairs=tuple(pairs),
        start_s=loaded.import_s + loaded.init_s + loaded.build_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="a run's event log, NAME.events.jsonl.gz")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    write(read(options.log), options.out)


if __name__ == "__main__":
    main()
