"""Which package a workload's file is part of, and where its imports look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.protocol.package import Package, package_of


@pytest.mark.parametrize(
    "source",
    [
        "from .a import f\n",
        "from typing import TYPE_CHECKING\nimport b\nif TYPE_CHECKING:\n    from .types import T\n",
        "try:\n    from .a import f\nexcept ImportError:\n    from a import f\n",
    ],
)
def test_a_file_with_relative_imports_still_finds_what_lies_beside_it(tmp_path: Path, source: str) -> None:
    found = package_of(tmp_path / "proj" / "train.py", source.encode())
    assert found == Package(("proj",), tmp_path, tmp_path / "proj")
    assert found.outermost == tmp_path


@pytest.mark.parametrize("init", [True, False])
def test_a_file_of_its_folders_name_does_not_hide_the_folder(tmp_path: Path, init: bool) -> None:
    """`import train` takes the file if the folder has no __init__.py, though the folder comes first on sys.path."""
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "train.py").write_text("")
    if init:
        (folder / "__init__.py").write_text("")
    found = package_of(folder / "train.py", b"from .a import f\n")
    assert found == Package(("train",), tmp_path, folder if init else None)


def test_a_folder_that_no_import_can_name_is_no_package(tmp_path: Path) -> None:
    inner = tmp_path / "v1.2" / "my-project"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    assert package_of(inner / "train.py", b"from .a import f\n") == Package(("my-project",), inner.parent, inner)
    assert package_of(inner / "train.py", b"from ..a import f\n") == Package((), inner)
    assert package_of(inner.parent / "train.py", b"from .a import f\n") == Package((), inner.parent)
