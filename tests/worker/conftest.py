"""Fixtures that start real worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worker_driver import Worker

from tuner.session.package import worker_zip

StartWorker = Callable[..., Worker]


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worker's zip file."""
    return worker_zip(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def start_worker(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartWorker]:
    """Starts workers, each in a folder of its own; they end with the module."""
    workers: list[Worker] = []

    def start(env: dict[str, str] | None = None) -> Worker:
        workers.append(Worker(archive, tmp_path_factory.mktemp("worker"), env or {}))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end()
