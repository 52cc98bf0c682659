"""A secret in any argument of any public call comes out nowhere: in no error, log, warning, picture, state or file."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import threading
import traceback
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.__main__ import COMMANDS, main
from asyncdata.observe.dashboard_page import rendered
from asyncdata.observe.history import History, View
from asyncdata.sources.listing import Listing
from asyncdata.states import place_of, state_header
from tests.marks import first_by_default

SECRET = "Zx9secret7Q"

PLACE = f"ann:{SECRET}@127.0.0.1:1"
"""Where nothing listens."""

URLS = {
    "http": f"http://{PLACE}/a.txt?signature={SECRET}",
    "s3": f"s3://{PLACE}/a.txt",
    "sftp": f"sftp://{PLACE}/a*.txt",
    "odd": f"odd://{PLACE}/a.txt?token={SECRET}",
    "redis": f"redis://{PLACE}/0",
    "nats": f"nats://{PLACE}",
    "ws": f"ws://{PLACE}/a?token={SECRET}",
    "web-slash": f"http://ann:{SECRET}/{SECRET}@127.0.0.1:1/a.txt",
    "slash": f"redis://ann:{SECRET}/{SECRET}@127.0.0.1:1/0",
    "pairs": f"host=127.0.0.1 port=1 user=ann password={SECRET} connect_timeout=1",
}

HEADERS = {"Authorization": f"Bearer {SECRET}", "Cookie": f"a={SECRET}"}

PROMPT = {"retry_config": {"max_retries": 0}, "client_options": {"allow_http": True, "connect_timeout": "1s"}}
"""Options of a store with which a closed port is reported at once."""

OPTIONS: dict[str, Any] = {
    "client_options": {"allow_http": True, "default_headers": {"authorization": f"Bearer {SECRET}"}},
    "access_key_id": SECRET,
    "secret_access_key": SECRET,
    "endpoint": f"http://{PLACE}",
    "token": SECRET,
    "retry_config": {"max_retries": 0},
}

PLANTED: dict[str, Any] = {
    **URLS,
    "text": f"https://{SECRET}@127.0.0.1:1/{'long' * 30}",
    "list": [URLS["http"], URLS["odd"]],
    "headers": HEADERS,
    "options": OPTIONS,
}


def numbers() -> ad.Dataset[Any]:
    return ad.Dataset.range(6)


def vectors() -> ad.Dataset[Any]:
    return ad.Dataset.from_list([[1, 2], [3], [4, 5, 6]]).map(lambda row: row)


def same(value: Any) -> Any:
    return value


def first_of(_: Any, dataset: ad.Dataset[Any]) -> Any:
    return dataset.batch(3)


def dataset_of(_: Any) -> ad.Dataset[Any]:
    return numbers()


async def counted() -> Any:
    yield 1


def connected(_: Any, *__: Any) -> Any:
    raise OSError("no database here")


REDUCER = ad.Reducer(lambda _: 0, lambda a, b: a + b, same)
NAMES = {"filenames": "missing", "storage_options": PROMPT}
WRITTEN = {"path": "shards", "storage_options": PROMPT}


def origin() -> dict[str, Any]:
    """Where an element came from."""
    with numbers().iterate() as elements:
        next(elements)
        return elements.origin()


ORIGIN = origin()

# The arguments with which a call is valid; each of its parameters then has each secret in turn.
METHODS: dict[str, dict[str, Any]] = {
    "apply": {"transformation_func": same},
    "as_numpy_iterator": {},
    "assert_cardinality": {"expected_cardinality": 6},
    "at": {"index": 1},
    "balance": {"cost": float, "batch_size": 2, "ranks": 1, "rank": 0},
    "batch": {"batch_size": 2},
    "bucket_by_sequence_length": {"element_length_func": len, "bucket_boundaries": [2], "bucket_batch_sizes": [2, 2]},
    "bucket_by_token_count": {"max_tokens": 9, "length_func": same},
    "cache": {},
    "cardinality": {},
    "choose_from_datasets": {"datasets": [numbers()], "choice_dataset": ad.Dataset.from_list([0, 0])},
    "concatenate": {"dataset": numbers()},
    "counter": {},
    "distinct": {},
    "exclude": {"records": [{"source": "range(6)", "index": 1}]},
    "enumerate": {},
    "explain": {},
    "filter": {"predicate": bool},
    "fingerprint": {},
    "flat_map": {"map_func": dataset_of},
    "from_async_iterable": {"iterable": counted},
    "from_channel": {"channel": "missing", "follow": False},
    "from_generator": {"generator": lambda *_: iter([1]), "output_types": "int64"},
    "from_http_stream": {"url": "http://127.0.0.1:1/", "idle_seconds": 1, "give_up_seconds": 1},
    "from_iterable": {"iterable": [1]},
    "from_kafka": {"servers": "127.0.0.1:1", "topic": "x", "give_up_seconds": 0.1},
    "from_list": {"elements": [1]},
    "from_nats": {"url": "nats://127.0.0.1:1", "stream": "x", "give_up_seconds": 0.1},
    "from_redis_stream": {"url": "redis://127.0.0.1:1/0", "stream": "x", "give_up_seconds": 0.1},
    "from_source": {"source": [1, 2]},
    "from_tensor_slices": {"tensors": [1, 2]},
    "from_tensors": {"tensors": 1},
    "from_websocket": {"url": "ws://127.0.0.1:1/", "give_up_seconds": 0.1},
    "get_single_element": {},
    "group_by_reducer": {"key_func": same, "reducer": REDUCER},
    "group_by_window": {"key_func": same, "reduce_func": first_of, "window_size": 3},
    "head": {},
    "ignore_errors": {"log_warning": True},
    "join": {"dataset": numbers(), "on": abs},
    "interleave": {"map_func": dataset_of},
    "iterate": {},
    "list_batch": {"batch_size": 2},
    "list_files": {"file_pattern": "missing*", "storage_options": PROMPT},
    "load": {"path": "missing"},
    "loader": {},
    "locate": {"origin": ORIGIN},
    "map": {"map_func": same},
    "options": {},
    "pack_sequences": {"length": 4},
    "pad_to_cardinality": {"cardinality": 9},
    "padded_batch": {"batch_size": 2},
    "peek": {},
    "prefetch": {},
    "prefetch_to_device": {"device": "cpu"},
    "progress": {},
    "ragged_batch": {"batch_size": 2},
    "random": {},
    "range": {"args": 5},
    "rate_limit": {"per_second": 1e6},
    "rebatch": {"batch_size": 2},
    "reduce": {"initial_state": 0, "reduce_func": lambda a, b: a + b},
    "rejection_resample": {"class_func": lambda _: 0, "target_dist": [1.0]},
    "repeat": {"count": 2},
    "replay": {"origins": [ORIGIN]},
    "sample_from_datasets": {"datasets": [numbers(), numbers()]},
    "save": {"path": "saved"},
    "scan": {"initial_state": 0, "scan_func": lambda a, b: (a, b)},
    "set_epoch": {"epoch": 1},
    "shard": {"num_shards": 2, "index": 0},
    "shuffle": {"buffer_size": 3, "seed": 1},
    "skip": {"count": 1},
    "snapshot": {"path": "snapshot"},
    "state_before": {"step": 0, "record": "missing.jsonl"},
    "take": {"count": 2},
    "take_while": {"predicate": bool},
    "tee": {"n": 1},
    "to_keras": {},
    "to_list": {},
    "to_torch": {},
    "unbatch": {},
    "unique": {},
    "window": {"size": 2},
    "with_options": {"options": ad.Options(autotune=False)},
    "write_jsonl": WRITTEN,
    "write_parquet": WRITTEN,
    "write_tfrecords": WRITTEN,
    "write_webdataset": WRITTEN,
    "zip": {"args": numbers()},
}

VECTORS = frozenset(
    {"bucket_by_sequence_length", "pack_sequences", "padded_batch", "ragged_batch", "unbatch", "rebatch"}
)
"""The methods that need elements with rows."""

PATHS = frozenset(
    [
        "path",
        "record",
        "records",
        "filename",
        "filenames",
        "file_pattern",
        "folder",
        "channel",
        "contents",
        "dataset_config",
        "split_config",
        "url",
        "CacheDir",
    ]
)
"""The parameters that take a path, in which what looks like an option is a part of a name."""

ELEMENTS = {
    ("pad_to_cardinality", "mask_key"): "the name of a part of the elements",
    ("ArrowDataset", "columns"): "names of columns",
    ("ParquetDataset", "columns"): "likewise",
    ("Ragged", "values"): "shows its values",
    ("TensorSpec", "shape"): "shows its shape",
    ("Options", "disabled_rules"): "names of rules",
    ("Reducer", "init_func"): "shows the functions that it was given",
    ("Reducer", "reduce_func"): "likewise",
    ("Reducer", "finalize_func"): "likewise",
    ("empty", "dtype"): "NumPy says what is no dtype",
    ("checkpoint.save", "state"): "writes what it is given",
    ("scan", "initial_state"): "the state of the user's function",
    ("reduce", "initial_state"): "likewise",
    ("checkpoint.inspect_state", "state"): "shows what a state has",
    ("states.origin_of", "step"): "makes an origin of it",
    ("states.origin_of", "ticket"): "likewise",
    ("states.origin_of", "state_header"): "likewise",
    ("states.state_of", "position"): "makes a state of it",
    ("states.state_of", "state_header"): "likewise",
}
"""The arguments that are data, and come out as such."""

BEGUN: dict[str, Any] = {
    "plan": numbers().plan,
    "state": iter(numbers()).state_dict(),
    "strict": True,
    "options": ad.Options(),
}

CALLS: dict[str, dict[str, Any]] = {
    "ArrayRecordDataset": {"filenames": "missing"},
    "ArrowDataset": NAMES,
    "CacheDir": {"path": "cache"},
    "Channel": {},
    "Cluster": {},
    "Dataset": {"plan": numbers().plan},
    "DurableChannel": {"path": "spool"},
    "EnergonDataset": {"path": "missing", "storage_options": PROMPT},
    "FixedLenFeature": {"shape": [1], "dtype": "int64"},
    "FixedLengthRecordDataset": {**NAMES, "record_bytes": 4},
    "ImageFolderDataset": {"path": "missing", "storage_options": PROMPT},
    "JsonLinesDataset": NAMES,
    "LanceDataset": {"filename": "missing", "storage_options": PROMPT},
    "LeRobotDataset": NAMES,
    "LitDataset": NAMES,
    "MdsDataset": {**NAMES, "filenames": ["missing.mds"]},
    "NpyDataset": NAMES,
    "Options": {},
    "ParquetDataset": NAMES,
    "Ragged": {"values": [1, 2], "row_splits": [0, 2]},
    "RaggedTensorSpec": {},
    "Reducer": {"init_func": same, "reduce_func": same, "finalize_func": same},
    "SafetensorsDataset": NAMES,
    "TFRecordDataset": NAMES,
    "TFRecordWriter": {"path": "a.tfrecord"},
    "TensorSpec": {},
    "TextLineDataset": NAMES,
    "TfdsDataset": {**NAMES, "split": "train"},
    "TokenDataset": {**NAMES, "window": 4, "dtype": "uint16"},
    "Trace": {},
    "VarLenFeature": {"dtype": "int64"},
    "WebDataset": NAMES,
    "ZarrDataset": {"filename": "missing", "storage_options": PROMPT},
    "decode_audio": {"contents": b""},
    "decode_example": {"serialized": b""},
    "decode_image": {"contents": b""},
    "decode_video_clip": {"contents": b""},
    "empty": {"shape": (2,)},
    "make_example": {"features": {"a": 1}},
    "parse_example": {"serialized": [b""], "features": {}},
    "parse_single_example": {"serialized": b"", "features": {}},
    "read_file": {"url": "missing", "storage_options": PROMPT},
    "trace": {},
    "with_retries": {"fn": same},
    "with_timeout": {"fn": same, "seconds": 1},
    "web.Consumer": {"dataset": numbers(), "consume": list},
    "web.ingest_app": {"channel": ad.Channel()},
    "web.commit_kafka": {"servers": "localhost:9092", "topic": "t", "state": {}, "group": "g"},
    "web.trim": {"path": "missing", "state": {}},
    "experimental.CsvDataset": {**NAMES, "record_defaults": [""]},
    "experimental.SqlDataset": {
        "driver_name": "sqlite",
        "data_source_name": "missing.db",
        "query": "SELECT 1",
        "output_types": (int,),
    },
    "experimental.assert_cardinality": {"expected_cardinality": 6},
    "experimental.at": {"dataset": numbers(), "index": 1},
    "experimental.cardinality": {"dataset": numbers()},
    "experimental.get_structure": {"dataset_or_iterator": numbers()},
    "experimental.group_by_reducer": {"key_func": same, "reducer": REDUCER},
    "experimental.make_csv_dataset": {"file_pattern": "missing", "batch_size": 2, "storage_options": PROMPT},
    "experimental.pad_to_cardinality": {"cardinality": 9},
    "observe.Explanation": {"text": "text", "graphs": ()},
    "observe.OpenTelemetryMetrics": {},
    "observe.PrometheusCollector": {},
    "observe.dashboard": {},
    "observe.report": {"iterator": iter(numbers()), "path": "run.html"},
    "states.chosen_seeds": {"plan": numbers().plan},
    "states.fingerprint": {"plan": numbers().plan},
    "checkpoint.inspect_state": {"state": iter(numbers()).state_dict()},
    "checkpoint.load": {"path": "missing"},
    "checkpoint.load_shares": {"folder": "missing"},
    "states.place_of": BEGUN,
    "states.plan_labels": {"plan": numbers().plan},
    "states.plan_of_next_epoch": {"plan": numbers().plan},
    "checkpoint.save": {"path": "a.state", "state": {"version": 0}},
    "checkpoint.save_share": {"folder": "shares", "state": {}},
    "states.checked": {"state": iter(numbers()).state_dict()},
    "checkpoint.merge_states": {"states": []},
    "states.seeds_of": {"plan": numbers().plan},
    "checkpoint.share_file": {"state": iter(numbers()).state_dict()},
    "states.shares_of": {"plan": numbers().plan},
    "states.state_header": {"place": place_of(**BEGUN), "options": ad.Options()},
    "states.state_of": {
        "state_header": state_header(place_of(**BEGUN), ad.Options()),
        "delivered": 1,
        "position": [1],
    },
    "states.check_same_plan": {"header": ORIGIN, "plan": numbers().plan},
    "states.origin_of": {"state_header": state_header(place_of(**BEGUN), ad.Options()), "step": 1, "ticket": 1},
    "states.place_of_origins": {"plan": numbers().plan, "origins": [ORIGIN]},
    "states.plan_of_worker": {"plan": numbers().plan, "header": ORIGIN},
    "states.with_seeds": {"plan": numbers().plan, "seeds": {}, "strict": True, "places": iter([])},
}

INNER = {
    "DatasetIterator": "made by Dataset.iterate",
    "Stateful": "a protocol",
    "states.ResumePoint": "made by place_of",
    "observe.Dashboard": "made by observe.dashboard",
    "testing.SourceDriver": "takes nothing",
    "testing.check_resumes": "runs the user's pipelines",
    "testing.check_source": "likewise",
    "testing.check_transform": "likewise",
    "testing.leaves_nothing": "takes nothing",
    "testing.virtual_time": "takes nothing",
}
"""What users do not call with arguments of their own."""

MODULES = ("web", "experimental", "observe", "checkpoint", "states", "testing")


def public() -> dict[str, Any]:
    """All public callables by name, except classes of errors, and those of one class under a second name."""
    found = {name: getattr(ad, name) for name in ad.__all__}
    for module in map(importlib.import_module, (f"asyncdata.{name}" for name in MODULES)):
        short = module.__name__.removeprefix("asyncdata.")
        found |= {f"{short}.{name}": getattr(module, name) for name in module.__all__ if not hasattr(ad, name)}
    errors = (BaseException,)
    return {
        name: made
        for name, made in found.items()
        if callable(made) and not (isinstance(made, type) and issubclass(made, errors))
    }


def test_every_public_call_is_in_a_table() -> None:
    methods = {name for name in dir(ad.Dataset) if not name.startswith("_") and callable(getattr(ad.Dataset, name))}
    assert methods == METHODS.keys()
    assert public().keys() - {"experimental.from_list"} == CALLS.keys() | INNER.keys()


def cases() -> Iterator[tuple[str, str, str]]:
    """Each call and parameter."""
    for name in METHODS:
        for parameter in inspect.signature(getattr(ad.Dataset, name)).parameters:
            if parameter != "self":
                yield "Dataset", name, parameter
    for name in CALLS:
        for parameter in inspect.signature(public()[name]).parameters:
            yield "", name, parameter


def dataset_for(name: str) -> ad.Dataset[Any]:
    return vectors() if name in VECTORS else numbers()


def bound(kind: str, name: str, parameter: str, value: Any) -> Callable[[], Any]:
    """A call in which one argument has a secret."""
    if kind:
        is_static = isinstance(inspect.getattr_static(ad.Dataset, name), staticmethod)
        call, valid = getattr(ad.Dataset if is_static else dataset_for(name), name), METHODS[name]
    else:
        call, valid = public()[name], CALLS[name]
    given = {**valid, parameter: value}
    kinds = {one.name: one.kind for one in inspect.signature(call).parameters.values()}
    several = [
        given.pop(one) for one, kind in kinds.items() if kind is inspect.Parameter.VAR_POSITIONAL and one in given
    ]
    named = [given.pop(one) for one, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD and one in given]
    return partial(call, *several, **given, **({"more": named[0]} if named else {}))


class Told:
    """All texts that come out."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def of(self, call: Callable[[], Any]) -> Any:
        """What a call returns; its error is a text."""
        try:
            return call()
        except BaseException as error:
            self.error(error)
            return None

    def error(self, error: BaseException | None) -> None:
        """The text of an error, of its traceback and its causes."""
        if error is not None:
            self.texts += [str(error), repr(error), *getattr(error, "__notes__", [])]
            self.texts += traceback.format_exception(error)
            self.error(error.__cause__)

    def made(self, value: Any) -> None:
        """What is told of a value that a call returned."""
        if asyncio.iscoroutine(value):
            value = self.of(lambda: asyncio.run(value))
        if isinstance(value, ad.Dataset):
            self.dataset(value)
        elif isinstance(value, ad.DatasetIterator):
            self.iterator(value)
        elif hasattr(value, "url"):  # a dashboard
            self.texts.append(value.url)
        elif not isinstance(value, (str, bytes, dict, list, int, float)):
            self.texts += [repr(value), str(value)]
        if hasattr(value, "close") and not isinstance(value, type):
            self.of(value.close)

    def dataset(self, dataset: ad.Dataset[Any]) -> None:
        self.texts += [repr(dataset), str(dataset), str(self.of(dataset.fingerprint))]
        explanation = self.of(dataset.explain)
        self.texts += [str(explanation), repr(explanation), str(self.of(lambda: explanation._repr_html_()))]
        iterator = self.of(dataset.iterate)
        if iterator is not None:
            self.iterator(iterator)

    def iterator(self, iterator: ad.DatasetIterator[Any]) -> None:
        for _ in range(3):
            self.texts.append(json.dumps(self.of(iterator.state_dict)))
            self.of(lambda: next(iterator))
        self.texts += [repr(iterator), str(self.of(iterator.stats)), str([one.name for one in threading.enumerate()])]
        self.of(iterator.close)


def files_in(folder: Path) -> Iterator[str]:
    """The names of all files, and what they contain."""
    for path in folder.rglob("*"):
        yield str(path)
        if path.is_file():
            yield path.read_bytes().decode("latin-1")


def check(told: Told, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing that was told has a part of the secret."""
    logged = [logging.Formatter().format(record) for record in caplog.records if record.name.startswith("asyncdata")]
    texts = [*told.texts, *logged, *capfd.readouterr(), *files_in(folder)]
    wrong = [text for text in texts if SECRET[:5] in text]
    assert not wrong, wrong[0]


USUAL = PATHS | {
    "storage_options",
    "cache_dir",
    "headers",
    "data_source_name",
    "host",
    "stream",
    "map_func",
    "dashboard",
}
"""The parameters that have secrets in practice; the others run with `-m slow`."""


def marked(kind: str, name: str, parameter: str) -> Any:
    """A case of the test."""
    slow = () if parameter in USUAL else pytest.mark.slow
    return pytest.param(kind, name, parameter, id=".".join(filter(None, (kind, name, parameter))), marks=slow)


@pytest.mark.parametrize(("kind", "name", "parameter"), [marked(*case) for case in cases()])
def test_a_secret_comes_out_nowhere(
    kind: str,
    name: str,
    parameter: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if (name, parameter) in ELEMENTS:
        pytest.skip(ELEMENTS[name, parameter])
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    told = Told()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for what, planted in PLANTED.items():
            if what != "pairs" or parameter not in PATHS:
                told.made(told.of(bound(kind, name, parameter, planted)))
    told.texts += [str(one.message) for one in warned]
    check(told, tmp_path, caplog, capfd)


COMMAND_LINES: dict[str, list[str]] = {
    "replay": ["missing", "missing.py:ds", "--step", "1"],
    "audit": ["missing"],
    "trace-record": ["missing:1", "missing.py:ds", "missing"],
    "demo": ["--data", "missing", "--epochs", "1", "--no-naive"],
    "dashboard": ["missing.py:ds"],
    "doctor": ["missing.py:ds"],
    "bench": ["missing.py:ds"],
    "ingest": ["--to", "http://127.0.0.1:1/"],
    "channel dead-letters": ["missing"],
    "channel inspect": ["missing"],
    "channel put-back": ["missing", "--to", "http://127.0.0.1:1/ingest"],
    "channel trim": ["missing", "--state", "missing"],
    "inspect": ["missing"],
    "compare": ["missing.py:loader"],
    "convert": ["missing", "shards", "--to", "jsonl"],
}
"""Arguments with which each command ends soon."""


def command_parsers() -> dict[str, ArgumentParser]:
    """The parsers of all commands by name."""
    found: dict[str, ArgumentParser] = {}

    def collect(parser: ArgumentParser, name: str) -> None:
        inner = [action for action in parser._actions if isinstance(action.choices, dict)]  # noqa: SLF001
        for action in inner:
            for one, below in action.choices.items():
                collect(below, f"{name} {one}".strip())
        if not inner:
            found[name] = parser

    root = ArgumentParser()
    commands = root.add_subparsers()
    for name, (command, _) in COMMANDS.items():
        command.add_arguments(commands.add_parser(name))
    collect(root, "")
    return found


def test_every_command_is_in_the_table() -> None:
    assert command_parsers().keys() == COMMAND_LINES.keys()


@pytest.mark.parametrize("command", COMMAND_LINES)
@pytest.mark.parametrize("token", first_by_default([True, False]))
def test_commands_tell_no_secrets(
    command: str,
    token: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    if token:
        monkeypatch.setenv("ASYNCDATA_TOKEN", SECRET)
    for action in command_parsers()[command]._actions:  # noqa: SLF001
        if action.nargs == 0 or action.dest in ("cache", "timeline"):  # where the demonstration writes its files
            continue
        for what, url in URLS.items():
            if what == "pairs" and action.dest in PATHS | {"to", "source", "target", "data"}:
                continue
            valid = list(COMMAND_LINES[command])
            if action.option_strings:
                valid += [action.option_strings[-1], url]
            else:
                valid[valid.index("missing") if "missing" in valid else 0] = url
            with suppress(SystemExit):
                main([*command.split(), *valid])
    check(Told(), tmp_path, caplog, capfd)


def test_errors_of_functions_are_shown_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def fail(url: str) -> None:
        raise ValueError(f"cannot read {url}")

    dataset = ad.Dataset.from_list([URLS["http"], URLS["redis"]]).map(fail)
    assert list(dataset.ignore_errors(log_warning=True)) == []
    assert "ValueError('cannot read http://127.0.0.1:1/a.txt?" in caplog.text
    iterator = iter(dataset)
    with pytest.raises(ValueError, match=SECRET) as caught:  # the user's own
        next(iterator)
    stats = iterator.stats()
    assert "cannot read http://127.0.0.1:1/a.txt?" in str(stats.errors)
    page = rendered([View(1, stats, History())])
    texts = [caplog.text, repr(stats), str(stats), page, *getattr(caught.value, "__notes__", [])]
    assert not [text for text in texts if SECRET in text]


def test_a_state_of_a_long_listing_has_no_password() -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for number in range(5):
        system.pipe(f"/{PLACE}/{number}.txt", b"x")
    try:
        dataset = ad.Dataset(Listing(f"memory://{PLACE}/*.txt"))
        names = [f"memory://{PLACE}/{number}.txt" for number in range(5)]
        assert list(dataset) == names
        for pipeline in (
            dataset,
            dataset.shuffle(3, seed=1, reshuffle_each_iteration=False),
            dataset.map(same).batch(1).unbatch(),
        ):
            expected = list(pipeline)
            with pipeline.iterate() as found:
                begun = [next(found), next(found)]
                state = json.dumps(found.state_dict())
            assert SECRET not in state + repr(pipeline) + str(pipeline.explain())
            assert begun + list(pipeline.iterate(state=json.loads(state))) == expected
    finally:
        system.rm(f"/{PLACE}", recursive=True)


WRONG_OPTIONS: list[dict[str, Any]] = [
    OPTIONS,
    {"secret_access_key": SECRET, "no_such_option": SECRET},
    {"secret_access_key": 5, "token": [SECRET]},
    {"client_options": {"default_headers": {"authorization": f"Bearer {SECRET}\n"}}},
    {"client_options": {"no_such_option": SECRET}},
    {"endpoint": f"{SECRET}://{SECRET}"},
    {"region": SECRET},
]


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "http", "sftp", "odd"])
@pytest.mark.parametrize("number", range(len(WRONG_OPTIONS)))
def test_options_of_stores_are_told_nowhere(
    scheme: str, number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    told, options = Told(), {"retry_config": {"max_retries": 0}, **WRONG_OPTIONS[number]}
    url = f"{scheme}://127.0.0.1:1/a"
    told.made(told.of(partial(ad.TextLineDataset, url, storage_options=options, cache_dir=tmp_path / "cache")))
    told.made(told.of(partial(ad.read_file, url, storage_options=options)))
    told.made(told.of(partial(ad.Dataset.list_files, f"{url}*", storage_options=options)))
    told.of(partial(numbers().map(str).map(str.encode).write_tfrecords, f"{url}/b", storage_options=options))
    check(told, tmp_path, caplog, capfd)
