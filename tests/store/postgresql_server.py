"""A PostgreSQL server for tests: the one that the package pgserver brings, on a socket in a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["binaries", "server"]


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, None if there is none. The package's Python side isn't imported."""
    found = importlib.util.find_spec("pgserver")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "pginstall" / "bin"
    return folder if folder is not None and (folder / "postgres").is_file() else None


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Run a server with the programs in `folder`; gives a URL that lacks only a database's name: ``…://{}?…``.

    A server refuses to be root's: there it belongs to the user nobody. Raises OSError or CalledProcessError if it can't
    be started.
    """
    place = Path(tempfile.mkdtemp(prefix="tuner-pg-", dir="/tmp"))  # short: a socket's path has at most 107 bytes
    options: dict[str, str | int] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(place, nobody.pw_uid, nobody.pw_gid)
        options = {"user": nobody.pw_uid, "group": nobody.pw_gid}
    try:
        data = place / "data"
        subprocess.run(
            [folder / "initdb", "-D", data, "-U", "tuner", "--auth=trust", "--no-sync", "-E", "UTF8"],
            check=True,
            capture_output=True,
            cwd=place,
            **options,  # type: ignore[call-overload]
        )
        settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={place}", "-c", "fsync=off"]
        with (place / "log").open("wb") as log:
            running = subprocess.Popen(
                [folder / "postgres", "-D", data, *settings], stdout=log, stderr=log, cwd=place, **options
            )
        try:
            _wait(running, place)
            yield f"postgresql://tuner@/{{}}?host={place}"
        finally:
            running.send_signal(2)  # "fast": open connections are cut
            running.wait(timeout=30)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _wait(running: subprocess.Popen[bytes], place: Path) -> None:
    import psycopg

    for _ in range(300):
        if running.poll() is not None:
            raise OSError((place / "log").read_text(errors="replace")[-500:])
        try:
            psycopg.connect(host=str(place), user="tuner", dbname="postgres").close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise OSError("PostgreSQL didn't come up within 30 s")
