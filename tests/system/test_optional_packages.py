"""What is said where an optional package is needed and cannot be imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import asyncdata as ad
from asyncdata.system.optional_packages import require

if TYPE_CHECKING:
    from pathlib import Path


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(
        ad.MissingDependencyError, match=r"^loader\(\) needs no_such_package, .* pip install no_such_pa"
    ):
        require("no_such_package.part", "loader()")


@pytest.mark.parametrize("line", ["import no_such_backend", "raise ImportError('no_such_backend')"])
def test_a_package_whose_import_fails(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ad.MissingDependencyError, match=r"half_installed, whose import failed \(.*no_such_backend.*\): pip install"
    ):
        require("half_installed", "to_keras()")


def test_a_folder_that_has_the_name_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ad.MissingDependencyError,
        match=r"needs only_a_folder, which is not installed \(the folder .*: pip install",
    ):
        require("only_a_folder", "to_keras()")
