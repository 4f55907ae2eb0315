"""What reads the dialects in production: the real program where it is installed, and models of the documented rules."""

from __future__ import annotations

import ctypes
import http.server
import json
import re
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

SHELLS = [name for name in ("bash", "dash", "sh") if shutil.which(name)]


# -- shells ----------------------------------------------------------------------------------------------------------


def sourced_by(shell: str, data: bytes, folder: Path, before: dict[str, str]) -> dict[str, str]:
    """The variables whose name begins with T_ after a strict shell, started with `before`, sourced `data`."""
    (folder / "vars.sh").write_bytes(data)
    command = [shutil.which(shell) or shell, "-c", "set -eu; . ./vars.sh; exec env -0"]
    done = subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin", **before}, capture_output=True, check=True)
    assert done.stderr == b""
    entries = (entry.decode(errors="surrogateescape") for entry in done.stdout.split(b"\0"))
    return {name: value for name, _, value in (e.partition("=") for e in entries) if name.startswith("T_")}


# -- docker ----------------------------------------------------------------------------------------------------------


class FakeDaemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Listens where docker's client expects the daemon, and keeps the environment it was asked to give a container."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.environments: list[list[str]] = []
        super().__init__(str(path), _Answers)


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b"{}")

    def do_HEAD(self) -> None:
        self._answer(200, b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, FakeDaemon)
        self.server.environments.append(asked.get("Env") or [])
        self._answer(500, b'{"message": "seen"}')

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def address_string(self) -> str:
        return "client"

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Api-Version", "1.44")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_daemon(path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(path) as daemon:
        thread = threading.Thread(target=daemon.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield daemon
        finally:
            daemon.shutdown()
            thread.join()


def read_by_docker(data: bytes, folder: Path) -> dict[str, str]:
    """What docker's own client reads from an --env-file."""
    file, socket = folder / "vars.env", folder / "d.sock"
    file.write_bytes(data)
    socket.unlink(missing_ok=True)
    with fake_daemon(socket) as daemon:
        done = subprocess.run(
            ["docker", "create", "--env-file", str(file), "image"],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "DOCKER_HOST": f"unix://{socket}"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert "seen" in done.stderr, done.stderr
    (entries,) = daemon.environments
    return dict(entry.split("=", 1) for entry in entries)


# -- kubectl ---------------------------------------------------------------------------------------------------------


def kubectl(*arguments: str) -> dict[str, str]:
    """The data of the ConfigMap that kubectl makes, without a cluster."""
    done = subprocess.run(["kubectl", *arguments, "-o", "json"], capture_output=True, text=True, check=True)
    data: dict[str, str] = json.loads(done.stdout).get("data") or {}
    return data


def kubectl_from_env_file(data: bytes, folder: Path) -> dict[str, str]:
    file = folder / "vars.env"
    file.write_bytes(data)
    return kubectl("create", "configmap", "x", f"--from-env-file={file}", "--dry-run=client")


def kubectl_reads_manifest(data: bytes, folder: Path) -> dict[str, str]:
    file = folder / "map.yaml"
    file.write_bytes(data)
    return kubectl("patch", "--local", "-f", str(file), "-p", "{}")


# -- systemd ---------------------------------------------------------------------------------------------------------


@cache
def systemd_library() -> Any | None:
    """systemd's own shared library, in which the reader of EnvironmentFile= is; None where it isn't installed."""
    found = sorted(Path("/usr/lib").glob("**/systemd/libsystemd-shared-*.so"))
    try:
        library = ctypes.CDLL(str(found[-1]))
        library.load_env_file.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p)),
        ]
    except (IndexError, OSError, AttributeError):
        return None
    return library


def read_by_systemd(data: bytes, folder: Path) -> dict[str, str]:
    file = folder / "vars.systemd"
    file.write_bytes(data)
    entries = ctypes.POINTER(ctypes.c_char_p)()
    library = systemd_library()
    assert library is not None
    status = library.load_env_file(None, str(file).encode(), ctypes.byref(entries))
    assert status >= 0, f"systemd refuses the file: {status}"
    found = []
    while entries and (entry := entries[len(found)]) is not None:
        found.append(entry.decode())
    return dict(entry.split("=", 1) for entry in found)


# -- models ----------------------------------------------------------------------------------------------------------


def docker_model(data: bytes) -> dict[str, str]:
    """The rules of docker's env-file as its client documents them, with the quotes taken off that some versions take
    off: what stands in a file must mean the same under both."""
    env = {}
    for number, line in enumerate(data.split(b"\n")):
        assert len(line) < 64 << 10, "token too long"
        text = line.removesuffix(b"\r").decode()  # strict: other bytes than UTF-8 are refused
        if number == 0:
            text = text.removeprefix("\ufeff")
        text = text.lstrip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        assert name, "no variable name"
        assert not re.search(r"[ \t]", name), "the name holds blanks"
        assert equals, "the value would be taken from the client's environment"
        assert not (len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"), "versions differ"
        env[name] = value
    return env


def compose_model(data: bytes) -> dict[str, str]:
    """The rules of docker compose's env_file, for quoted values, as its parser has them. ``$`` and backslashes in
    double quotes would be read further, so they must not be there."""
    text, env = data.decode().replace("\r\n", "\n"), {}
    while text := text.lstrip():
        if text.startswith("#"):
            text = text.partition("\n")[2]
            continue
        name, _, rest = text.partition("=")
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name), f"no name: {name!r}"
        quote = rest[0]
        assert quote in "'\""
        end = next(i for i in range(1, len(rest)) if rest[i] == quote and rest[i - 1] != "\\")
        value = rest[1:end]
        assert quote == "'" or not re.search(r"[$\\]", value)
        assert value.strip(quote) == value, "some versions would take these quotes off"
        env[name] = value
        text = rest[end + 1 :]
        assert not text or text.startswith("\n"), f"something stands behind the value: {text!r}"
    return env


def kubelet_expands(value: str, known: dict[str, str]) -> str:
    """What becomes of a value under a container's ``env:``: ``$(NAME)`` is replaced where NAME is known, ``$$`` is
    ``$``. Not so under ``envFrom:``."""
    return re.sub(r"\$(?:(\$)|\(([^)]*)\))", lambda m: "$" if m[1] else known.get(m[2], m[0]), value)
