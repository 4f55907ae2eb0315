"""Stub workers: small scripts that speak the protocol in place of `python worker.zip`."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tuner.protocol.codec import to_json
from tuner.protocol.messages import Loaded
from tuner.session.base import Launch
from tuner.session.deadlines import Deadlines
from tuner.session.local import LocalSession

# A shell that starts the tests in the background has them ignore it, and Python then raises nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

LOADED = Loaded(
    source="build",
    step_name="step",
    platform="cpu",
    device_kind="cpu",
    device_count=1,
    process_count=1,
    versions={"jax": "0.10.2"},
    devices=("cpu",),
    xla_flags="",
    xla_flags_after="",
    environ_changed={},
    knobs_declared={},
    carried=(),
    inputs=(),
    input_bytes=0,
    device_memory_bytes=None,
    has_check=False,
    work=None,
    import_s=0.0,
    init_s=0.0,
    build_s=0.0,
)

_STUB = """\
#!{python} -IS
import json, os, signal, subprocess, sys, time

requests, answers = os.fdopen(os.dup(0)), os.dup(1)
nonce = os.environ["TUNER_WORKER_NONCE"]

def send(value):
    data = json.dumps(value).encode() + b"\\n"
    while data:
        data = data[os.write(answers, data):]

def hello(**fields):
    send({{"nonce": nonce, "pid": os.getpid(), "python": "3", "protocol": 1, **fields}})

def compiled(id):
    return {{"id": id, "program": "p", "code": "c", "code_covers": "hlo", "lower_s": 0.1, "compile_s": 0.1,
            "peak_bytes": None, "collectives": {{}}, "cache_hit": None}}

def answer(request):
    op = request["op"]
    if op == "load":
        return {loaded}
    if op == "lower":
        return {{"program": "p"}}
    if op == "compile":
        return {{"results": [compiled(v["id"]) for v in request["variants"]]}}
    if op == "round":
        arms = [(arm["id"], arm["steps"]) for arm in request["arms"]]
        return {{"blocks": [{{"id": id, "steps": steps, "seconds": 0.1, "first_s": 0.1}} for id, steps in arms]}}
    if op == "release":
        return {{"live_executables": 0}}
    if op == "close":
        return {{}}

def handle(request):
    return {{"ok": answer(request)}}

{before}
{hello}
os.dup2(2, 1)
for line in requests:
    request = json.loads(line)
    send({{"id": request["id"], **handle(request)}})
    if request["op"] == "close":
        break
"""

Stub = Callable[..., Path]


def children() -> set[psutil.Process]:
    """Everything that descends from this process, adopted orphans and zombies included."""
    return set(psutil.Process().children(recursive=True))


@pytest.fixture
def loaded() -> Loaded:
    """What stub workers find."""
    return LOADED


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    """Makes an executable stub worker. `before` runs before the hello; it may redefine `handle` and `answer`."""

    def make(before: str = "", *, hello: str = "hello()") -> Path:
        script = tmp_path / "stub-worker"
        loaded = repr(json.loads(json.dumps(to_json(LOADED))))
        text = _STUB.format(python=sys.executable, loaded=loaded, before=textwrap.dedent(before), hello=hello)
        script.write_text(text)
        script.chmod(0o755)
        return script

    return make


@pytest.fixture
def make_launch(tmp_path: Path) -> Callable[..., Launch]:
    def make(python: str | Path, env: dict[str, str | None] | None = None) -> Launch:
        return Launch(
            name="test",
            role="home",
            workload=tmp_path / "workload.py",
            log=tmp_path / "logs" / "test.log",
            python=str(python),
            env=env or {},
        )

    return make


@pytest.fixture
def local(make_launch: Callable[..., Launch]) -> Iterator[Callable[..., LocalSession]]:
    """Makes LocalSessions over stubs; they are closed, and nothing of them may be left, when the test ends."""
    sessions: list[LocalSession] = []

    def make(python: Path, *, env: dict[str, str | None] | None = None, **options: object) -> LocalSession:
        given = {"environ": {"PATH": os.defpath}, "deadlines": Deadlines(), **options}
        session = LocalSession(make_launch(python, env), **given)  # type: ignore[arg-type]
        sessions.append(session)
        return session

    before = children()
    yield make
    for session in sessions:
        session.close()
    assert children() - before == set()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test leaves no process behind, not even a zombie."""
    before = children()
    yield
    assert children() - before == set()
