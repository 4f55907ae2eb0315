"""A child of any behaviour: what it says comes through, what it prints is kept, what it starts ends with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tuner.session.process import Child, Exit

pytestmark = pytest.mark.slow

NONCE = "0123456789abcdef"
ENVIRON = {"PATH": os.defpath}

Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path, nothing_left: None) -> Iterator[Start]:
    children: list[Child] = []

    def begin(*argv: str | Path, wrapped: bool = False) -> Child:
        child = Child([str(a) for a in argv], environ=ENVIRON, nonce=NONCE, log=tmp_path / "child.log", wrapped=wrapped)
        children.append(child)
        return child

    yield begin
    for child in children:
        child.close()


def hello(child: Child) -> int:
    """The child's pid, from its hello."""
    pid = json.loads(child.receive(timeout_s=20))["pid"]
    child.watch(pid)
    return int(pid)


def ask(child: Child, **fields: object) -> dict[str, object]:
    child.send(json.dumps({"id": 1, "op": "other", **fields}).encode(), timeout_s=20)
    reply = json.loads(child.receive(timeout_s=20))
    assert isinstance(reply, dict)
    return reply


def test_noise_before_the_hello_goes_to_the_log(start: Start, stub: Callable[..., Path], tmp_path: Path) -> None:
    before = """
        print("module loaded")
        print(json.dumps({"nonce": "of another parent", "pid": 1}))
        print(json.dumps(["not an object", nonce]), flush=True)
        os.write(1, b"{broken " + nonce.encode() + b"\\n")
    """
    child = start(stub(before))
    assert child.pid == hello(child)
    lines = (tmp_path / "child.log").read_text().splitlines()
    assert lines[0] == "module loaded"
    assert len(lines) == 4


def test_a_child_that_never_greets_is_silence_then_its_end(start: Start, tmp_path: Path) -> None:
    child = start(sys.executable, "-IS", "-c", "import time; print('hi', flush=True); time.sleep(0.25)")
    with pytest.raises(TimeoutError):
        child.receive(timeout_s=0.1)
    with pytest.raises(EOFError):
        child.receive(timeout_s=20)
    assert Exit(code=0) == child.kill(after_s=5)
    assert (tmp_path / "child.log").read_text() == "hi\n"


def test_lines_of_300_kilobytes_pass_both_ways(start: Start, stub: Callable[..., Path]) -> None:
    child = start(stub("def handle(request): return request"))
    hello(child)
    text = "x" * 300_000
    assert text == ask(child, text=text)["text"]


def test_whatever_it_prints_ends_in_the_log(start: Start, stub: Callable[..., Path], tmp_path: Path) -> None:
    before = """
        def handle(request):
            print("to stdout", flush=True)
            print("to stderr", file=sys.stderr, flush=True)
            os.write(1, b"raw\\n")
            subprocess.run(["echo", "from a child"])
            return {"ok": True}
    """
    child = start(stub(before))
    hello(child)
    assert ask(child) == {"id": 1, "ok": True}
    assert (tmp_path / "child.log").read_text().splitlines() == ["to stdout", "to stderr", "raw", "from a child"]


def test_eof_ends_the_child(start: Start, stub: Callable[..., Path]) -> None:
    child = start(stub())
    pid = hello(child)
    assert Exit(code=0) == child.close(after_s=20)
    assert not psutil.pid_exists(pid)


def test_a_child_that_does_not_read_is_a_timeout(start: Start, stub: Callable[..., Path]) -> None:
    child = start(stub(hello="hello(); time.sleep(60)"))
    hello(child)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        child.send(b"x" * 1_000_000, timeout_s=0.2)
    assert time.monotonic() - began < 10
    assert Exit(signal=signal.SIGKILL, by_us=True) == child.kill()


def test_writing_to_a_dead_child_says_that_it_is_gone(start: Start, stub: Callable[..., Path]) -> None:
    child = start(stub(hello="hello(); sys.exit(3)"))
    hello(child)
    assert child.linger(20)
    with pytest.raises(EOFError):
        child.send(b"{}", timeout_s=5)
    assert Exit(code=3) == child.kill()


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL, signal.SIGILL])
def test_a_signal_that_we_did_not_send_is_told(start: Start, stub: Callable[..., Path], number: int) -> None:
    child = start(stub(hello=f"hello(); os.kill(os.getpid(), {int(number)})"))
    hello(child)
    with pytest.raises(EOFError):
        child.receive(timeout_s=20)
    assert Exit(signal=number) == child.kill(after_s=5)


def test_the_whole_tree_is_killed(start: Start, stub: Callable[..., Path]) -> None:
    """A child's child, one in a session of its own, and one that lost its parent in a session of its own."""
    before = """
        sleep = ["sleep", "1000"]
        plain = subprocess.Popen(sleep)
        moved = subprocess.Popen(sleep, start_new_session=True)
        code = "import subprocess; print(subprocess.Popen(['sleep', '1000'], stdout=2, start_new_session=True).pid)"
        orphan = subprocess.run([sys.executable, "-IS", "-c", code], stdout=subprocess.PIPE).stdout
        def handle(request):
            return {"pids": [plain.pid, moved.pid, int(orphan)]}
    """
    child = start(stub(before))
    hello(child)
    pids = ask(child)["pids"]
    assert isinstance(pids, list)
    assert all(psutil.pid_exists(pid) for pid in pids)
    child.kill()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


def test_what_a_dead_child_left_running_is_killed_too(start: Start, stub: Callable[..., Path]) -> None:
    """The orphan even holds the child's pipe: its end is seen all the same."""
    hold = "subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=answers).pid"
    child = start(stub(hello=f"hello(left={hold}); sys.exit(0)"))
    first = json.loads(child.receive(timeout_s=20))
    child.watch(first["pid"])
    with pytest.raises(EOFError):
        child.receive(timeout_s=20)
    assert Exit(code=0) == child.kill(after_s=5)
    assert not psutil.pid_exists(first["left"])


def test_a_child_that_dies_while_another_lives_leaves_the_other_alone(start: Start, stub: Callable[..., Path]) -> None:
    worker = stub()
    first, second = start(worker), start(worker)
    hello(first)
    hello(second)
    first.kill()
    assert ask(second, op="round", arms=[])["ok"] == {"blocks": []}


@pytest.mark.parametrize(
    "wrapper",
    [
        ("bash", "-c", 'cat | "$0" "$@" | cat'),
        ("bash", "-c", 'echo starting; "$0" "$@"; exit $?'),
        ("env", "A=b"),
        ("setsid", "-w"),
        ("setsid",),
        ("timeout", "100"),
    ],
    ids=lambda words: " ".join(words)[:12],
)
def test_wrappers_are_seen_through_and_killed(
    start: Start, stub: Callable[..., Path], wrapper: tuple[str, ...]
) -> None:
    child = start(*wrapper, stub("def handle(request): return {'ok': 1}"), wrapped=True)
    pid = hello(child)
    assert ask(child) == {"id": 1, "ok": 1}
    child.kill()
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("wrapper", [("bash", "-c", '"$0"; exit $?'), ("setsid",), ("env",)], ids=" ".join)
def test_a_signal_is_seen_through_a_wrapper(start: Start, stub: Callable[..., Path], wrapper: tuple[str, ...]) -> None:
    child = start(*wrapper, stub("def handle(request): os.kill(os.getpid(), signal.SIGSEGV)"), wrapped=True)
    hello(child)
    child.send(b'{"id": 1, "op": "x"}', timeout_s=5)
    with pytest.raises(EOFError):
        child.receive(timeout_s=20)
    assert Exit(signal=signal.SIGSEGV) == child.kill(after_s=5)


def test_killing_twice_and_closing_twice_is_fine(start: Start, stub: Callable[..., Path]) -> None:
    child = start(stub())
    hello(child)
    assert child.kill() == child.kill() == child.close() == child.close()


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Child([str(tmp_path / "none")], environ={}, nonce=NONCE, log=tmp_path / "log")


def test_children_end_when_their_parent_is_killed(stub: Callable[..., Path], tmp_path: Path) -> None:
    """Of two children, too: neither may hold the other's pipe open."""
    parent = f"""
        import json, time
        from pathlib import Path
        from tuner.session.process import Child
        pids = []
        for name in ("a", "b"):
            child = Child([{str(stub())!r}], environ={{}}, nonce="n" + name, log=Path({str(tmp_path)!r}, name + ".log"))
            pids.append(json.loads(child.receive(timeout_s=20))["pid"])
            globals()[name] = child
        print(json.dumps(pids), flush=True)
        time.sleep(100)
    """
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent)], stdout=subprocess.PIPE, env={"PYTHONPATH": root}
    ) as process:
        assert process.stdout is not None
        workers = [psutil.Process(pid) for pid in json.loads(process.stdout.readline())]
        process.kill()
    # Waited for, since this process may have adopted them by now.
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
