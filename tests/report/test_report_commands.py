"""Commands about a run work where the run's own command did."""

from __future__ import annotations

import html
import re
from pathlib import Path

import msgspec
import pytest
from synthetic_run import FILES, faster

from tuner.report.commands import profile_command, show_command
from tuner.report.markdown import render_markdown
from tuner.report.paper import run_paper
from tuner.report.written import write_reports
from tuner.store.events import RunStarted
from tuner.store.folder import RunFolder

RUN = ("tune", "w.py", "--budget", "4m", "--store=/a b", "--knob", "batch=8", "--", "--store", "mine")


@pytest.mark.parametrize(
    ("command", "store"),
    [
        (("tune", "w.py"), ""),
        (("tune", "w.py", "--store", "a b", "--seed", "1"), " --store 'a b'"),
        (("tune", "w.py", "--store=sqlite:///x.db"), " --store=sqlite:///x.db"),
        (("tune", "w.py", "--", "--store", "mine"), ""),
    ],
)
def test_a_run_is_looked_for_where_it_was_put(command: tuple[str, ...], store: str) -> None:
    """Its store as it was written; the workload's own arguments are none of ours."""
    assert show_command("3", run="w-1", command=command) == f"tune show 3 --run w-1{store}"
    assert show_command("--failed", run="", command=command) == f"tune show --failed{store}"


def test_the_program_that_was_tuned_is_the_one_profiled() -> None:
    """Parameters of build() and its own arguments make another program; the budget doesn't."""
    assert profile_command("w.py", run="w-1", command=RUN) == (
        "tune profile w.py --run w-1 '--store=/a b' --knob batch=8 -- --store mine"
    )


def test_a_report_gives_commands_that_find_its_run() -> None:
    events = [msgspec.structs.replace(e, command=RUN) if isinstance(e, RunStarted) else e for e in faster()]
    text = render_markdown(run_paper(events))
    commands = re.findall("^tune (?:show|profile) .*$", text, re.MULTILINE)
    assert len(commands) == 3
    assert all("'--store=/a b'" in command for command in commands)


def test_a_report_links_to_what_is_there(tmp_path: Path) -> None:
    """A log that was taken elsewhere by itself: its run's files are not where they were written, nor beside it."""
    folder = RunFolder(path=tmp_path)
    folder.events.write_text("")
    for logs in (False, True):
        if logs:
            folder.logs.mkdir()
        page, _ = write_reports(faster(), folder)
        links = {html.unescape(link) for link in re.findall('href="([^#"]*)"', page.read_text())}
        assert links == {"events.jsonl", "report.html", "report.md", *(["logs"] if logs else [])}
    assert FILES["shell"] not in page.read_text()
