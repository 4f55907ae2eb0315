"""What a run shows while it works: on a terminal, elsewhere, and when the reader goes away."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from synthetic_run import DEFAULT, MATH, estimate, failing, faster, interrupted

from tuner.knobs.config import Config
from tuner.protocol.failure import FailureClass
from tuner.report.listener import Listener, Silent, Status
from tuner.report.progress import LineProgress, LiveProgress, listener_for
from tuner.report.view import STAGES
from tuner.store.events import Notice, StageFinished, TrialFinished

HIDE, SHOW, CLEAR = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    """A stream whose reader went away after `after` writes."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError
        return super().write(text)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the width of `Terminal`; its kind is a plain xterm."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LINES", "24")

    def set_to(width: int) -> None:
        monkeypatch.setenv("COLUMNS", str(width))

    set_to(80)
    return set_to


def status(done: int = 0, total: int = 0, *, elapsed_s: float = 83.0, stage: str = "screen") -> Status:
    text = "timing candidates in shared rounds"
    return Status(stage=stage, text=text, done=done, total=total, elapsed_s=elapsed_s, budget_s=600.0)


def trial(speedup: float, number: int = 1) -> TrialFinished:
    config = Config.of({MATH: "false"})
    found = estimate(speedup, 0.01)
    return TrialFinished(
        number=number, stage="screen", session="home", config=config, value=-found.gain, estimate=found
    )


def shown(text: str) -> list[str]:
    """The lines of the last drawing, without codes."""
    last = text.rpartition(CLEAR)[2]
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", last).replace("\r", "").splitlines()


def test_elsewhere_it_is_one_line_a_stage() -> None:
    """With its seconds and what it found, each at once; a status leaves no line."""
    stream = io.StringIO()
    listener = LineProgress(stream)
    for event in faster():
        listener.on_event(event)
        listener.on_status(status())
    lines = stream.getvalue().splitlines()
    assert lines[0] == "run nbody-3f9ac2d17b04: workloads/nbody.py"
    assert [line.split()[0] for line in lines[1:] if not line.startswith("notice")] == list(STAGES)
    assert lines[1].startswith("probe          2.4 s  cpu; 12 knobs offered")
    assert "notice: the step holds no collectives: knobs that act on them are left out" in lines
    assert "\x1b" not in stream.getvalue()


def test_an_interruption_is_told() -> None:
    """With its stage."""
    stream = io.StringIO()
    for event in interrupted():
        LineProgress(stream).on_event(event)
    assert stream.getvalue().splitlines()[-1] == "interrupted in search"


def test_a_run_that_goes_on_is_told_by_name_and_by_where_it_was() -> None:
    """Interrupted before the first stage ended, or later, or finished: who starts it again must see which it is."""
    told = {}
    for name, events in (("begun", faster()[:1]), ("stopped", interrupted()), ("finished", faster())):
        stream = io.StringIO()
        LineProgress(stream).on_resumed(events)
        told[name] = stream.getvalue()
    assert told["begun"] == "run nbody-3f9ac2d17b04: workloads/nbody.py, goes on from its beginning\n"
    assert told["stopped"] == "run nbody-3f9ac2d17b04: workloads/nbody.py, goes on after screen\n"
    assert told["finished"] == "run nbody-3f9ac2d17b04: workloads/nbody.py, finished earlier; --fresh measures anew\n"


def test_the_display_of_a_run_that_goes_on_counts_what_was_timed(columns: Callable[[int], None]) -> None:
    """The best so far is the run's, not that of the time since it was started again."""
    columns(200)
    terminal = Terminal()
    with listener_for(terminal) as live:
        live.on_resumed(interrupted())
        assert "goes on after screen" in terminal.getvalue()
        live.on_status(status())
        assert "best so far 1.330x" in shown(terminal.getvalue())[-1]


def test_a_log_in_another_encoding_gets_a_question_mark() -> None:
    """Progress never ends a run because of an arrow."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    for event in faster():
        LineProgress(stream).on_event(event)
    assert b"16.2 ? 11.3 ms" in raw.getvalue()


def test_a_reader_that_is_gone_does_not_end_the_run(columns: Callable[[int], None]) -> None:
    """Neither by a line nor by a drawing; not even on leaving."""
    lines = LineProgress(Gone(2))
    for event in faster():
        lines.on_event(event)
    for after in (0, 1, 3, 20):
        terminal = Gone(after)
        try:
            with listener_for(terminal) as listener:
                for event in faster():
                    listener.on_event(event)
                    listener.on_status(status())
        finally:
            terminal.left = 1000


def test_the_listener_suits_the_stream(columns: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets the live display, a dumb one and a file lines, `--quiet` nothing."""
    with listener_for(Terminal()) as listener:
        assert isinstance(listener, LiveProgress)
    with listener_for(io.StringIO()) as listener:
        assert isinstance(listener, LineProgress)
    with listener_for(Terminal(), quiet=True) as listener:
        assert isinstance(listener, Silent)
    monkeypatch.setenv("TERM", "dumb")
    with listener_for(Terminal()) as listener:
        assert isinstance(listener, LineProgress)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with listener_for(io.StringIO()) as listener:
        assert isinstance(listener, LineProgress)


def test_the_display_shows_where_the_run_stands(columns: Callable[[int], None]) -> None:
    """Stage, what it does, trials, the best so far, elapsed of budget, and how long what is counted will take."""
    columns(200)
    terminal = Terminal()
    with listener_for(terminal) as live:
        live.on_event(trial(1.2, 1))
        live.on_event(trial(1.31, 2))
        live.on_event(msgspec.structs.replace(trial(2.0, 3), config=DEFAULT))
        failed = msgspec.structs.replace(trial(9.0, 4), value=None, failure=failing(FailureClass.COMPILE, "no"))
        live.on_event(failed)
        live.on_status(status(0, 40, elapsed_s=70.0))
        live.on_status(status(10, 40, elapsed_s=83.0))
        head, tail = shown(terminal.getvalue())
    assert head == "screen   10/40  timing candidates in shared rounds"
    assert tail == (
        "1:23 of 10:00 · best so far 1.310x · 3 timed · 1 failed · about 0:39 to go · "
        "--xla_cpu_enable_platform_dependent_math=false"
    )


def test_what_is_to_go_is_counted_afresh(columns: Callable[[int], None]) -> None:
    """Another stage, another total or a smaller count starts anew; the budget bounds it; an unknown total has none."""
    columns(200)
    terminal = Terminal()
    with listener_for(terminal) as live:
        for now in (status(5, 40, elapsed_s=10), status(3, 40, elapsed_s=11), status(3, 0), status(2, 8)):
            live.on_status(now)
            assert "to go" not in shown(terminal.getvalue())[-1]
        live.on_status(status(3, 8, elapsed_s=590.0))
        assert "about 0:10 to go" in shown(terminal.getvalue())[-1]


@pytest.mark.parametrize("width", [1, 10, 30, 59, 80, 300])
def test_the_display_never_takes_more_than_two_lines(columns: Callable[[int], None], width: int) -> None:
    """However narrow: a line that wrapped would leave rubbish behind."""
    columns(width)
    terminal = Terminal()
    with listener_for(terminal) as live:
        live.on_event(trial(1.31))
        live.on_status(status(10, 40))
        drawn = shown(terminal.getvalue())
    assert len(drawn) == 2
    assert all(len(line) <= width for line in drawn)


def test_lines_that_stay_stand_above_the_display(columns: Callable[[int], None]) -> None:
    """Whole, however narrow the terminal; and the status of a stage that ended goes away."""
    columns(40)
    terminal = Terminal()
    ended = next(e for e in faster() if isinstance(e, StageFinished) and e.stage == "baseline")
    with listener_for(terminal) as live:
        live.on_status(status(stage="baseline"))
        live.on_event(Notice(text="a notice that is longer than the terminal is wide"))
        assert shown(terminal.getvalue())[0] == "notice: a notice that is longer than the terminal is wide"
        assert shown(terminal.getvalue())[1].startswith("baseline  timing")
        live.on_event(ended)
        assert shown(terminal.getvalue())[0].endswith("no room in it for profile")
        assert len(shown(terminal.getvalue())) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_terminal_is_left_clean(columns: Callable[[int], None], error: type[BaseException]) -> None:
    """However the block ends, the cursor is back, the display erased, and standard error is itself again."""
    terminal, stderr = Terminal(), sys.stderr

    def interrupted_run() -> None:
        with listener_for(terminal) as live:
            live.on_status(status(1, 4))
            raise error

    with pytest.raises(error):
        interrupted_run()
    text = terminal.getvalue()
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert re.fullmatch(r"\r?(\x1b\[1A\x1b\[2K)+", text.partition(SHOW)[2])
    assert sys.stderr is stderr


def test_no_color_takes_the_colours_away(columns: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The display itself stays."""

    def drawn() -> str:
        terminal = Terminal()
        with listener_for(terminal) as live:
            live.on_status(status(1, 4))
        return terminal.getvalue()

    assert "36m" in drawn()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "36m" not in drawn()
    assert "timing candidates" in drawn()


def test_nothing_ticks_while_steps_are_timed(columns: Callable[[int], None]) -> None:
    """The display has no thread of its own, and draws only when it is told something."""
    import threading

    before = threading.active_count()
    terminal = Terminal()
    with listener_for(terminal) as live:
        live.on_status(status(1, 4))
        assert threading.active_count() == before


def test_both_are_listeners() -> None:
    """As the type checker sees it, and in what they have."""
    for kind in (LineProgress, LiveProgress):
        assert {"on_resumed", "on_event", "on_status"} <= set(dir(kind))
    listener: Listener = LineProgress(io.StringIO())
    listener.on_status(status())


PROGRAM = """
import sys
from tuner.report.progress import listener_for
from tuner.report.listener import Status
with listener_for(sys.stderr) as live:
    live.on_status(Status(stage="screen", text="working", done=1, total=2))
    print("data")
    print("a warning", file=sys.stderr)
    raise KeyboardInterrupt
"""


@pytest.mark.slow
def test_on_a_real_terminal_data_goes_to_standard_output() -> None:
    """What is printed meanwhile stays on its own stream, and a Ctrl-C leaves the cursor visible."""
    primary, secondary = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=secondary, env=environment
    )
    os.close(secondary)
    out, _ = process.communicate(timeout=60)
    seen = b""
    try:
        while chunk := os.read(primary, 65536):
            seen += chunk
    except OSError:
        pass  # how a pseudo-terminal says that its other end is closed
    finally:
        os.close(primary)
    assert out == b"data\n"
    assert b"a warning" in seen
    assert seen.rfind(SHOW.encode()) > seen.rfind(HIDE.encode()) >= 0
