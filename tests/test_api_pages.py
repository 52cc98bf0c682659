"""The pages of docs/api/ have each public name once, and no other name."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "api").glob("*.md"))
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
OPTIONS = re.compile(r"^::: ([\w.]+)\n    options:\n      (filters|members): (.*)$", re.MULTILINE)
OF_TF_DATA = {"AUTOTUNE", "INFINITE_CARDINALITY", "Reducer", "UNKNOWN_CARDINALITY"}
"""Names that `asyncdata.experimental` has as tf.data has them there."""

SUBMODULES = {"checkpoint", "experimental", "observe", "web"}


def documented() -> list[str]:
    """Return the full names of what the pages have."""
    return [name for page in PAGES for name in ENTRY.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("asyncdata", {*ad.__all__} - SUBMODULES),
        ("asyncdata.experimental", {*ad.experimental.__all__} - OF_TF_DATA),
        ("asyncdata.observe", {*ad.observe.__all__}),
        ("asyncdata.testing", {*importlib.import_module("asyncdata.testing").__all__}),
        ("asyncdata.web", {*ad.web.__all__}),
        ("asyncdata.checkpoint", {"inspect_state", "load", "load_shares", "merge_states", "save", "save_share"}),
        ("asyncdata.torch", {"DataLoader"}),
    ],
)
def test_every_public_name_is_on_one_page(module: str, names: set[str]) -> None:
    found = [name.rpartition(".")[2] for name in documented() if name.rpartition(".")[0] == module]
    assert sorted(found) == sorted(names)


def test_all_pages_are_in_the_table_and_in_the_navigation() -> None:
    names = [f"api/{page.name}" for page in PAGES]
    overview = (DOCS / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\((api/\w+\.md)\)", overview)) == names
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r": (api/\w+\.md)$", navigation, re.MULTILINE)) == names


def test_long_signatures_are_wrapped() -> None:
    """By mkdocstrings, with ruff where that is installed; else each is one line."""
    assert "            separate_signature: true\n" in (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    extras = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(name.startswith("ruff") for name in extras["optional-dependencies"]["docs"])


def test_no_page_has_a_name_that_is_not_there() -> None:
    for name in documented():
        module, _, last = name.rpartition(".")
        if module == "asyncdata.torch":  # which needs PyTorch
            continue
        found: Any = importlib.import_module(module)
        assert getattr(found, last).__doc__ or not isinstance(getattr(found, last), type)


HOOKS = "a method that a class of yours defines, of which the class has an example"
WITHOUT_EXAMPLE = {
    "asyncdata.Dataset.progress": "a bar on a terminal: tests/integrations/test_progress.py",
    "asyncdata.DeviceNotFoundError": "depends on the machine: tests/devices/test_torch.py",
    "asyncdata.MissingDependencyError": "depends on what is installed: tests/system/test_optional_packages.py",
    "asyncdata.WorkerCrashed": "kills processes: tests/executors/process/test_faults.py",
    "asyncdata.grouping.Grouping": "not shown itself, only its methods",
    "asyncdata.transformations.Transformations": "not shown itself, only its methods",
    **dict.fromkeys(
        [
            f"asyncdata.testing.SourceDriver.{name}"
            for name in ("beat", "close", "following", "remove", "renew", "restart")
        ],
        HOOKS,
    ),
}
"""What has no example that runs, and why."""

SKIPPED = "  # doctest: +SKIP"
NEEDS = {
    "formats": {
        "asyncdata.ArrayRecordDataset": "array_record.python.array_record_module",
        "asyncdata.ArrowDataset": "pyarrow",
        "asyncdata.LanceDataset": "lance",
        "asyncdata.ParquetDataset": "pyarrow.parquet",
        "asyncdata.ZarrDataset": "zarr",
        "asyncdata.decode_audio": "soundfile",
        "asyncdata.decode_video_clip": "av",
    },
    "torch": {
        "asyncdata.Dataset.loader": "torch",
        "asyncdata.Dataset.to_torch": "torch",
        "asyncdata.integrations.loader.Loader.even_steps": "torch",
    },
    "dashboard": dict.fromkeys(
        [
            "asyncdata.observe.dashboard",
            "asyncdata.observe.Dashboard",
            *[f"asyncdata.observe.Dashboard.{name}" for name in ("watch", "save", "close", "aclose")],
        ],
        "starlette",
    ),
    "web": {"asyncdata.web.ingest_app": "starlette"},
}
"""Examples that need packages, by the marker of the tests that have them."""

EXAMPLES = [
    pytest.param(name, module, marks=getattr(pytest.mark, marker), id=name)
    for marker, names in NEEDS.items()
    for name, module in names.items()
]
# the markers: pytest.mark.formats, pytest.mark.torch, pytest.mark.dashboard, pytest.mark.web


def lines_of(found: Any, needs: str) -> list[str]:
    """Return the lines of a docstring's example that run, with the packages that it `needs`."""
    lines = re.findall(r"^(?:>>>|\.\.\.) (.*)$", inspect.getdoc(found) or "", re.MULTILINE)
    runs = [line for line in lines if needs or SKIPPED not in line]
    return runs if any(not line.startswith(("import ", "from ")) for line in runs) else []


def members_of(name: str, found: Any, options: dict[str, tuple[str, list[str]]]) -> list[str]:
    """Return the members that the page of a class has: those that it defines itself."""
    kind, words = options.get(name, ("filters", ["^_"]))
    own = [member for member, value in vars(found).items() if callable(value) or isinstance(value, property)]
    if kind == "members":
        return [member for member in own if member in words]
    return [member for member in own if not any(re.search(word.removeprefix("!"), member) for word in words)]


def test_every_public_member_has_an_example_that_runs() -> None:
    """Either its own, or one in that of its class."""
    text = "\n".join([page.read_text(encoding="utf-8") for page in PAGES])
    options = {
        name: (kind, re.findall(r"[^\s\[\]\",]+(?=[\",\]])", words)) for name, kind, words in OPTIONS.findall(text)
    }
    needs = {name: module for names in NEEDS.values() for name, module in names.items()}
    missing: list[str] = []
    for name in documented():
        module, _, last = name.rpartition(".")
        if module == "asyncdata.torch" or not callable(found := getattr(importlib.import_module(module), last)):
            continue  # the former needs PyTorch
        lines = lines_of(found, needs.get(name, ""))
        if not lines:
            missing.append(name)
        for member in members_of(name, found, options) if inspect.isclass(found) else ():
            path, used = f"{name}.{member}", re.compile(rf"\b{member}\b")
            if not lines_of(getattr(found, member), needs.get(path, "")) and not any(map(used.search, lines)):
                missing.append(path)
    assert sorted(missing) == sorted(WITHOUT_EXAMPLE)


@pytest.mark.parametrize(("name", "module"), EXAMPLES)
def test_examples_that_need_packages_run_too(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    if module in {"soundfile", "av"}:
        write_media(tmp_path)
    found: Any = ad
    for part in name.split(".")[1:]:
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(f"{found.__name__}.{part}")
    text = (inspect.getdoc(found) or "").replace(SKIPPED, "")
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    assert said == []


def write_media(folder: Path) -> None:
    """Write the files of the examples that decode sound and videos."""
    if (soundfile := optional("soundfile")) is not None:
        soundfile.write(folder / "speech.flac", np.zeros(80_000, np.int16), 16_000)
    if optional("av") is not None:
        from tests.videos import write_video

        write_video(folder / "robot.mp4", range(60))


def optional(module: str) -> Any:
    """Return a module, `None` if it is not installed."""
    return importlib.import_module(module) if importlib.util.find_spec(module) else None
