"""LocalSession over stub workers: every way in which a worker can end is a failure that explains itself."""

from __future__ import annotations

import _thread
import dataclasses
import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tuner.errors import SessionEnded, TunerError
from tuner.protocol.codec import OPS, to_json
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Compile, Loaded, Profile, Variant
from tuner.session.base import Launch
from tuner.session.deadlines import Deadlines
from tuner.session.local import LocalSession

pytestmark = pytest.mark.slow

Stub = Callable[..., Path]
Local = Callable[..., LocalSession]

QUICK = Deadlines(first_compile_s=0.15)
VARIANTS = [Variant(id="a"), Variant(id="b")]


def failing(session: LocalSession, op: str = "compile") -> Failure:
    """The failure by which `session` ends when `op` is called."""
    with pytest.raises(SessionEnded) as caught:
        session.start() if op == "load" else session.compile(VARIANTS)
    assert caught.value.failure == session.ended
    return caught.value.failure


def test_a_session_answers(local: Local, stub: Stub, loaded: Loaded) -> None:
    session = local(stub())
    assert loaded == session.start()
    assert [r.id for r in session.compile(VARIANTS).results if not isinstance(r, Failure)] == ["a", "b"]
    arms = [Arm(id="b", steps=3), Arm(id="a", steps=4)]
    assert [(b.id, b.steps) for b in session.round(arms) if not isinstance(b, Failure)] == [("b", 3), ("a", 4)]
    assert session.release(["a"]) == 0
    session.close()
    assert session.ended is None


def test_a_session_starts_once(local: Local, stub: Stub) -> None:
    session = local(stub())
    with pytest.raises(TunerError, match="not started"):
        session.compile(VARIANTS)
    session.start()
    with pytest.raises(TunerError, match="already"):
        session.start()


def test_a_closed_session_is_ended_without_a_failure(local: Local, stub: Stub) -> None:
    session = local(stub())
    session.start()
    session.close()
    session.close()
    assert session.ended is None
    with pytest.raises(SessionEnded, match="closed"):
        session.compile(VARIANTS)


def test_a_session_that_never_started_can_be_closed(local: Local, stub: Stub) -> None:
    session = local(stub())
    session.close()
    with pytest.raises(SessionEnded):
        session.start()


@pytest.mark.parametrize(
    ("deed", "kind", "signal", "exit_code"),
    [
        ("os.abort()", FailureClass.CRASH, "SIGABRT", None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", FailureClass.CRASH, "SIGSEGV", None),
        ("os.kill(os.getpid(), signal.SIGILL)", FailureClass.ILLEGAL_INSTRUCTION, "SIGILL", None),
        ("os.kill(os.getpid(), signal.SIGKILL)", FailureClass.HOST_OUT_OF_MEMORY, "SIGKILL", None),
        ("os.kill(os.getpid(), signal.SIGTERM)", FailureClass.INTERRUPTED, "SIGTERM", None),
        ("os._exit(1)", FailureClass.FATAL, None, 1),
        ("os._exit(0)", FailureClass.PROTOCOL, None, 0),
    ],
)
def test_a_death_is_told_by_its_signal_or_code(
    local: Local, stub: Stub, deed: str, kind: FailureClass, signal: str | None, exit_code: int | None
) -> None:
    session = local(
        stub(f"def handle(request):\n  if request['op'] == 'load': return {{'ok': answer(request)}}\n  {deed}")
    )
    session.start()
    failure = failing(session)
    assert (kind, "compile", signal, exit_code) == (failure.kind, failure.phase, failure.signal, failure.exit_code)
    assert (signal or "exited") in failure.message


def test_after_its_end_every_call_but_close_says_so(local: Local, stub: Stub, tmp_path: Path) -> None:
    session = local(stub("def handle(request): os._exit(1)"))
    failure = failing(session, "load")
    calls: list[Callable[[], object]] = [
        session.start,
        lambda: session.probe(["x"]),
        lambda: session.compile(VARIANTS),
        lambda: session.round([]),
        lambda: session.numerics("a", steps=1, reference=tmp_path / "r"),
        lambda: session.pgle(VARIANTS[0]),
        lambda: session.profile(Profile(id="a", steps=1, folder=str(tmp_path))),
        session.ceilings,
        lambda: session.release(["a"]),
    ]
    for call in calls:
        with pytest.raises(SessionEnded) as caught:
            call()
        assert failure == caught.value.failure
    session.close()
    session.close()


def test_the_fatal_line_is_quoted_whole(local: Local, stub: Stub) -> None:
    line = "F1127 23:43:41.430175    7391 parse_flags_from_env.cc:234] Unknown flags in XLA_FLAGS: " + " ".join(
        f"--xla_no_such_flag_{n}=1" for n in range(300)
    )
    before = f"""
        def handle(request):
            for n in range(100):
                print("line", n)
            print({line!r}, flush=True)
            os._exit(1)
    """
    failure = failing(local(stub(before)), "load")
    assert failure.kind == FailureClass.UNSUPPORTED
    assert line == failure.message
    assert failure.log_head[:2] == ("line 0", "line 1")
    assert failure.log_tail[-2] == "line 99"


def test_lines_of_an_earlier_request_or_process_explain_nothing(
    local: Local, stub: Stub, make_launch: Callable[..., Launch]
) -> None:
    before = """
        def handle(request):
            if request["op"] == "compile":
                os.abort()
            print("F1127 23:43:41.430175 1 a.cc:1] survived in a child process", flush=True)
            return {"ok": answer(request)}
    """
    python = stub(before)
    log = make_launch(python).log
    log.parent.mkdir()
    log.write_text("F1127 23:43:41.430175 1 a.cc:1] of the last run\n")
    session = local(python)
    session.start()
    failure = failing(session)
    assert "SIGABRT" in failure.message
    assert "last run" not in str(failure.log_head)
    assert "of the last run" in log.read_text()


def test_a_hang_is_cut_with_all_that_it_started(local: Local, stub: Stub) -> None:
    before = """
        def handle(request):
            if request["op"] == "compile":
                child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
                print("pid", child.pid, flush=True)
                time.sleep(1000)
            return {"ok": answer(request)}
    """
    session = local(stub(before), deadlines=QUICK)
    session.start()
    failure = failing(session)
    assert (failure.kind, failure.phase) == (FailureClass.TIMEOUT, "compile")
    assert None is failure.signal
    pid = int(failure.log_tail[-1].split()[1])
    assert not psutil.pid_exists(pid)


def test_a_worker_without_a_hello_is_cut_in_start(local: Local, stub: Stub) -> None:
    failure = failing(local(stub(hello="time.sleep(100)"), deadlines=Deadlines(start_s=0.15)), "load")
    assert (failure.kind, failure.phase) == (FailureClass.TIMEOUT, "start")


def test_deadlines_are_asked_for_at_each_call(local: Local, stub: Stub) -> None:
    limits = [Deadlines()]
    hang = (
        "def handle(request):\n  time.sleep(100 if request['op'] == 'compile' else 0)\n  return {'ok': answer(request)}"
    )
    session = local(stub(hang), deadlines=lambda: limits[-1])
    session.start()
    limits.append(QUICK)
    assert failing(session).kind == FailureClass.TIMEOUT


def test_a_workload_that_can_not_be_loaded_ends_the_session(local: Local, stub: Stub) -> None:
    reported = to_json(Failure(kind=FailureClass.WORKLOAD, phase="load", message="NameError: x", traceback="…"))
    failure = failing(
        local(stub(f"def handle(request):\n  print('hm', flush=True)\n  return {{'failure': {reported!r}}}")), "load"
    )
    assert (failure.kind, failure.message, failure.traceback) == (FailureClass.WORKLOAD, "NameError: x", "…")
    assert failure.log_tail == ("hm",)


def test_a_candidate_that_fails_is_data(local: Local, stub: Stub, tmp_path: Path) -> None:
    reported = to_json(Failure(kind=FailureClass.RUNTIME, phase="numerics", message="no"))
    before = f"""
        def handle(request):
            if request["op"] == "compile":
                return {{"ok": {{"results": [compiled("a"), {reported!r}]}}}}
            return {{"failure": {reported!r}}} if request["op"] == "numerics" else {{"ok": answer(request)}}
    """
    session = local(stub(before))
    session.start()
    first, second = session.compile(VARIANTS).results
    assert not isinstance(first, Failure)
    assert isinstance(second, Failure)
    assert second == session.numerics("b", steps=1, reference=tmp_path / "reference")
    assert session.ended is None


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("{'id': 99, 'ok': {}}", "request 2"),
        ("{'ok': {'results': []}}", "asked for"),
        ("{'ok': {'results': [compiled('b'), compiled('a')]}}", "asked for"),
        ("{'ok': {'results': 1}}", "does not fit"),
        ("{}", "request 2"),
    ],
)
def test_an_answer_that_is_none_ends_the_session(local: Local, stub: Stub, reply: str, says: str) -> None:
    before = f"def handle(request): return {{'ok': answer(request)}} if request['op'] == 'load' else {reply}"
    session = local(stub(before))
    session.start()
    failure = failing(session)
    assert failure.kind == FailureClass.PROTOCOL
    assert says in failure.message


def test_a_line_that_is_no_json_ends_the_session(local: Local, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.session.connection._NONSENSE_S", 0.1)
    failure = failing(local(stub("def handle(request): os.write(answers, b'what?\\n'); time.sleep(100)")), "load")
    assert failure.kind == FailureClass.PROTOCOL
    assert "what?" in failure.message


def test_the_last_words_of_a_wrapper_do_not_hide_how_the_worker_died(local: Local, stub: Stub) -> None:
    wrapper = ("bash", "-c", '"$0" "$@"; code=$?; echo done; exit $code')
    failure = failing(local(stub("def handle(request): os.abort()"), wrapper=wrapper), "load")
    assert (failure.kind, failure.signal) == (FailureClass.CRASH, "SIGABRT")


def test_a_wrapper_has_time_to_write_its_report_once_the_worker_has_ended(
    local: Local, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.session.connection._CLOSE_S", 0.1)
    report = tmp_path / "report"
    session = local(stub(), wrapper=("bash", "-c", f'"$0" "$@"; sleep 0.5; touch {report}'))
    session.start()
    session.close()
    assert report.exists()


@pytest.mark.parametrize(
    ("hello", "says"), [("hello(protocol=99)", "protocol 99"), ("send({'nonce': nonce})", "missing field")]
)
def test_a_worker_of_another_kind_is_refused(local: Local, stub: Stub, hello: str, says: str) -> None:
    failure = failing(local(stub(hello=hello)), "load")
    assert (failure.kind, failure.phase) == (FailureClass.PROTOCOL, "start")
    assert says in failure.message


def test_an_interpreter_that_can_not_run_the_worker_says_why(local: Local, stub: Stub) -> None:
    failure = failing(local(stub(hello="raise SyntaxError('f-strings')")), "load")
    assert (failure.kind, failure.phase) == (FailureClass.PROTOCOL, "start")
    assert failure.message == "SyntaxError: f-strings"


def test_a_missing_interpreter_is_named(local: Local, tmp_path: Path) -> None:
    failure = failing(local(tmp_path / "no-python"), "load")
    assert failure.kind == FailureClass.PLATFORM
    assert "no-python" in failure.message


def test_changes_are_applied_over_the_given_environment(local: Local, stub: Stub) -> None:
    before = "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('T_')}), flush=True)"
    session = local(
        stub(before),
        environ={"T_KEPT": "1", "T_GONE": "1", "T_SET": "1"},
        env={"T_GONE": None, "T_SET": "2", "T_NO": None},
    )
    session.start()
    assert json.loads(session.launch.log.read_text().splitlines()[0]) == {"T_KEPT": "1", "T_SET": "2"}


def interrupted_round(session: LocalSession) -> None:
    """Ctrl-C in the middle of a round."""
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.round([Arm(id="a", steps=1)])
    timer.join()


def test_after_ctrl_c_a_session_is_closed_at_once(local: Local, stub: Stub) -> None:
    session = local(
        stub("def handle(request): time.sleep(100 * (request['op'] == 'round')); return {'ok': answer(request)}")
    )
    session.start()
    interrupted_round(session)
    began = time.monotonic()
    session.close()
    assert time.monotonic() - began < 2
    assert session.ended is None


def test_after_ctrl_c_the_late_answer_is_not_taken_for_the_next(local: Local, stub: Stub) -> None:
    session = local(
        stub("def handle(request): time.sleep(0.3 * (request['op'] == 'round')); return {'ok': answer(request)}")
    )
    session.start()
    interrupted_round(session)
    assert len(session.compile(VARIANTS).results) == 2


def test_the_command_repeats_the_failure(local: Local, stub: Stub) -> None:
    """It sends the load, the compile that the failing round needs, and the round; nothing of what went well before."""
    before = """
        def handle(request):
            print(request["id"], request["op"], os.environ.get("T_SET"), flush=True)
            if request["op"] == "round":
                os.abort()
            return {"ok": answer(request)}
    """
    session = local(stub(before), env={"T_SET": "a 'quoted' text", "T_GONE": None})
    session.start()
    session.compile([Variant(id="other")])
    session.compile(VARIANTS)
    session.release(["b"])
    with pytest.raises(SessionEnded) as caught:
        session.round([Arm(id="a", steps=1)])
    done = subprocess.run(
        ["bash", "-c", caught.value.failure.command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        env={"PATH": "/usr/bin:/bin", "T_GONE": "1"},
    )
    said = [line for line in done.stderr.splitlines() if line[0].isdigit()]
    assert [f"{n} {op} a 'quoted' text" for n, op in [(1, "load"), (3, "compile"), (5, "round")]] == said
    assert len(done.stdout.splitlines()) == 3  # hello and two answers


def test_requests_are_those_of_the_protocol(local: Local, stub: Stub, tmp_path: Path) -> None:
    seen = tmp_path / "requests"
    before = f"""
        def handle(request):
            print(json.dumps(request), file=open({str(seen)!r}, "a"))
            return {{"ok": answer(request)}}
    """
    session = local(stub(before))
    session.start()
    session.compile(VARIANTS, threads=4)
    session.close()
    load, compile_, close = map(json.loads, seen.read_text().splitlines())
    assert (1, "load", str(tmp_path / "workload.py")) == (load["id"], load["op"], load["workload"])
    assert {"id": 2, "op": "compile", **to_json(Compile(variants=tuple(VARIANTS), threads=4))} == compile_
    assert close == {"id": 3, "op": "close"}


@pytest.mark.parametrize("op", OPS)
def test_no_field_of_a_request_takes_the_place_of_its_number(op: str) -> None:
    request, _ = OPS[op]
    names = {f.metadata.get("json", f.name) for f in dataclasses.fields(request)}
    assert names.isdisjoint({"id", "op", "ok", "failure"})
