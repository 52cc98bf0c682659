"""What the package can do with its own dependencies and one extra: `python -m tests.alone EXTRA`, or `-` for none.

All other packages that are installed are hidden. It prints a JSON object: of each feature `"works"`, or the extra that
the error names.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement

__all__ = ("EXTRAS", "PROJECT")

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_with(words: list[str], extras: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the names of what pip installs for these requirements, of which some count only with an extra."""
    for one in map(Requirement, words):
        if one.marker is not None and not any(one.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            continue
        name = normal(one.name)
        if name == "asyncdata":
            yield from installed_with([word for extra in one.extras for word in EXTRAS[extra]])
            continue
        yield name
        try:
            yield from installed_with(requires(name) or [], frozenset(one.extras))
        except PackageNotFoundError:
            yield f"{name} is missing"


class OnlyOthers(MetaPathFinder):
    """Finds modules as Python does, except those that are hidden."""

    def __init__(self, hidden: set[str]) -> None:
        self.hidden = hidden

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self.hidden else PathFinder.find_spec(name, path, target)


def hide_all_but(extra: str) -> None:
    """Hide the packages that pip does not install for the package with one extra."""
    words = [*PROJECT["dependencies"], *EXTRAS.get(extra, [])]
    present = {*installed_with(words)}
    missing = [name for name in present if name.endswith(" is missing")]
    if missing:
        sys.exit(f"cannot tell: {', '.join(missing)}")
    hidden = {module for module, names in packages_distributions().items() if present.isdisjoint(map(normal, names))}
    finder = OnlyOthers(hidden - {"asyncdata"} - {*sys.stdlib_module_names})
    sys.meta_path[:] = [finder if one is PathFinder else one for one in sys.meta_path]


def features(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return a use of each extra; one that gets as far as its data, or its server, has found its packages.

    A cluster is not started.
    """
    import asyncdata as ad

    (folder / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd and more")
    (folder / "energon" / ".nv-meta").mkdir(parents=True)
    (folder / "energon" / ".nv-meta" / "split.yaml").write_text("split_parts: {train: [a.tar]}")
    numbers = ad.Dataset.range(3)
    nobody: dict[str, Any] = {"give_up_seconds": 0.01}

    def first(ds: Any) -> Any:
        with ds.iterate() as elements:
            return next(elements)

    return {
        "array-record": lambda: first(ad.ArrayRecordDataset(folder / "none")),
        "dashboard": lambda: ad.observe.dashboard().close(),
        "energon": lambda: first(ad.EnergonDataset(folder / "energon", split="train")),
        "formats": lambda: first(ad.TextLineDataset(folder / "a.zst")),
        "kafka": lambda: first(ad.Dataset.from_kafka("127.0.0.1:1", "topic", **nobody)),
        "lance": lambda: first(ad.LanceDataset(folder / "none.lance")),
        "lerobot": lambda: ad.decode_video_clip(b"no video", frames=[0]),
        "metrics": lambda: (ad.observe.PrometheusCollector(), ad.observe.OpenTelemetryMetrics()),
        "nats": lambda: first(ad.Dataset.from_nats("nats://127.0.0.1:1", "stream", **nobody)),
        "observe": lambda: list(numbers.progress()),
        "parquet": lambda: numbers.map(lambda x: {"x": x}).write_parquet(folder / "table"),
        "ray": lambda: (
            sys.argv[1] == "ray" or first(numbers.map(abs).with_options(ad.Options(cluster=ad.Cluster(calls=1))))
        ),
        "redis": lambda: first(ad.Dataset.from_redis_stream("redis://127.0.0.1:1", "stream", **nobody)),
        "remote": lambda: asyncio.run(ad.read_file("http://127.0.0.1:1/x", storage_options=QUICK)),
        "web": lambda: ad.web.ingest_app(ad.Channel()),
    }


QUICK = {"retry_config": {"max_retries": 0}}


def tried(use: Callable[[], Any]) -> str:
    """Return what is said of a feature."""
    from asyncdata import MissingDependencyError

    try:
        use()
    except MissingDependencyError as error:
        return ", ".join(re.findall(r"asyncdata\[([\w-]+)\]", str(error))) or str(error)
    except Exception as error:
        return f"works: {error!r}" if isinstance(error, ImportError) else "works"
    return "works"


def main(extra: str) -> None:
    """Print what works and what does not."""
    hide_all_but(extra)
    import asyncdata as ad

    for name in ad.__all__:
        getattr(ad, name)
    with TemporaryDirectory() as folder:
        found = {name: tried(use) for name, use in features(Path(folder)).items()}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
