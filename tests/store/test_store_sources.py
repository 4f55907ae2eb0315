from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuner.errors import WorkloadError
from tuner.store.sources import local_sources, workload_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "work.py": "import jax\nimport model.layers as l\nfrom helpers import f\ndef build():\n    import late\n",
        "helpers.py": "import json, more\n",
        "more.py": "",
        "late.py": "",
        "unused.py": "",
        "model/__init__.py": "from . import consts\n",
        "model/consts.py": "",
        "model/layers.py": "from .sub.deep import x\nfrom ..helpers import f\n",
        "model/sub/deep.py": "from ... import more\n",
        "model/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / "w" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "w" / name).write_text(text)
    return tmp_path / "w"


def test_imports_are_followed_through_modules_packages_and_functions(folder: Path) -> None:
    found = [p.relative_to(folder).as_posix() for p in local_sources(folder / "work.py")]
    assert found == [
        "work.py",
        "helpers.py",
        "late.py",
        "model/__init__.py",
        "model/consts.py",
        "model/layers.py",
        "model/sub/deep.py",
        "more.py",
    ]


def test_only_files_that_are_reached_change_the_digest(folder: Path) -> None:
    before = workload_digest(folder / "work.py")
    (folder / "unused.py").write_text("x = 1")
    assert before == workload_digest(folder / "work.py")
    (folder / "model/sub/deep.py").write_text("from ... import more\nx = 1\n")
    assert before != workload_digest(folder / "work.py")


def test_the_digest_does_not_depend_on_the_place(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert workload_digest(folder / "work.py") == workload_digest(tmp_path / "elsewhere" / "work.py")
    monkeypatch.chdir(folder)
    assert workload_digest(folder / "work.py") == workload_digest(Path("work.py"))


def test_moving_text_between_files_changes_the_digest(tmp_path: Path) -> None:
    digests = set()
    for first, second in (("import b\n#x", ""), ("import b\n#", "x"), ("import b\n", "#x")):
        (tmp_path / "a.py").write_text(first)
        (tmp_path / "b.py").write_text(second)
        digests.add(workload_digest(tmp_path / "a.py"))
    assert len(digests) == 3


def test_a_file_in_another_pythons_syntax_still_has_a_digest(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\nthis is from the future\n")
    (tmp_path / "b.py").write_text("")
    assert (tmp_path / "a.py",) == local_sources(tmp_path / "a.py")
    assert len(workload_digest(tmp_path / "a.py")) == 16


def test_a_missing_workload_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file") as caught:
        workload_digest(tmp_path / "a.py")
    assert str(tmp_path / "a.py") == caught.value.where


PACKAGE = {
    "pack/__init__.py": "",
    "pack/train/__init__.py": "from ..early import z\n",
    "pack/early.py": "",
    "pack/train/main.py": "from ..model import net\nfrom . import data\n",
    "pack/model.py": "import pack.deep\nimport outside\n",
    "pack/deep.py": "",
    "pack/train/data.py": "",
    "outside.py": "",
    "pack/unused.py": "",
}


def test_a_file_with_relative_imports_is_made_of_its_packages_files(tmp_path: Path) -> None:
    for place in ("one", "other"):
        for name, text in PACKAGE.items():
            (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place / name).write_text(text)
    one, other = tmp_path / "one", tmp_path / "other"
    found = {p.relative_to(one).as_posix() for p in local_sources(one / "pack/train/main.py")}
    assert found == PACKAGE.keys() - {"pack/unused.py"}
    digest = workload_digest(one / "pack/train/main.py")
    assert digest == workload_digest(other / "pack/train/main.py")
    (other / "pack/early.py").write_text("z = 1")
    assert digest != workload_digest(other / "pack/train/main.py")


def test_of_a_file_with_relative_imports_the_siblings_that_it_imports_by_name_count_too(tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    train, a, b = (tmp_path / "proj" / name for name in ("train.py", "a.py", "b.py"))
    train.write_text("try:\n    from .a import f\nexcept ImportError:\n    from a import f\n")
    a.write_text("import b\n")
    b.write_text("")
    assert local_sources(train) == (train, a, b)
    before = workload_digest(train)
    b.write_text("x = 1")
    assert before != workload_digest(train)


def test_a_file_that_names_the_folder_it_is_in_is_made_of_what_it_imports_from_there(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "data.py").write_text("")
    named, plain = tmp_path / "jax" / "named.py", tmp_path / "jax" / "plain.py"
    named.write_text("from jax import data\n")
    plain.write_text("import jax.numpy\nfrom jax import jit\n")
    assert local_sources(named) == (named, tmp_path / "jax" / "data.py")
    before = workload_digest(plain)
    (tmp_path / "jax").rename(tmp_path / "elsewhere")
    assert workload_digest(tmp_path / "elsewhere" / "plain.py") == before, "the folder's name is not part of it"
