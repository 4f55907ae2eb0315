"""What a run shows while it works: a live display on a terminal, one line a stage elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from tuner.knobs.config import DEFAULT
from tuner.report.findings import finding
from tuner.report.listener import Listener, Silent, Status
from tuner.report.wording import clean, clock, duration, settings, speedup
from tuner.store.events import (
    AnyEvent,
    Interruption,
    Notice,
    RunFinished,
    RunStarted,
    StageFinished,
    TrialFinished,
)

__all__ = ["LineProgress", "LiveProgress", "listener_for"]

_STAGE = 8  # the longest stage name
_TIME = 10  # the longest usual duration


@contextmanager
def listener_for(stream: TextIO, quiet: bool = False) -> Iterator[Listener]:
    """The listener that suits `stream`, for as long as the ``with`` block lasts.

    The terminal is left as it was found however the block ends.
    """
    if quiet:
        yield Silent()
        return
    # rich takes FORCE_COLOR for a terminal and knows TERM=dumb: a live display needs both to agree.
    if not (stream.isatty() and Console(file=stream).is_interactive):
        yield LineProgress(stream)
        return
    live = LiveProgress(stream)
    with live:
        yield live


def _line(event: AnyEvent) -> tuple[str, str] | None:
    """(text, style) of the line that stays for this event; None for most."""
    match event:
        case RunStarted():
            return f"run {event.run}: {event.workload}", "bold"
        case StageFinished():
            return f"{event.stage:<{_STAGE}}  {duration(event.seconds):>{_TIME}}  {finding(event.record)}", ""
        case Notice():
            return f"notice: {clean(event.text)}", "yellow"
        case Interruption():
            return f"interrupted in {event.stage}", "yellow"
    return None


def _resumed(events: Sequence[AnyEvent]) -> tuple[str, str] | None:
    """(text, style) of the line that tells which run goes on, and from where."""
    started = next((e for e in events if isinstance(e, RunStarted)), None)
    if started is None:
        return None
    stages = [e.stage for e in events if isinstance(e, StageFinished)]
    if any(isinstance(e, RunFinished) for e in events):
        state = "finished earlier; --fresh measures anew"
    else:
        state = f"goes on after {stages[-1]}" if stages else "goes on from its beginning"
    return f"run {started.run}: {started.workload}, {state}", "bold"


class LineProgress:
    """One line a stage, when it ends, with its seconds and what it found; notices as they come. For logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._alive = True

    def on_resumed(self, events: Sequence[AnyEvent]) -> None:
        self._write(_resumed(events))

    def on_event(self, event: AnyEvent) -> None:
        self._write(_line(event))

    def on_status(self, status: Status) -> None:
        pass

    def _write(self, line: tuple[str, str] | None) -> None:
        if line is None or not self._alive:
            return
        # A stream in another encoding gets "?" for what it can't hold: progress must not end a run.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        text = line[0].encode(encoding, "replace").decode(encoding)
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._alive = False  # whoever read the log is gone


class _Console(Console):
    """A console whose reader may go away."""

    def on_broken_pipe(self) -> None:
        # rich would end the process and close its standard output.
        raise BrokenPipeError


class _Tally:
    """What the display counts and shows: trials, failures, the best so far, and how far the present count is."""

    def __init__(self) -> None:
        self.timed = 0
        self.failed = 0
        self.best: TrialFinished | None = None
        self.status: Status | None = None
        self._first: Status | None = None

    def count(self, event: AnyEvent) -> None:
        if isinstance(event, TrialFinished):
            self.timed += event.value is not None
            self.failed += event.failure is not None
            if event.value is not None and event.config != DEFAULT:
                best = self.best.value if self.best else None
                self.best = event if best is None or event.value < best else self.best
        elif isinstance(event, StageFinished) and self.status and self.status.stage == event.stage:
            self.status = None

    def see(self, status: Status) -> None:
        last = self.status
        if last is None or (last.stage, last.total) != (status.stage, status.total) or status.done < last.done:
            self._first = status
        self.status = status

    @property
    def left_s(self) -> float | None:
        """Seconds until what is being counted is done, at the pace so far; None if that can't be said."""
        first, status = self._first, self.status
        if first is None or status is None or not first.done < status.done <= status.total:
            return None
        pace = (status.elapsed_s - first.elapsed_s) / (status.done - first.done)
        left = pace * (status.total - status.done)
        return min(left, max(0.0, status.budget_s - status.elapsed_s)) if status.budget_s > 0 else left

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Two lines that never wrap, nothing without a status."""
        status, best = self.status, self.best
        if status is None:
            return
        of = f" {status.done}/{status.total}" if status.total else ""
        head = Text.assemble((f"{status.stage:<{_STAGE}}", "bold cyan"), f"{of}  ", clean(status.text))
        budget = f" of {clock(status.budget_s)}" if status.budget_s > 0 else ""
        left = self.left_s
        pieces = [
            f"{clock(status.elapsed_s)}{budget}",
            f"best so far {speedup(-(best.value or 0.0)):.3f}x" if best else "",
            f"{self.timed} timed" if self.timed else "",
            f"{self.failed} failed" if self.failed else "",
            f"about {clock(left)} to go" if left is not None and left >= 1 else "",
            settings(best.config) if best else "",
        ]
        for text in (head, Text(_fitting(pieces, options.max_width), style="dim")):
            text.no_wrap, text.overflow = True, "ellipsis"
            yield text


class LiveProgress:
    """Two lines that follow the run below the lines that stay. A context manager: the terminal is restored on leaving.

    It draws only when the run reports something. A display that ticks by itself would take a core from the steps that
    are being timed.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = _Console(file=stream, highlight=False, emoji=False, markup=False)
        self._tally = _Tally()
        self._live = Live(
            self._tally,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,  # data: it must not end up on this stream
            redirect_stderr=stream is sys.stderr,
        )
        self._alive = True

    def __enter__(self) -> LiveProgress:
        self._safely(self._live.start)
        return self

    def __exit__(self, *_: object) -> None:
        self._alive = True  # also where the terminal was lost: standard error must be given back
        self._safely(self._live.stop)

    def on_resumed(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            self._tally.count(event)
        self._print(_resumed(events))

    def on_event(self, event: AnyEvent) -> None:
        self._tally.count(event)
        line = _line(event)
        if line is not None:
            self._print(line)
        elif isinstance(event, TrialFinished):
            self._safely(self._live.refresh)

    def on_status(self, status: Status) -> None:
        self._tally.see(status)
        self._safely(self._live.refresh)

    def _print(self, line: tuple[str, str] | None) -> None:
        if line is not None:
            text = Text(line[0], style=line[1])
            self._safely(lambda: self._console.print(text, soft_wrap=True))

    def _safely(self, draw: Callable[[], None]) -> None:
        """Draw, unless the terminal is gone: a lost display must not end a run."""
        if self._alive:
            try:
                draw()
            except (OSError, ValueError):
                self._alive = False


def _fitting(pieces: Sequence[str], width: int) -> str:
    """As many pieces, in this order of importance, as the width holds; one that doesn't fit gives way to the next."""
    line = ""
    for piece in filter(None, pieces):
        longer = f"{line} · {piece}" if line else piece
        if cell_len(longer) <= width or not line:
            line = longer
    return line
