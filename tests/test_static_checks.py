"""What a plan knows to be wrong is an error where the method is called."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad


class Pair(NamedTuple):
    a: Any
    b: Any


def one(x: Any) -> Any:
    return x


def two(x: Any, y: Any) -> Any:
    return x, y


async def awaited(x: Any) -> Any:
    return x


def with_rng(x: Any, rng: Any) -> Any:
    return x


NUMBERS = ad.Dataset.range(4)
PAIRS = ad.Dataset.from_tensor_slices((np.arange(4), np.arange(4)))
METHODS = ["map", "filter", "flat_map", "interleave", "distinct", "take_while"]

GROUPING = {
    "balance": lambda ds, fn: ds.balance(fn, 2, 1, 0),
    "group_by_window": lambda ds, fn: ds.group_by_window(fn, lambda key, window: window, 2),
    "group_by_reducer": lambda ds, fn: ds.group_by_reducer(fn, ad.Reducer(str, two, str)),
    "bucket_by_sequence_length": lambda ds, fn: ds.bucket_by_sequence_length(fn, [2], [1, 1]),
    "bucket_by_token_count": lambda ds, fn: ds.bucket_by_token_count(8, fn),
    "rejection_resample": lambda ds, fn: ds.rejection_resample(fn, [1.0]),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_function_of_another_number_of_arguments_is_refused(method: str) -> None:
    with pytest.raises(ad.PlanError, match=rf"{method}\(two\) at test_static_checks.*one argument.*missing.*'y'"):
        getattr(NUMBERS, method)(two)
    with pytest.raises(ad.PlanError, match=rf"{method}\(one\).*2 arguments, one for each part of a tuple.*too many"):
        getattr(PAIRS, method)(one)


@pytest.mark.parametrize("method", GROUPING)
def test_so_is_a_function_that_tells_groups(method: str) -> None:
    with pytest.raises(ad.PlanError, match=rf"{method}\(two\).*one argument.*missing.*'y'"):
        GROUPING[method](NUMBERS, two)
    with pytest.raises(ad.PlanError, match=rf"{method}\(one\).*2 arguments"):
        GROUPING[method](PAIRS, one)
    GROUPING[method](NUMBERS, one)
    GROUPING[method](PAIRS, two)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: NUMBERS.scan(0, one), r"scan\(one\).*a state and an element: too many"),
        (lambda: NUMBERS.reduce(0, one), r"reduce\(one\).*a state and an element: too many"),
        (lambda: NUMBERS.group_by_window(one, one, 2), r"group_by_window\(one\).*a key and a window: too many"),
        (lambda: NUMBERS.group_by_reducer(one, ad.Reducer(two, two, one)), "a key: missing"),
        (lambda: NUMBERS.ignore_errors(on_error=one), "an error and a ticket: too many"),
        (lambda: NUMBERS.group_by_reducer(one, ad.Reducer(one, one, one)), "a state and an element: too many"),
    ],
)
def test_so_is_a_function_that_is_given_something_else_too(build: Any, words: str) -> None:
    with pytest.raises(ad.PlanError, match=words):
        build()


def test_reduce_awaits_nothing_and_says_so() -> None:
    async def later(state: Any, x: Any) -> Any:
        return state

    with pytest.raises(ad.PlanError, match="coroutine function, but reduce does not await it"):
        NUMBERS.reduce(0, later)
    with pytest.raises(ad.PlanError, match="reduce needs a function, got 3"):
        NUMBERS.reduce(0, 3)  # type: ignore[arg-type]
    assert NUMBERS.reduce(0, max) == 3


def test_padded_shapes_of_another_structure_are_refused() -> None:
    with pytest.raises(ad.PlanError, match="rank 0, but its padded_shapes is"):
        NUMBERS.padded_batch(2, ([2], [2]))


@pytest.mark.parametrize(("method", "args"), [("unbatch", ()), ("rebatch", (2,))])
def test_rows_that_are_known_to_be_of_different_numbers_are_refused(method: str, args: Any) -> None:
    unlike = ad.Dataset.from_tensors({"a": np.zeros((3, 2)), "b": np.zeros(2)})
    with pytest.raises(ad.PlanError, match=rf"{method}\(\): leaf \['b'\] has 2 rows, leaf \['a'\] has 3"):
        getattr(unlike, method)(*args)
    batches = ad.Dataset.zip(NUMBERS.batch(2, True), NUMBERS.batch(3, True))
    with pytest.raises(ad.PlanError, match=rf"{method}\(\): leaf \[1\] has 3 rows, leaf \[0\] has 2"):
        getattr(batches, method)(*args)
    getattr(ad.Dataset.zip(NUMBERS.batch(2, True), NUMBERS.batch(3)), method)(*args)


@pytest.mark.parametrize(
    ("name", "value"),
    [("deterministic", "no"), ("optimize", 1), ("disabled_rules", "map_fusion"), ("placement", "moon")],
)
def test_options_of_the_wrong_kind_are_refused_where_they_are_set(name: str, value: Any) -> None:
    with pytest.raises(ad.PlanError, match=name):
        ad.Options(**{name: value})
    with pytest.raises(ad.PlanError, match=name):
        setattr(ad.Options(), name, value)
    with pytest.raises(AttributeError):
        setattr(ad.Options(), f"{name}s", value)


FLAGS: dict[str, tuple[Any, list[str]]] = {
    "map": (
        lambda **flag: NUMBERS.map(one, 2, **flag),
        ["deterministic?", "rng", "pure", "vectorized", "shrinks"],
    ),
    "filter": (lambda **flag: NUMBERS.filter(one, **flag), ["deterministic?", "pure"]),
    "interleave": (lambda **flag: NUMBERS.interleave(one, **flag), ["deterministic?"]),
    "batch": (lambda **flag: NUMBERS.batch(2, **flag), ["drop_remainder", "deterministic?"]),
    "padded_batch": (lambda **flag: NUMBERS.padded_batch(2, **flag), ["drop_remainder"]),
    "list_batch": (lambda **flag: NUMBERS.list_batch(2, **flag), ["drop_remainder"]),
    "ragged_batch": (lambda **flag: NUMBERS.ragged_batch(2, **flag), ["drop_remainder"]),
    "rebatch": (lambda **flag: NUMBERS.batch(2).rebatch(3, **flag), ["drop_remainder"]),
    "window": (lambda **flag: NUMBERS.window(2, **flag), ["drop_remainder"]),
    "bucket_by_sequence_length": (
        lambda **flag: NUMBERS.bucket_by_sequence_length(one, [2], [1, 1], **flag),
        ["pad_to_bucket_boundary", "no_padding", "drop_remainder"],
    ),
    "shuffle": (lambda **flag: NUMBERS.shuffle(2, **flag), ["reshuffle_each_iteration?"]),
    "shard": (lambda **flag: NUMBERS.shard(2, 0, **flag), ["drop_remainder", "pad_remainder"]),
    "ignore_errors": (NUMBERS.ignore_errors, ["log_warning"]),
    "random": (ad.Dataset.random, ["rerandomize_each_iteration?"]),
    "list_files": (lambda **flag: ad.Dataset.list_files(__file__, **flag), ["shuffle?"]),
    "sample_from_datasets": (
        lambda **flag: ad.Dataset.sample_from_datasets([NUMBERS], **flag),
        ["stop_on_empty_dataset", "rerandomize_each_iteration?"],
    ),
    "choose_from_datasets": (
        lambda **flag: ad.Dataset.choose_from_datasets([NUMBERS], NUMBERS, **flag),
        ["stop_on_empty_dataset"],
    ),
    "iterate": (lambda **flag: NUMBERS.iterate(state=iter(NUMBERS).state_dict(), **flag), ["strict"]),
    "load_state_dict": (lambda **flag: iter(NUMBERS).load_state_dict(iter(NUMBERS).state_dict(), **flag), ["strict"]),
    "TFRecordDataset": (lambda **flag: ad.TFRecordDataset("a", **flag), ["index"]),
    "CsvDataset": (lambda **flag: ad.experimental.CsvDataset("a", [int], **flag), ["header", "use_quote_delim"]),
    "make_csv_dataset": (
        lambda **flag: ad.experimental.make_csv_dataset(__file__, 2, ["a"], [int], **flag),
        ["header", "use_quote_delim", "shuffle", "sloppy", "ignore_errors"],
    ),
    "Options": (ad.Options, ["deterministic?", "autotune?", "optimize?", "reorder?"]),
}
"""What takes True and False, and where there is a question mark also None."""


@pytest.mark.parametrize(("method", "name"), [(method, name) for method, (_, names) in FLAGS.items() for name in names])
def test_what_is_neither_true_nor_false_is_no_flag(method: str, name: str) -> None:
    build, told = FLAGS[method][0], name.rstrip("?")
    for wrong in (2, 0, "False", [], *([] if name.endswith("?") else [None])):
        words = rf"^{method}\({told}=\) must be True(, False or None| or False), got {re.escape(repr(wrong))}$"
        with pytest.raises(ad.PlanError, match=words):
            build(**{told: wrong})
    build(**{told: np.False_})
    if name.endswith("?"):
        build(**{told: None})


def test_flags_of_numpy_are_those_of_python() -> None:
    plan = NUMBERS.batch(3, np.True_)  # type: ignore[arg-type]
    assert str(plan.plan) == str(NUMBERS.batch(3, True).plan)
    assert ad.Options(reorder=np.True_).reorder is True  # type: ignore[arg-type]
    unordered = NUMBERS.map(one, 2, deterministic=np.False_)  # type: ignore[arg-type]
    assert "deterministic=False" in str(unordered.plan)


@pytest.mark.parametrize("ds", [PAIRS, PAIRS.batch(2), PAIRS.shuffle(2).take(2), NUMBERS.enumerate()], ids=repr)
def test_it_is_known_behind_transformations(ds: ad.Dataset[Any]) -> None:
    with pytest.raises(ad.PlanError, match="2 arguments"):
        ds.map(awaited)
    ds.map(two)


def test_functions_of_batches_and_with_random_numbers() -> None:
    with pytest.raises(ad.PlanError, match="2 arguments"):
        PAIRS.map(one, batch=2)
    with pytest.raises(ad.PlanError, match="and rng="):
        NUMBERS.map(one, rng=True)
    NUMBERS.map(with_rng, rng=True)
    with pytest.raises(ad.PlanError, match="one argument: missing a required argument: 'rng'"):
        NUMBERS.map(with_rng)


@pytest.mark.parametrize(
    "fn", [one, lambda *x: x, lambda x, y=1: x, partial(two, 1), awaited, str, print, np.sqrt, int]
)
def test_what_can_be_called_is_not_refused(fn: Any) -> None:
    assert len(list(NUMBERS.map(fn))) == len(NUMBERS)


def test_a_named_tuple_is_one_argument() -> None:
    pairs = list(ad.Dataset.from_tensor_slices(Pair(np.arange(2), np.arange(2))).map(one))
    assert pairs == [one(Pair(0, 0)), one(Pair(1, 1))]


def test_where_elements_are_not_known_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        list(NUMBERS.map(one).map(two))
    assert list(ad.Dataset.from_iterable([(1, 2)]).map(two)) == [two(1, 2)]


def test_structures_that_do_not_match_are_not_concatenated() -> None:
    with pytest.raises(ad.PlanError, match="concatenate: elements of the first are TensorSpec.*of the second"):
        NUMBERS.concatenate(PAIRS)
    named = ad.Dataset.from_tensor_slices({"a": [1.0], "b": [2]})
    with pytest.raises(ad.PlanError, match="'b'"):
        named.concatenate(ad.Dataset.from_tensor_slices({"a": [1], "c": [2]}))
    assert len(list(named.concatenate(ad.Dataset.from_tensor_slices({"b": [1], "a": [2.0]})))) == 2


def test_what_is_not_known_is_concatenated() -> None:
    assert list(NUMBERS.take(1).concatenate(ad.Dataset.from_iterable(["x"]))) == [0, "x"]


CHOICES = ad.Dataset.range(2)
MIXTURES = {
    "sample_from_datasets": ad.Dataset.sample_from_datasets,
    "choose_from_datasets": lambda datasets: ad.Dataset.choose_from_datasets(datasets, CHOICES),
}


@pytest.mark.parametrize("method", MIXTURES)
def test_structures_that_do_not_match_are_not_mixed(method: str) -> None:
    named, unknown = ad.Dataset.from_tensor_slices({"a": [1]}), ad.Dataset.from_iterable(["x"])
    words = rf"{method}: elements of dataset 0 are TensorSpec.*, of dataset 2 \{{'a': TensorSpec.*map one"
    with pytest.raises(ad.PlanError, match=words):
        MIXTURES[method]([NUMBERS, unknown, named])
    MIXTURES[method]([NUMBERS, unknown, NUMBERS.map(one)])
    MIXTURES[method]([NUMBERS, ad.Dataset.from_tensor_slices([[1]])])


@pytest.mark.parametrize("method", MIXTURES)
def test_dtypes_that_do_not_match_are_not_mixed(method: str) -> None:
    small, unknown = ad.Dataset.range(2, output_type="int8"), NUMBERS.map(one)
    words = rf"^{method}: the value of elements of dataset 0 is int64, of dataset 2 int8; map one to the dtype of the"
    with pytest.raises(ad.PlanError, match=words):
        MIXTURES[method]([NUMBERS, unknown, small])
    MIXTURES[method]([small, unknown, small.batch(2)])


def test_dtypes_that_do_not_match_are_not_concatenated() -> None:
    words = r"^concatenate: the value of elements of the first is float64, of the second object; map one to the dtype"
    with pytest.raises(ad.PlanError, match=words):
        ad.Dataset.from_tensor_slices([1.0]).concatenate(ad.Dataset.from_tensor_slices(["a"]))
    pairs = ad.Dataset.from_tensor_slices({"b": [1], "a": [2.0]})
    with pytest.raises(ad.PlanError, match=r"leaf \['b'\] of elements of the first is int64, of the second bool"):
        pairs.concatenate(ad.Dataset.from_tensor_slices({"a": [2.0], "b": [True]}))
    ragged = ad.Dataset.from_tensors(ad.Ragged(np.arange(3), [0, 1, 3]))
    with pytest.raises(ad.PlanError, match="of the first is a Ragged of int64, of the second int64"):
        ragged.concatenate(ad.Dataset.from_tensors(np.zeros((2, 2), int)))


@pytest.mark.parametrize("mixed", [*MIXTURES, "concatenate"])
def test_sizes_that_differ_are_open_behind_mixtures(mixed: str) -> None:
    def joined(*datasets: ad.Dataset[Any]) -> ad.Dataset[Any]:
        return datasets[0].concatenate(datasets[1]) if mixed == "concatenate" else MIXTURES[mixed](datasets)

    def zeros(*shape: int) -> ad.Dataset[Any]:
        return ad.Dataset.from_tensors({"a": np.zeros(shape)})

    assert joined(zeros(2, 4), zeros(3, 4)).element_spec == {"a": ad.TensorSpec((None, 4), float)}
    assert joined(zeros(2), zeros(3)).batch(1, True).element_spec == {"a": ad.TensorSpec((1, None), float)}
    assert joined(zeros(2), zeros(3, 4)).element_spec == {"a": ad.TensorSpec(None, float)}
    assert joined(zeros(2), zeros(2)).element_spec == {"a": ad.TensorSpec((2,), float)}
    assert joined(zeros(2), zeros(2).map(one)).plan.signature is None


def test_arguments_that_would_be_ignored_are_refused() -> None:
    signature: Any = {"output_signature": ad.TensorSpec((), "int64")}
    with pytest.raises(ad.PlanError, match="zip takes its datasets as arguments or as datasets=, and got both"):
        ad.Dataset.zip(NUMBERS, datasets=(NUMBERS,))
    for more in ({"output_types": "int64"}, {"output_shapes": ()}):
        with pytest.raises(ad.PlanError, match="from_generator takes output_signature, or .* and got both"):
            ad.Dataset.from_generator(lambda: [1], **signature, **more)
    with pytest.raises(ad.PlanError, match=r"from_generator\(output_shapes=\) needs output_types"):
        ad.Dataset.from_generator(lambda: [1], output_shapes=())
    assert list(ad.Dataset.zip(datasets=(NUMBERS,))) == [(0,), (1,), (2,), (3,)]


class Int32:
    """A dtype as TensorFlow has them."""

    as_numpy_dtype = np.int32

    def __repr__(self) -> str:
        return "tf.int32"


def generated(*types: Any, **signature: Any) -> ad.Dataset[Any]:
    return ad.Dataset.from_generator(lambda: [(1, 2)], *types, **signature)


TYPED = {
    "range": lambda dtype: ad.Dataset.range(3, output_type=dtype),
    "counter": lambda dtype: ad.Dataset.counter(dtype=dtype),
    "TensorSpec": lambda dtype: ad.TensorSpec((), dtype),
    "from_generator": generated,
    "SqlDataset": lambda dtype: ad.experimental.SqlDataset("sqlite", "a", "SELECT 1", (dtype,)),
    "CsvDataset": lambda dtype: ad.experimental.CsvDataset("a", [dtype]),
    "ragged_batch": lambda dtype: NUMBERS.ragged_batch(2, row_splits_dtype=dtype),
    "FixedLenFeature": lambda dtype: ad.FixedLenFeature((), dtype),
}


@pytest.mark.parametrize("what", sorted({*TYPED} - {"CsvDataset"}))  # of which a string is a default
def test_what_is_no_dtype_is_refused(what: str) -> None:
    for wrong in ("int23", object()):
        with pytest.raises(ad.PlanError, match="must be"):
            TYPED[what](wrong)


@pytest.mark.parametrize("what", sorted({*TYPED} - {"FixedLenFeature"}))
def test_a_dtype_of_tensorflows_is_that_of_numpy(what: str) -> None:
    found, expected = TYPED[what](Int32()), TYPED[what](np.int32)
    assert getattr(found, "element_spec", found) == getattr(expected, "element_spec", expected)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ad.TensorSpec((), None), r"TensorSpec\(dtype=\) must be a dtype, .* got None"),
        (lambda: generated([np.int32, np.int32]), r"from_generator\(output_types=\) .* tuple or a dict, not a list"),
        (lambda: generated({"a": [int, int]}), r"not a list\) must be a dtype"),
        (lambda: generated((int, int), ((),)), r"output_shapes=\) needs a shape for each dtype, .*, got \(\(\),\)"),
        (lambda: generated((int, int), [(), ()]), "needs a shape for each dtype"),
        (lambda: generated({"a": int}, {"b": ()}), "needs a shape for each dtype"),
        (lambda: generated(int, ((),)), "needs a shape for each dtype"),
        (lambda: generated(int, 5), r"TensorSpec\(shape=\) is a list of sizes"),
        (lambda: generated(output_signature=np.int32), r"from_generator\(output_signature=\) is made of .*TensorSpec"),
        (lambda: generated(output_signature={"a": "int32"}), r"TensorSpec, leaf \['a'\] is 'int32'"),
        (lambda: generated(output_signature=[ad.TensorSpec(())]), "make the list a tuple"),
        (lambda: generated(args=5), r"from_generator\(args=\) is a tuple of arguments, as \(5,\), got 5"),
        (lambda: generated(args="ab"), r"as \('ab',\), got 'ab'"),
        (
            lambda: ad.Dataset.list_files(3),
            r"list_files\(file_pattern=\) must be a str, bytes or a PathLike, or",
        ),
        (lambda: ad.Dataset.list_files([3]), r"list_files\(file_pattern=\) .* got \[3\]"),
        (lambda: ad.experimental.make_csv_dataset(3, 2), r"make_csv_dataset\(file_pattern=\) must be a str"),
        (
            lambda: NUMBERS.bucket_by_sequence_length(one, 5, [1, 2]),
            r"bucket_boundaries=\) must be a list of integers",
        ),
        (lambda: NUMBERS.bucket_by_sequence_length(one, [5], 3), r"\(bucket_batch_sizes=\) must be a list of integers"),
    ],
)
def test_arguments_of_another_kind_are_refused(build: Any, words: str) -> None:
    with pytest.raises(ad.PlanError, match=words):
        build()


def test_shapes_belong_to_dtypes_of_their_names() -> None:
    spec = generated({"a": int, "b": float}, {"b": (2,), "a": ()}).element_spec
    assert spec == {"a": ad.TensorSpec((), int), "b": ad.TensorSpec((2,), float)}


def test_patterns_of_files_may_be_bytes() -> None:
    for pattern in (__file__.encode(), [__file__.encode()], ad.Dataset.list_files(__file__).to_list()):
        assert list(ad.Dataset.list_files(pattern)) == [__file__]


def test_what_is_saved_is_converted_to_a_signature_only(tmp_path: Any) -> None:
    NUMBERS.save(tmp_path / "numbers")
    with pytest.raises(ad.PlanError, match=r"load\(element_spec=\) is made of asyncdata.TensorSpec, the value is 'int"):
        ad.Dataset.load(tmp_path / "numbers", element_spec="int64")


def test_what_is_no_function_is_not_applied() -> None:
    with pytest.raises(ad.PlanError, match="apply needs a function, got 3"):
        NUMBERS.apply(3)  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="apply needs a function, got 3"):
        NUMBERS | 3  # type: ignore[operator]


READERS = {
    "TFRecordDataset": ad.TFRecordDataset,
    "TextLineDataset": ad.TextLineDataset,
    "JsonLinesDataset": ad.JsonLinesDataset,
    "WebDataset": ad.WebDataset,
    "MdsDataset": ad.MdsDataset,
    "NpyDataset": ad.NpyDataset,
    "FixedLengthRecordDataset": lambda names, **more: ad.FixedLengthRecordDataset(names, 1, **more),
    "CsvDataset": lambda names, **more: ad.experimental.CsvDataset(names, [int], **more),
}


@pytest.mark.parametrize("reader", READERS)
def test_elements_that_are_no_paths_are_refused(reader: str) -> None:
    for wrong in ([["a", "b"]], np.array([["a"]]), [3]):
        with pytest.raises(ad.PlanError, match=f"{reader}: a path must be a str, bytes or a PathLike, got .*flat list"):
            READERS[reader](wrong)
    with pytest.raises(ad.PlanError, match=rf"{reader}\(filenames=\) needs .*'a': .*"):
        READERS[reader](ad.Dataset.from_tensor_slices({"a": ["x"]}))
    with pytest.raises(ad.PlanError, match=rf"{reader}\(filenames=\) needs .*int64"):
        READERS[reader](NUMBERS)
    with pytest.raises(ad.PlanError, match=rf"{reader}\(filenames=\) needs .*unbatch\(\)"):
        READERS[reader](ad.Dataset.from_tensor_slices(["a", "b"]).batch(2))


@pytest.mark.parametrize("reader", READERS)
def test_blocks_of_less_than_nothing_are_refused(reader: str) -> None:
    with pytest.raises(ad.PlanError, match=rf"{reader}\(buffer_size=\) must be at least 0, got -2"):
        READERS[reader]("a.mds", buffer_size=-2)
    READERS[reader]("a.mds", buffer_size=0)
    READERS[reader]("a.mds", buffer_size=None)


@pytest.mark.parametrize("reader", READERS)
def test_batches_of_paths_that_nobody_knew_of_are_errors_in_their_places(reader: str) -> None:
    with pytest.raises(ad.PlanError, match=rf"{reader}: a path must be .*got ndarray.*unbatch\(\)") as caught:
        list(READERS[reader](ad.Dataset.from_iterable(["a", "b"]).batch(2)))
    assert caught.value.__notes__ == [f"in {reader}(filenames), elements 0 to 1"]
