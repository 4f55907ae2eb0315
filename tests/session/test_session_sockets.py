"""Workers over the network: who shows no token stays outside; a guest is a channel."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.session.sockets import Guest, Hall

TOKEN = "0123456789abcdef"


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    made = Hall(TOKEN, log=tmp_path / "log")
    yield made
    made.close()


def knock(hall: Hall, line: bytes) -> socket.socket:
    worker = socket.create_connection(("127.0.0.1", hall.port), timeout=5)
    worker.sendall(line)
    return worker


def hello(nonce: str = TOKEN, rank: int = 0) -> bytes:
    return json.dumps({"nonce": nonce, "pid": 1, "python": "3", "rank": rank, "size": 2}).encode() + b"\n"


def let_in(hall: Hall) -> Guest:
    guest = hall.next(timeout_s=5)
    assert guest is not None
    return guest


def test_who_shows_the_token_is_let_in_and_heard(hall: Hall) -> None:
    worker = knock(hall, hello(rank=1) + b'{"early": 1}\n')
    guest = let_in(hall)
    assert (guest.hello.rank, guest.hello.size) == (1, 2)
    assert json.loads(guest.receive(timeout_s=5))["nonce"] == TOKEN
    assert guest.receive(timeout_s=5) == b'{"early": 1}'
    with pytest.raises(TimeoutError):
        guest.receive(timeout_s=0.01)
    guest.send(b"ask", timeout_s=5)
    assert worker.recv(10) == b"ask\n"
    guest.close()
    assert worker.recv(10) == b""
    worker.close()


@pytest.mark.parametrize("line", [hello("ffff"), b"GET / HTTP/1.1\r\n\r\n", b'{"nonce": 3}\n', b"\n"])
def test_anybody_else_is_sent_away(hall: Hall, line: bytes) -> None:
    stranger = knock(hall, line)
    assert stranger.recv(10) == b""
    stranger.close()
    assert hall.next(timeout_s=0.0) is None


def test_a_stranger_that_says_nothing_keeps_nobody_out(hall: Hall) -> None:
    silent, worker = knock(hall, b""), knock(hall, hello())
    let_in(hall).close()
    silent.close()
    worker.close()


def test_a_worker_that_is_gone_is_an_end(hall: Hall) -> None:
    worker = knock(hall, hello())
    guest = let_in(hall)
    guest.receive(timeout_s=5)
    worker.close()
    with pytest.raises(EOFError):
        guest.receive(timeout_s=5)
    with pytest.raises(EOFError):
        guest.receive(timeout_s=5)
    assert guest.linger(1.0)
    ended = guest.kill(after_s=1.0)
    assert (ended.code, ended.signal, ended.by_us) == (None, None, False)
    guest.close()
    with pytest.raises(EOFError):
        guest.send(b"x", timeout_s=1)


def test_a_hall_that_closes_lets_go_of_those_inside(tmp_path: Path) -> None:
    hall = Hall(TOKEN, log=tmp_path / "log")
    worker = knock(hall, hello())
    time.sleep(0.1)
    hall.close()
    assert worker.recv(10) == b""
    worker.close()
