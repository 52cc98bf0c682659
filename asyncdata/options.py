"""Options: how a pipeline runs; they do not change its elements."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import partial
from math import inf
from os import PathLike
from typing import Any, Final, Literal, TypeAlias, cast

from asyncdata.cluster_settings import Cluster
from asyncdata.elements.validation import check_choice
from asyncdata.errors import PlanError
from asyncdata.redaction import redacted

__all__ = ("AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "Options", "Placement")

AUTOTUNE: Final = -1
"""Let asyncdata choose a number of workers or a buffer size."""

INFINITE_CARDINALITY: Final = -1
"""The cardinality of a dataset that never ends."""

UNKNOWN_CARDINALITY: Final = -2
"""The cardinality of a dataset whose length is not known before it has been read."""

Placement: TypeAlias = Literal["thread", "current", "process"]

PLACEMENTS: Final = ("thread", "current", "process")

WARN_AFTER: Final = 60.0

LOG_SCHEMES: Final = ("file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")

FLAGS: Final = ("autotune", "deterministic", "optimize", "reorder")


class Fixable:
    """Stores whether a copy of options is fixed; it is not one of their fields."""

    __slots__ = ("_fixed",)

    _fixed: bool


@dataclass(slots=True, kw_only=True)
class Options(Fixable):
    """How a pipeline runs. Every field is `None` until set; a later value wins, field by field.

    >>> import asyncdata as ad
    >>> ds = ad.Dataset.range(3).with_options(ad.Options(placement="current"))
    >>> ds.options().placement
    'current'
    """

    placement: Placement | None = None
    """Where the pipeline runs: `"thread"` (the default), a thread of its own, so that a consumer that blocks never
    stalls it; `"current"`, the event loop of the consumer (one of its own under a plain `for`); `"process"`, a process
    of its own, so that neither waits for the other's Python code: elements arrive in shared memory, in the same order,
    with the same errors and states; see docs/processes.md."""

    deterministic: bool | None = None
    """Whether parallel stages keep the order of elements (the default) if their own `deterministic` is not set."""

    autotune: bool | None = None
    """Whether `AUTOTUNE` finds out while running where functions are called and how many calls at once (the default);
    else it is as many threads as there are cores, and four."""

    ram_budget: int | None = None
    """How many bytes the buffers that tune themselves may hold together: those of `prefetch(AUTOTUNE)`, of parallel
    `interleave`, and what is in flight in maps with `AUTOTUNE`. By default half of the memory that is available when
    the pipeline starts, in its container if it runs in one. Each buffer holds one element at least. Buffers with a
    given size (`prefetch(n)`, `shuffle(n)`, the `2n` elements in flight of `num_parallel_calls=n`) have that size."""

    optimize: bool | None = None
    """Whether the plan is rewritten before it runs (the default). Never changes results, only speed."""

    reorder: bool | None = None
    """Whether filters move before maps that do not change the fields they read, and maps that shrink elements before
    steps that hold elements (the default is False), as `filter(reads=)` and `map(keeps=, shrinks=)` declare: see
    docs/data-flow.md. Elements and their order are the same. Elements that a filter drops can no longer fail in those
    maps."""

    cluster: Cluster | None = None
    """The Ray cluster whose actors make the calls of parallel `map`, `filter` and `map(batch=)`, and run what
    `flat_map`, readers of several files and a parallel `interleave` open; see docs/scale-out.md. Elements, order,
    errors and states are the same."""

    disabled_rules: tuple[str, ...] | None = None
    """Names of rewrite rules to leave out, as `Dataset.explain` shows them."""

    seed: int | None = None
    """The seed of the global generators of worker processes (`random`, NumPy's, PyTorch's and others: see
    docs/processes.md): before each element they are seeded from it, the epoch and the element. So functions that draw
    from them give the same for any number of workers, and after a resume. By default each worker has numbers of its
    own, which differ from run to run. Threads share the generators of your process, which are never seeded."""

    warn_after: float | None = None
    """After how many seconds without an element the log (`asyncdata`) says, once per element, which step waits for
    what, with the stacks of your functions; 60 by default, `math.inf` for never. With `"current"` a function that
    blocks the loop is logged a second later. A pipeline in a process of its own logs there."""

    record: str | PathLike[str] | Literal[False] | None = None
    """The file to which each iteration appends where its elements came from, for `asyncdata audit` and
    `asyncdata replay`; of several shares each has its own, `run-1-of-4.jsonl` for `"run.jsonl"`. It is written when a
    state is taken, and at the end. In an object store (`"s3://bucket/run.jsonl"`) each time an object is written. See
    docs/recorder.md. Set it on the dataset that training iterates. What is made from a recorded dataset is recorded,
    unless it has `record=False`."""

    dashboard: bool | str | None = None
    """Whether a page shows each iteration live, at http://127.0.0.1:8484 or, if that port is in use, at a free one; the
    log has the address. `"host:port"` is another address; one that other machines can reach lets others see the page:
    see docs/observe.md. Of several ranks of a run the page of the first one on a machine shows all, if the launcher
    tells where they meet (`MASTER_PORT` and the like). The page stays until the process ends."""

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_fixed", False):
            raise PlanError(
                f"these options are a copy of a dataset's, so setting {name} has no effect on it: use "
                f"with_options(Options({name}=...))"
            )
        if name in FLAGS:
            value = check_choice("Options", name, value)
        elif value is not None:
            check_option(name, value)
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return redacted(f"Options({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in fields(self))})")

    def merge(self, later: Options) -> Options:
        """Return options in which the fields set in `later` win over those set here."""
        return Options(**{**self.given(), **later.given()})

    def given(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}

    def without(self, name: str) -> Options:
        """Return options in which one field is not set."""
        return Options(**{field: value for field, value in self.given().items() if field != name})

    @property
    def patience(self) -> float | None:
        """The seconds after which a stalled pipeline is logged; `None` for never."""
        seconds = WARN_AFTER if self.warn_after is None else float(self.warn_after)
        return None if seconds == inf else seconds

    def fixed(self) -> Options:
        """Return a copy that cannot be changed."""
        copy = Options(**self.given())
        object.__setattr__(copy, "_fixed", True)
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy can be changed by its owner."""
        return partial(Options, **self.given()), ()


def may_be_log(path: object) -> bool:
    """Return whether a value may be the path or URL of a log."""
    if not isinstance(path, (str, PathLike)):
        return False
    url = str(os.fspath(cast("str", path)))
    scheme, found, _ = url.partition("://")
    return not found or (scheme.lower() in LOG_SCHEMES and redacted(url) == url)


def check_option(name: str, value: Any) -> None:
    """Raise `PlanError` if a field cannot have this value."""
    if name == "placement" and value not in PLACEMENTS:
        raise PlanError(f"placement must be one of {PLACEMENTS}, got {value!r}")
    if name == "ram_budget" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise PlanError(f"Options(ram_budget=) must be a number of bytes, at least 1, or None, got {value!r:.80}")
    if name == "seed" and (isinstance(value, bool) or not isinstance(value, int)):
        raise PlanError(f"Options(seed=) must be an integer or None, got {value!r:.80}")
    if name == "warn_after" and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        raise PlanError(f"Options(warn_after=) must be seconds above 0, or None, got {value!r:.80}")
    if name == "dashboard" and type(value) is not bool and not is_address(value):
        raise PlanError(
            f"Options(dashboard=) must be True, False, None or 'host:port', as '0.0.0.0:8484', got {value!r:.80}"
        )
    if name == "record" and value is not False and not may_be_log(value):
        raise PlanError(
            "Options(record=) must be the path of a file of this machine, as 'run.jsonl', of an object in s3://, gs:// "
            f"or az:// without a password, False or None, got {redacted(repr(value)):.80}"
        )
    if name == "cluster" and not isinstance(value, Cluster):
        raise PlanError(f"Options(cluster=) must be an asyncdata.Cluster, got {value!r:.80}")
    if name == "disabled_rules" and (isinstance(value, str) or not isinstance(value, (tuple, list))):
        raise PlanError(f"Options(disabled_rules=) must be a tuple of names of rules, got {value!r:.80}")


def is_address(value: object) -> bool:
    """Return whether `value` is a text `host:port`."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and set(host).isdisjoint("/@ ") and port.isdecimal() and int(port) <= 65535
