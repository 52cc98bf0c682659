"""The files that are released: built, looked into, and the wheel installed alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from asyncdata import __version__

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository, to know which files there are"),
]


def run(*command: str, folder: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist of this tree."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    return folder


def tracked(*folders: str) -> set[str]:
    """Return the files of the repository in these folders, that are not deleted or ignored."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders).split("\0")
    return {name for name in names if name and (ROOT / name).exists()}


def test_a_wheel_has_all_files_of_the_package_the_licence_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"asyncdata-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    about = f"asyncdata-{__version__}.dist-info"
    facts = {f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert names == tracked("asyncdata") | facts
    assert {"asyncdata/py.typed", "asyncdata/llms.txt"} <= names


def test_a_tag_of_a_release_is_the_version() -> None:
    """Of a commit that is tagged `v0.2.0`, which a workflow builds, `__version__` is 0.2.0."""
    tags = [tag for tag in run("git", "tag", "--points-at", "HEAD").split() if tag.startswith("v")]
    assert tags in ([], [f"v{__version__}"])


def test_an_sdist_has_what_its_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if not member.isdir()}
    pages = {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "mkdocs.yml"}
    folders = tracked("asyncdata", "tests", "benchmarks", "examples", "docs")
    assert names == folders | pages | {"PKG-INFO", "pyproject.toml", ".gitignore"}


def test_an_installed_wheel_runs_without_the_tree(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    target = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", str(target), str(wheel))
    program = "import asyncdata as ad; print(ad.__file__); print(list(ad.Dataset.range(4).map(abs).batch(2))[1])"
    told = run(sys.executable, "-c", program, folder=tmp_path, PYTHONPATH=str(target)).splitlines()
    assert Path(told[0]).is_relative_to(target)
    assert told[1] == "[2 3]"
    version = run(sys.executable, "-m", "asyncdata", "--version", folder=tmp_path, PYTHONPATH=str(target))
    assert version == f"asyncdata {__version__}\n"
