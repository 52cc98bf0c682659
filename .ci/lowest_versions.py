"""Prints the lowest versions that pyproject.toml allows, as arguments of pip, of the package and of its extras named
as arguments."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def requirements(texts: list[str]) -> Iterator[Requirement]:
    """Yield those that hold on this machine; of the package's own extras what they consist of."""
    for needed in map(Requirement, texts):
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        if needed.name != PROJECT["name"]:
            yield needed
        for extra in needed.extras if needed.name == PROJECT["name"] else ():
            yield from requirements(PROJECT["optional-dependencies"][extra])


def lowest(needed: Requirement) -> str:
    """Return a requirement of the lowest version that another allows."""
    (version,) = [part.version for part in needed.specifier if part.operator == ">="]
    extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
    return f"{needed.name}{extras}=={version}"


if __name__ == "__main__":
    own = [f"{PROJECT['name']}[{','.join(sys.argv[1:])}]"] if sys.argv[1:] else []
    print(*sorted({*map(lowest, requirements([*PROJECT["dependencies"], *own]))}))
