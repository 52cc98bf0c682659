"""What README.md and the first page of the documentation say about installing is true, and the example there runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/index.md")
FOR_DEVELOPERS = {"bench", "docs", "integrations", "test"}


@pytest.mark.parametrize("page", PAGES)
def test_every_extra_for_users_is_in_the_table_and_no_other(page: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name for name in project["optional-dependencies"] if not name.endswith("-test")} - FOR_DEVELOPERS
    text = (ROOT / page).read_text(encoding="utf-8")
    table = text[text.index("## Install") :].partition("\nSeveral at once")[0]
    rows = "\n".join(line for line in table.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`asyncdata\[([\w-]+)\]`", rows)) == extras


def test_install_stands_before_other_sections_and_is_the_same_on_both_pages() -> None:
    sections = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        headings = re.findall(r"^## .*", text, re.MULTILINE)
        assert headings[0] == "## Install"
        sections.append(text[text.index("## Install") : text.index(headings[1])])
    assert sections[0] == sections[1]


def test_it_is_said_where_pip_installs_from() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^pip install .*", text[text.index("## Install") :], re.MULTILINE)
    assert lines
    assert all("# in a clone" in line or "# from a package index" in line for line in lines)


MISLEADING = ("a few hundred bytes", "nothing else changes", "there is no `num_workers`")


def test_no_page_promises_what_is_not_so() -> None:
    """States may be some kB, a bad item takes its batch with it, and worker processes change what functions share."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = " ".join(page.read_text(encoding="utf-8").split()).lower()
        assert not [words for words in MISLEADING if words in text], page
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "No element is lost, repeated or reordered, whatever the parallelism. If your function fails" in readme


SUITES = {
    **dict.fromkeys(("array-record", "energon", "formats", "lance", "lerobot", "parquet"), pytest.mark.formats),
    **dict.fromkeys(("kafka", "nats", "redis", "web"), pytest.mark.web),
    **dict.fromkeys(("dashboard", "metrics"), pytest.mark.dashboard),
    **dict.fromkeys(("demo", "observe", "remote"), pytest.mark.slow),
    "ray": pytest.mark.ray,
}


@pytest.mark.parametrize("extra", ["-", *[pytest.param(name, marks=mark) for name, mark in SUITES.items()]])
def test_each_extra_alone_does_its_part_and_what_is_missing_names_its_own(extra: str) -> None:
    """As pip installs it: with the package's own dependencies and one extra, all other packages are hidden."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.alone", extra], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.stderr.startswith("cannot tell: "):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = json.loads(done.stdout)
    assert told.get(extra, "works") == "works"
    own = {"formats"} if sys.version_info >= (3, 14) else set[str]()  # zstd is in the standard library
    wrong = {
        name: said
        for name, said in told.items()
        if said not in ({name} if extra == "-" and name not in own else {name, "works"})
    }
    assert wrong == {}


def test_each_extra_for_users_is_installed_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name for name in project["optional-dependencies"] if not name.endswith("-test")} - FOR_DEVELOPERS
    assert SUITES.keys() == extras


def test_the_first_example_of_the_documentation_runs_when_pasted(tmp_path: Path) -> None:
    shown = re.search(r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    path = tmp_path / "pasted.py"
    path.write_text(shown[1])
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["(64, 28, 28) float32"] * 15 + ["(40, 28, 28) float32"]
