"""What a user gets who installs the package: the names, the types, and an import that is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import asyncdata

OPTIONAL = (
    "PIL",
    "hypothesis",
    "jax",
    "matplotlib",
    "pandas",
    "pyarrow",
    "pytest",
    "ray",
    "sklearn",
    "tensorflow",
    "torch",
)


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_optional_package() -> None:
    loaded = run_python(f"import asyncdata, sys; print(*sorted(set(sys.modules) & set({OPTIONAL!r})))")
    assert loaded == ""


def test_what_reads_no_tfrecords_does_not_load_the_checksum() -> None:
    """Some releases of google-crc32c give a free-threaded interpreter its lock back."""
    pipeline = "list(asyncdata.Dataset.range(9).map(abs, num_parallel_calls=2).batch(2))"
    program = f"import asyncdata, sys; {pipeline}; print('google_crc32c' in sys.modules)"
    assert run_python(program) == "False"


def test_import_starts_no_thread_and_no_command_line() -> None:
    program = "import asyncdata, sys, threading; print(threading.active_count(), 'asyncdata.demo' in sys.modules)"
    assert run_python(program) == "1 False"


def test_every_public_name_is_there() -> None:
    assert len(set(asyncdata.__all__)) == len(asyncdata.__all__)
    assert [name for name in asyncdata.__all__ if not hasattr(asyncdata, name)] == []


def test_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from asyncdata import *", names)
    assert set(asyncdata.__all__) <= names.keys()


def test_package_is_typed() -> None:
    assert (Path(asyncdata.__file__).parent / "py.typed").is_file()


def test_command_line_says_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "asyncdata", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == f"asyncdata {asyncdata.__version__}\n"


def test_installed_metadata_matches_the_package() -> None:
    try:
        installed = metadata.distribution("asyncdata")
    except metadata.PackageNotFoundError:
        pytest.skip("asyncdata is not installed, it runs from its source tree")
    assert installed.version == asyncdata.__version__
    (script,) = installed.entry_points.select(group="console_scripts")
    assert script.load() is not None


def test_names_are_imported_when_they_are_used() -> None:
    program = "import asyncdata, sys; print(sorted(name for name in sys.modules if name.startswith('asyncdata.')))"
    assert run_python(program) == "['asyncdata.lazy_names']"


def test_a_reader_is_imported_without_the_others() -> None:
    program = (
        "import asyncdata, sys; asyncdata.TFRecordDataset; "
        "print([name for name in sys.modules if name.startswith('asyncdata.readers.')])"
    )
    assert run_python(program) == "['asyncdata.readers.files', 'asyncdata.readers.tfrecord']"


def test_modules_of_public_names_are_those_that_type_checkers_read() -> None:
    tree = ast.parse(Path(asyncdata.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and node.orelse == [] and is_typing(node.test))
    read = {
        (node.module, alias.name) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    submodules = {("asyncdata", name) for name in asyncdata.SUBMODULES}
    names = {(f"asyncdata.{module}", name) for module, names in asyncdata.MODULES.items() for name in names}
    assert read == submodules | names
    assert {name for _, name in read} == {*asyncdata.__all__, "errors"}


def is_typing(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Datasett'"):
        asyncdata.Datasett  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    assert {*asyncdata.__all__} <= {*dir(asyncdata)}


def test_checksums_are_computed_in_c_where_setuptools_is_not_installed() -> None:
    """google-crc32c 1.5 imports `pkg_resources`, and computes in Python where that is missing."""
    program = (
        "import sys; sys.modules['pkg_resources'] = None; import google_crc32c; print(google_crc32c.implementation)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("c\n", "")
