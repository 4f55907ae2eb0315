"""The store on the disk: ``.tuner/`` with one folder a run, and the database beside them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import urllib.parse
from pathlib import Path

import msgspec

from tuner.errors import StoreError, StoreUnusable
from tuner.knobs.config import DEFAULT, Config
from tuner.machine.host import network_filesystem
from tuner.store.disk import disk_error, full

__all__ = ["DEFAULT_FOLDER", "RunFolder", "Store", "locate_store", "open_store", "run_name"]

DEFAULT_FOLDER = Path(".tuner")
_DATABASE = "tuner.db"
# A run writes a few MB of events and logs, and dies badly on a full disk; compiled caches come on top.
_LEAST_FREE_BYTES = 32 << 20


class RunFolder(msgspec.Struct, frozen=True, kw_only=True):
    """Where one run keeps what. `events` is the truth; all else can be made again from it, or is emitted for use."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def logs(self) -> Path:
        """Everything that the workers print, a file each."""
        return self.path / "logs"

    @property
    def scratch(self) -> Path:
        """Reference outputs, traces: nothing that must last."""
        return self.path / "scratch"

    @property
    def reference(self) -> Path:
        """The control's outputs, which the numerics gate compares with."""
        return self.reference_of(DEFAULT)

    def reference_of(self, work: Config) -> Path:
        """The same of the control whose step does other work: that which these knobs of the workload make."""
        return self.scratch / (f"reference-{work.key}.bin" if work != DEFAULT else "reference.bin")

    @property
    def precise(self) -> Path:
        """The step's outputs in a wider floating dtype, for results that the gate refuses."""
        return self.scratch / "precise.bin"

    @property
    def best_env(self) -> Path:
        return self.path / "best.env"

    @property
    def best_sh(self) -> Path:
        return self.path / "best.sh"

    @property
    def best_json(self) -> Path:
        return self.path / "best.json"

    @property
    def results(self) -> Path:
        """The table of all trials."""
        return self.path / "results.csv"

    @property
    def report_html(self) -> Path:
        return self.path / "report.html"

    @property
    def report_markdown(self) -> Path:
        return self.path / "report.md"

    @property
    def bundle(self) -> Path:
        return self.path / "bundle"

    @property
    def profiles(self) -> Path:
        """Traces, as XProf, TensorBoard and Perfetto read them; a folder for each side."""
        return self.path / "profiles"

    @property
    def guides(self) -> Path:
        """PGLE profiles, a file a config; what is emitted may name one of them by its path."""
        return self.path / "pgle"

    def create(self, *, exist_ok: bool = False) -> None:
        """Make the folder and those inside it.

        Raises FileExistsError if the run exists, unless `exist_ok`; StoreError if the disk refuses.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=exist_ok)
            self.logs.mkdir(exist_ok=exist_ok)
            self.scratch.mkdir(exist_ok=exist_ok)
        except FileExistsError:
            raise
        except OSError as error:
            raise disk_error(error, self.path) from error


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """`root`: the folder. `url`: the database that holds index and Optuna studies. `notices`: what the user should
    know about this choice."""

    root: Path
    url: str
    notices: tuple[str, ...] = ()

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run(self, run: str) -> RunFolder:
        """The folder of the run with this id, whether it exists or not."""
        return RunFolder(path=self.runs / run)

    def run_folders(self) -> tuple[RunFolder, ...]:
        """The runs that have an event log, by id."""
        return tuple(RunFolder(path=p.parent) for p in sorted(self.runs.glob("*/events.jsonl")))


def open_store(where: str | Path = DEFAULT_FOLDER) -> Store:
    """The store that `--store` names, ready to be written.

    The folder is created, with a ``.gitignore`` of its own that covers all of it; a folder that holds other things
    already is used as it is. Raises StoreUnusable, before anything is measured, if it can't be written or has no room,
    and for SQLite URLs on a network filesystem, where its locks don't hold.
    """
    _prepare(_root(where))
    return locate_store(where)


def locate_store(where: str | Path = DEFAULT_FOLDER) -> Store:
    """The store that `--store` names: a folder (with a SQLite database in it) or a database URL. With a URL the runs
    stay in ``./.tuner``. Nothing is made or written. Raises StoreUnusable as `open_store` does for SQLite on a network
    filesystem."""
    root, text = _root(where), str(where)
    if "://" in text:
        url = _driver(text)
        _refuse_network_sqlite(url)
        return Store(root=root, url=url)
    if kind := network_filesystem(root):
        database = _local_database(root)
        notice = (
            f"{root} lies on a network filesystem ({kind}), where SQLite gets corrupted: the database is kept in "
            f"{database} and can be rebuilt from the runs; to share it between machines use --store postgresql://…"
        )
        return Store(root=root, url=f"sqlite:///{database}", notices=(notice,))
    return Store(root=root, url=f"sqlite:///{root / _DATABASE}")


def run_name(workload: str) -> str:
    """How the ids of a workload's runs begin. `workload`: its file's name, with or without the ending."""
    return (re.sub(r"[^A-Za-z0-9_.]+", "-", workload.removesuffix(".py")).strip("-.") or "run")[:40]


def _root(where: str | Path) -> Path:
    return DEFAULT_FOLDER.absolute() if "://" in str(where) else Path(where).expanduser().absolute()


def _prepare(root: Path) -> None:
    """Make the folder and prove that it can be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not any(root.iterdir()):
            # Only into a folder of our own: in a user's one it would hide their files from git.
            (root / ".gitignore").write_text("*\n")
        (root / "runs").mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=root / "runs") as probe:
            probe.write(bytes(1 << 16))
            probe.flush()
            os.fsync(probe.fileno())
        free = shutil.disk_usage(root).free
    except OSError as error:
        raise _unusable(disk_error(error, root)) from error
    if free < _LEAST_FREE_BYTES:
        raise full(f"only {free / 1e6:.0f} MB are free; a run needs {_LEAST_FREE_BYTES / 1e6:.0f} MB", root)


def _unusable(error: StoreError) -> StoreUnusable:
    return StoreUnusable(error.what, where=error.where, next=error.next)


def _driver(url: str) -> str:
    """PostgreSQL URLs name the driver that the extra ``postgres`` installs, unless they name one themselves."""
    scheme, rest = url.split("://", 1)
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url


def _refuse_network_sqlite(url: str) -> None:
    scheme, rest = url.split("://", 1)
    if scheme.partition("+")[0] != "sqlite":
        return
    path = Path(urllib.parse.unquote(rest.removeprefix("/").partition("?")[0]))
    if kind := network_filesystem(path.absolute()):
        raise StoreUnusable(
            f"SQLite gets corrupted on a network filesystem ({kind})",
            where=str(path),
            next="use a local disk, or --store postgresql://…",
        )


def _local_database(root: Path) -> Path:
    """A database on this machine's own disk for the store at `root`, in a folder that only this user may use."""
    folder = Path(tempfile.gettempdir()) / f"tuner-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat(follow_symlinks=False)
    except OSError as error:
        raise _unusable(disk_error(error, folder)) from error
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StoreUnusable("this folder isn't yours alone", where=str(folder), next="delete it, or use --store URL")
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.db"
