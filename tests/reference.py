"""What each source and transformation means, on plain iterables; a failed element is a `Failed` in its place."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import struct
import tarfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np

from asyncdata.elements.ragged import Ragged
from asyncdata.executors.element_rng import epoch_key, mixed
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.transforms.global_shuffle import permuted
from asyncdata.transforms.shuffle import drain_order, slots

Elements = Iterable[Any]


@dataclasses.dataclass(frozen=True)
class Failed:
    """Stands in the place of an element that failed; `reason` tells user errors from each other.

    That of a source stands for all that the source had left. One out of place is raised though it is not among the
    elements that a step chose: it has no number.
    """

    reason: str
    of_source: bool = dataclasses.field(default=False, compare=False)
    out_of_place: bool = dataclasses.field(default=False, compare=False, repr=False)


class Boom(Exception):
    """What the functions of the tests raise; its argument tells at which element."""


class Misfit(Exception):
    """Elements that cannot be stacked, or an element that cannot be unstacked."""


def failed(error: BaseException) -> Failed:
    """Mark the place of an error: all of a user's error, only the kind of one of the package."""
    if isinstance(error, Misfit):
        return Failed("StructureError")
    return Failed(repr(error) if isinstance(error, Boom) else type(error).__name__)


def call(fn: Callable[..., Any], element: Any) -> Any:
    """Apply a user's function to an element: a plain tuple is unpacked, a failure stays one."""
    if isinstance(element, Failed):
        return element
    try:
        return fn(*element) if type(element) is tuple else fn(element)
    except Exception as error:
        return failed(error)


def range_(*bounds: int) -> Iterator[int]:
    return iter(range(*bounds))


def random(count: int, seed: int, epoch: tuple[int, ...]) -> list[int]:
    return [number >> 32 for number in mixed(0, count, epoch_key(seed, epoch)).tolist()]


def counter(start: int, step: int) -> Iterator[int]:
    return itertools.count(start, step)


def from_tensors(tensors: Any) -> Iterator[Any]:
    return iter([tensors])


def from_list(elements: Sequence[Any]) -> Iterator[Any]:
    return iter(elements)


def from_source(source: Any) -> Iterator[Any]:
    """What cannot be had fails in its place."""
    return map_(range(len(source)), source.__getitem__)


def from_generator(function: Callable[..., Elements], args: tuple[Any, ...]) -> Iterator[Any]:
    """What it raises is the last element."""
    try:
        yield from function(*args)
    except Exception as error:
        yield lost(failed(error))


DAMAGED = Failed("DataLossError")


def lost(failure: Failed) -> Failed:
    """Return what stands for the rest of a source."""
    return dataclasses.replace(failure, of_source=True)


def is_lost(element: Any) -> bool:
    return isinstance(element, Failed) and element.of_source


def raised_anyway(elements: Elements, is_chosen: Callable[[int], bool]) -> Iterator[Any]:
    """The elements in the chosen places, and the failures of sources in the other ones."""
    for place, one in enumerate(elements):
        if is_chosen(place):
            yield one
        elif is_lost(one):
            yield dataclasses.replace(one, out_of_place=True)


def text_lines(content: bytes) -> list[bytes]:
    """What is before each newline, or carriage return and newline, and behind the last one."""
    lines = content.replace(b"\r\n", b"\n").split(b"\n")
    return lines if lines[-1] else lines[:-1]


def json_lines(content: bytes) -> Iterator[Any]:
    """What is on each line that is not blank."""
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip(b" \t\r"):
            try:
                yield json.loads(line.decode())
            except ValueError:
                yield DAMAGED


def tar_samples(content: bytes) -> Iterator[Any]:
    """Members that follow each other and share the part before the first dot; text and numbers by extension."""
    whole = content.endswith(bytes(512))
    made: dict[str, Any] = {}
    with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            key, dot, extension = member.name.partition(".")
            if not member.isreg() or not dot:
                continue
            if made and made["__key__"] != key:
                yield made
                made = {}
            found = content[member.offset_data : member.offset_data + member.size]
            made = {"__key__": key, **made, extension: {"txt": bytes.decode, "cls": int}.get(extension, bytes)(found)}
    if not whole:
        yield lost(DAMAGED)
    elif made:
        yield made


def mds_samples(content: bytes) -> Iterator[Any]:
    """The samples of a shard of MDS with an int64 and a text; of one that is cut short those before."""
    (count,) = struct.unpack_from("<I", content)
    ends = struct.unpack_from(f"<{count + 1}I", content, 4)
    for begin, end in itertools.pairwise(ends):
        if end > len(content):
            break
        _, number = struct.unpack_from("<Iq", content, begin)
        try:
            yield {"number": number, "text": content[begin + 12 : end].decode()}
        except UnicodeDecodeError:
            yield DAMAGED
    if len(content) != ends[-1]:
        yield lost(DAMAGED)


def token_windows(content: bytes, length: int, overlap: int) -> Iterator[Any]:
    """Windows of 16-bit tokens, the last of which may be shorter."""
    if len(content) % 2:
        yield lost(DAMAGED)
        return
    tokens = np.frombuffer(content, np.uint16)
    for begin in range(0, max(min(1, len(tokens)), len(tokens) - overlap), length - overlap):
        yield tokens[begin : begin + length]


def safetensors_rows(content: bytes) -> Iterator[Any]:
    """Dicts of rows of tensors of 16-bit integers and 64-bit floats; nothing of a file that is cut short."""
    begin = 8 + struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:begin])
    if begin + max(fields["data_offsets"][1] for fields in header.values()) != len(content):
        yield lost(DAMAGED)
        return
    arrays = {
        name: np.frombuffer(
            content[begin + fields["data_offsets"][0] : begin + fields["data_offsets"][1]],
            {"I16": "<i2", "F64": "<f8"}[fields["dtype"]],
        ).reshape(fields["shape"])
        for name, fields in header.items()
    }
    for row in range(len(arrays["x"])):
        yield {name: array[row] for name, array in arrays.items()}


def lit_samples(content: bytes) -> Iterator[Any]:
    """The samples of a chunk of LitData with a number and a text; of one that is cut short those before."""
    (count,) = struct.unpack_from("<I", content)
    ends = struct.unpack_from(f"<{count + 1}I", content, 4)
    for begin, end in itertools.pairwise(end for end in ends if end <= len(content)):
        try:
            yield {"id": struct.unpack_from("<q", content, begin + 8)[0], "name": content[begin + 16 : end].decode()}
        except UnicodeDecodeError:
            yield DAMAGED
    if len(content) != ends[-1]:
        yield lost(DAMAGED)


def npy_rows(content: bytes) -> Iterator[Any]:
    """The rows of an array, or dicts of rows; of one that is cut short those that lie one after the other."""
    if content.startswith(b"PK"):
        arrays = dict(np.load(io.BytesIO(content)).items())
        yield from ({key: array[row] for key, array in arrays.items()} for row in range(len(arrays["x"])))
        return
    file = io.BytesIO(content)
    with contextlib.suppress(ValueError):
        np.lib.format.read_magic(file)
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        body = content[file.tell() :]
        size = int(np.prod(shape[1:]))
        if len(body) == np.prod(shape) * dtype.itemsize:
            yield from np.load(io.BytesIO(content))
            return
        if not by_columns:
            rows = len(body) // (size * dtype.itemsize)
            yield from np.frombuffer(body, dtype, rows * size).reshape(rows, *shape[1:])
    yield lost(DAMAGED)


def fixed_length_records(content: bytes, size: int, header: int = 0, footer: int = 0) -> list[Any]:
    """A file whose records do not come out even has none."""
    body = content[header : len(content) - footer]
    if len(body) % size:
        return [lost(DAMAGED)]
    return [body[start : start + size] for start in range(0, len(body), size)]


def tf_records(content: bytes) -> Iterator[Any]:
    """A length, its checksum, so many bytes and theirs. Nothing can be found behind a length that is wrong."""
    while content:
        if len(content) < 12 or masked(content[:8]) != content[8:12]:
            yield lost(DAMAGED)
            return
        end = 12 + int.from_bytes(content[:8], "little")
        record, check, content = content[12:end], content[end : end + 4], content[end + 4 :]
        if len(check) < 4:
            yield lost(DAMAGED)
            return
        yield record if masked(record) == check else DAMAGED


def masked(data: bytes) -> bytes:
    """The CRC-32C, bit by bit, as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def csv_records(content: bytes, defaults: Sequence[Any]) -> Iterator[Any]:
    """A tuple for each line; a default is a dtype of which there must be a number, or what an empty field is."""
    for fields in csv.reader(content.decode().splitlines(), strict=True):
        try:
            yield tuple([csv_field(field, default) for field, default in zip(fields, defaults, strict=True)])
        except ValueError:
            yield DAMAGED


def csv_field(field: str, default: Any) -> Any:
    if isinstance(default, type):
        return default(field)
    kind = type(default)
    return default if field == "" else field.encode() if kind is bytes else kind(field)


def csv_table(content: bytes, size: int) -> Iterator[Any]:
    """Batches of columns by name, of integers or else of floats."""
    names, *rows = csv.reader(content.decode().splitlines(), strict=True)
    kinds = [
        np.int32 if all("." not in field for field in column) else np.float32 for column in zip(*rows, strict=True)
    ]
    while rows:
        columns, rows = zip(*rows[:size], strict=True), rows[size:]
        yield {name: np.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)}


def sql_rows(rows: Elements, types: Sequence[type]) -> Iterator[Any]:
    """What Python's own driver gives, as NumPy scalars and bytes."""
    return (
        tuple([str(value).encode() if to is str else to(value) for value, to in zip(row, types, strict=True)])
        for row in rows
    )


def list_files(there: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """What two patterns match is there twice."""
    return sorted(name for pattern in patterns for name in there if fnmatch(name, pattern))


def from_queue(messages: Iterable[Any]) -> Iterator[Any]:
    """What a queue on a server holds, in order."""
    return iter(messages)


def from_channel(bodies: Sequence[bytes], decode: Callable[[bytes], Any]) -> Iterator[Any]:
    """A line that cannot be decoded is a failure in its place."""
    for line in [line for body in bodies for line in body.split(b"\n") if line.strip()]:
        try:
            yield decode(line)
        except ValueError:
            yield Failed("UndecodableError")


def replayed(elements: Elements, size: int, replay: int) -> Iterator[Any]:
    """Each element `replay` times, those of a window of `size` in turn; a failure once, in its place."""
    window: deque[list[Any]] = deque()
    for element in [*elements, *[None] * size]:
        if isinstance(element, Failed):
            yield element
            continue
        if element is not None:
            window.append([element] * replay)
        while window and (element is None or len(window) >= size):
            yield window[0].pop()
            window.rotate(-1)
            if not window[-1]:
                window.pop()


def load(elements: Elements, shard_func: Callable[..., int]) -> Iterator[Any]:
    """What was saved, shard by shard."""
    return iter(sorted(elements, key=lambda element: call(shard_func, element)))


def from_tensor_slices(tensors: Any) -> Iterator[Any]:
    return iter(unstack(tensors))


def map_(elements: Elements, fn: Callable[..., Any]) -> Iterator[Any]:
    return (call(fn, element) for element in elements)


def scan(elements: Elements, state: Any, fn: Callable[[Any, Any], Any]) -> Iterator[Any]:
    """A failure leaves the state as it is."""
    for element in elements:
        pair = element if isinstance(element, Failed) else call(fn, (state, element))
        if isinstance(pair, Failed):
            yield pair
        else:
            state, found = pair
            yield found


def filter_(elements: Elements, predicate: Callable[..., Any]) -> Iterator[Any]:
    for element in elements:
        verdict = call(predicate, element)
        if isinstance(verdict, Failed):
            yield verdict
        elif verdict:
            yield element


def rejection_resample(elements: Elements, fn: Callable[..., Any], kept: set[int], classes: int) -> Iterator[Any]:
    """Pairs of class and element, where each class is kept whole or not at all."""
    for element in elements:
        label = call(fn, element)
        if isinstance(label, Failed) or not isinstance(label, int):
            yield label if isinstance(label, Failed) else failed(TypeError())
        elif not 0 <= label < classes:
            yield failed(IndexError())
        elif label in kept:
            yield label, element


def group_by_reducer(
    elements: Elements, key: Callable[..., Any], init: Any, fn: Callable[[Any, Any], Any], last: Callable[..., Any]
) -> Iterator[Any]:
    """Failures first, then one element for each key, folded from its elements."""
    states = dict[Any, Any]()
    for element in elements:
        name = call(key, element)
        state = name if isinstance(name, Failed) else call(fn, (states.setdefault(name, init), element))
        if isinstance(state, Failed):
            yield state
        else:
            states[name] = state
    yield from (call(last, states[name]) for name in sorted(states))


def flat_map(elements: Elements, fn: Callable[..., Any]) -> Iterator[Any]:
    """`fn` returns the elements of the inner dataset."""
    for inner in map_(elements, fn):
        yield from [inner] if isinstance(inner, Failed) else inner


def interleave(elements: Elements, fn: Callable[..., Any], cycle: int = 16, block: int = 1) -> Iterator[Any]:
    """An exhausted slot passes the turn on, and is filled anew when the turn comes back to it."""
    inputs, opened, turn = map_(elements, fn), dict[int, Iterator[Any]](), 0
    more = True
    while more or opened:
        if more and turn not in opened:
            try:
                inner = next(inputs)
            except StopIteration:
                more = False
                continue
            if isinstance(inner, Failed):
                yield inner
                continue
            opened[turn] = iter(inner)
        if turn in opened:
            part = list(itertools.islice(opened[turn], block))
            yield from part
            if len(part) < block:
                del opened[turn]
        turn = (turn + 1) % cycle


def batch(
    elements: Elements, size: int, drop_remainder: bool = False, join: Callable[[list[Any]], Any] | None = None
) -> Iterator[Any]:
    """A failure passes at once; the batch under construction goes on with the next element."""
    held: list[Any] = []
    for element in elements:
        if isinstance(element, Failed):
            yield element
            continue
        held.append(element)
        if len(held) == size:
            yield call(join or stack, (held,))
            held = []
    if held and not drop_remainder:
        yield call(join or stack, (held,))


def pack_sequences(
    elements: Elements,
    length: int,
    strategy: str = "first_fit",
    open_rows: int = 64,
    overlong: str = "error",
    max_sequences: int | None = None,
) -> Iterator[Any]:
    """Rows are lists of parts of sequences, as they are open, oldest first."""
    rows: list[list[dict[str, np.ndarray]]] = []
    for element in elements:
        sequence = element if isinstance(element, Failed) else call(features, (element,))
        if not isinstance(sequence, Failed) and rows and rows[0][0].keys() != sequence.keys():
            sequence = failed(Misfit())
        if not isinstance(sequence, Failed) and strategy != "concat_then_split" and tokens_in([sequence]) > length:
            sequence = failed(Misfit()) if overlong == "error" else sequence
            sequence = part(sequence, 0, length) if overlong == "truncate" else sequence
        if isinstance(sequence, Failed):
            yield sequence
            continue
        while size := tokens_in([sequence]):
            room = [length - tokens_in(row) for row in rows]
            if strategy != "concat_then_split":
                wanted = min(size, length)
                fitting = filter(lambda place: room[place] >= wanted, range(len(rows)))
                place = min(fitting, key=room.__getitem__ if strategy == "best_fit" else int, default=len(rows))
                if place == len(rows) >= open_rows and wanted < length:
                    yield packed(rows.pop(room.index(min(room))), length)
                    continue
            else:
                place, wanted = 0, min(size, *room, length)
            rows[place:] = rows[place:] or [[]]
            rows[place].append(part(sequence, 0, wanted))
            sequence = part(sequence, wanted, size)
            if tokens_in(rows[place]) == length or len(rows[place]) == max_sequences:
                yield packed(rows.pop(place), length)
    for row in rows:
        yield packed(row, length)


def bucket_by_token_count(
    elements: Elements, most: int, length: Callable[..., Any], size: int, overlong: str = "error"
) -> Iterator[Any]:
    """Every `size` elements are sorted by length, and cut where one more would be too many tokens."""
    held: list[tuple[int, Any]] = []
    for element in elements:
        found = call(length, element)
        if isinstance(found, int) and found > most and overlong == "error":
            found = failed(Misfit())
        if isinstance(found, Failed):
            yield found
        elif found <= most or overlong == "keep":
            held.append((found, element))
        if len(held) == size:
            yield from token_batches(held, most)
            held = []
    yield from token_batches(held, most)


def token_batches(held: list[tuple[int, Any]], most: int) -> Iterator[Any]:
    rest = sorted(held, key=lambda one: one[0])
    while rest:
        rows = next((n for n, one in enumerate(rest) if n and (n + 1) * one[0] > most), len(rest))
        yield call(lambda column: stack(column, padded), ([element for _, element in rest[:rows]],))
        rest = rest[rows:]


def features(element: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a sequence by name."""
    given = element if isinstance(element, dict) else {"inputs": element}
    if not all(isinstance(value, (list, np.ndarray)) for value in given.values()):
        raise Misfit
    arrays = {name: np.asarray(value) for name, value in given.items()}
    if any(array.ndim != 1 or array.dtype.kind in "OUS" for array in arrays.values()):
        raise Misfit
    if len({len(array) for array in arrays.values()}) != 1:
        raise Misfit
    return arrays


def part(sequence: dict[str, np.ndarray], start: int, stop: int) -> dict[str, np.ndarray]:
    return {name: array[start:stop] for name, array in sequence.items()}


def tokens_in(parts: list[dict[str, np.ndarray]]) -> int:
    return sum(len(next(iter(one.values()))) for one in parts)


def packed(parts: list[dict[str, np.ndarray]], length: int) -> dict[str, np.ndarray]:
    """One row: the tokens, and for each of them which part it is of and where it stands there."""
    row: dict[str, np.ndarray] = {}
    sizes = [tokens_in([one]) for one in parts]
    rest = np.zeros(length - sum(sizes), np.int32)
    for name in parts[0]:
        tokens = np.concatenate([one[name] for one in parts])
        row[name] = np.concatenate([tokens, rest.astype(tokens.dtype)])
        segments = [np.full(size, number) for number, size in enumerate(sizes, 1)]
        row[f"{name}_segment_ids"] = np.concatenate([*segments, rest]).astype(np.int32)
        row[f"{name}_positions"] = np.concatenate([*map(np.arange, sizes), rest]).astype(np.int32)
    return row


def window(
    elements: Elements, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
) -> Iterator[Any]:
    """Lists of elements; failures are elements, and what has another structure than the others spoils its windows.

    Those of sources are in none, and come before the window that goes on behind them.
    """
    rest, found, span, shift = iter(elements), list[Any](), (size - 1) * stride + 1, shift or size
    for start in itertools.count(0, shift):
        while len(found) < start + span and (more := [*itertools.islice(rest, 1)]):
            if is_lost(more[0]):
                yield more[0]
            else:
                found += more
        members = found[start : start + span : stride]
        if not members or (drop_remainder and start + span > len(found)):
            return
        kinds = {repr(skeleton(member)) for member in members if not isinstance(member, Failed)}
        yield members if len(kinds) < 2 else failed(Misfit())


def skeleton(element: Any) -> Any:
    """The structure of an element without its leaves."""
    if type(element) is tuple:
        return tuple(map(skeleton, element))
    return {key: skeleton(element[key]) for key in sorted(element)} if isinstance(element, dict) else None


def padded_batch(elements: Elements, size: int, drop_remainder: bool = False) -> Iterator[Any]:
    """As batch, with arrays filled up to the largest."""
    return batch(elements, size, drop_remainder, lambda column: stack(column, padded))


def padded(column: list[Any], first: int | None = None) -> np.ndarray:
    if len({np.ndim(part) for part in column}) > 1:
        raise Misfit
    column = of_one_dtype(column)
    most = np.max([part.shape for part in column], axis=0, initial=0)
    if first is not None and len(most):
        if most[0] > first:
            raise Misfit
        most[0] = first
    joined = np.full((len(column), *most), filler(column), column[0].dtype)
    for place, part in enumerate(column):
        joined[(place, *map(slice, part.shape))] = part
    return joined


def filler(column: list[Any]) -> Any:
    """Zero; among objects the empty string or bytes, if the first is such, or None."""
    if np.result_type(*column).kind != "O":
        return 0
    first = next((part.flat[0] for part in column if part.size), None)
    return type(first)() if isinstance(first, (str, bytes)) else None


def list_batch(elements: Elements, size: int, drop_remainder: bool = False) -> Iterator[Any]:
    """As batch, in lists."""
    return batch(elements, size, drop_remainder, list)


def ragged_batch(elements: Elements, size: int, drop_remainder: bool = False) -> Iterator[Any]:
    """As batch, with arrays as rows."""
    return batch(elements, size, drop_remainder, lambda column: stack(column, ragged))


def ragged(column: list[Any]) -> Any:
    try:
        shapes = {np.shape(part)[1:] if np.ndim(part) else None for part in column}
    except ValueError:  # of rows that are of several lengths themselves
        raise Misfit from None
    if len(shapes) > 1:
        raise Misfit
    if not np.ndim(column[0]):
        return np.array(column)
    return Ragged(np.concatenate(of_one_dtype(column)), np.cumsum([0, *map(len, column)]))


def of_one_kind(column: list[Any]) -> list[np.ndarray]:
    """Arrays as objects, none of them changed, if one of them is of objects."""
    arrays = [*map(np.asarray, column)]
    return [*map(as_objects, arrays)] if any(array.dtype == object for array in arrays) else arrays


def of_one_dtype(column: list[Any]) -> list[np.ndarray]:
    """Arrays in the dtype of those that have values: NumPy makes floats of an empty list."""
    arrays = of_one_kind(column)
    typed = [array for array in arrays if array.size or array.dtype != float] or arrays
    return [array.astype(np.result_type(*typed)) for array in arrays]


def group_by_window(
    elements: Elements,
    key: Callable[..., Any],
    reduce: Callable[[Any, list[Any]], Elements],
    size: Callable[[Any], int],
) -> Iterator[Any]:
    """What is left comes in the order of its keys."""
    groups: dict[Any, list[Any]] = {}
    for element in elements:
        name = call(key, element)
        if isinstance(name, Failed):
            yield name
            continue
        groups.setdefault(name, []).append(element)
        if len(groups[name]) == size(name):
            yield from reduce(name, groups.pop(name))
    for name in sorted(groups):
        yield from reduce(name, groups[name])


def bucket_by_sequence_length(
    elements: Elements, length: Callable[..., Any], bounds: list[int], sizes: list[int], drop: bool, bounded: bool
) -> Iterator[Any]:
    def bucket(*parts: Any) -> int:
        if bounded and length(*parts) >= bounds[-1]:
            raise ValueError
        return sum(length(*parts) >= bound for bound in bounds)

    def batches(number: int, window: list[Any]) -> Iterator[Any]:
        most = bounds[number] - 1 if bounded else None
        return batch(window, sizes[number], drop, lambda column: stack(column, lambda part: padded(part, most)))

    return group_by_window(elements, bucket, batches, lambda number: sizes[number])


def unbatch(elements: Elements) -> Iterator[Any]:
    return flat_map(((element,) if type(element) is tuple else element for element in elements), unstack)


def rebatch(elements: Elements, sizes: int | list[int], drop_remainder: bool = False) -> Iterator[Any]:
    """Rows in batches whose sizes take turns; a row that failed passes."""
    turns = itertools.cycle([sizes] if isinstance(sizes, int) else sizes)
    size, held = next(turns), list[Any]()
    for row in unbatch(elements):
        if isinstance(row, Failed):
            yield row
            continue
        held.append(row)
        if len(held) == size:
            yield call(stack, (held,))
            size, held = next(turns), []
    if held and not drop_remainder:
        yield call(stack, (held,))


def shuffle(elements: Elements, size: int, seed: int, epoch: tuple[int, ...]) -> Iterator[Any]:
    """Element t >= size pushes the occupant out of a slot that is a function of t; the rest comes in keyed order."""
    key, elements = epoch_key(seed, epoch), iter(elements)
    held = list(elements if size == UNKNOWN_CARDINALITY else itertools.islice(elements, size))
    for t, element in enumerate(elements, size):
        slot = int(slots(t, t + 1, size, key)[0])
        yield held[slot]
        held[slot] = element
    yield from (held[slot] for slot in drain_order(len(held), key))


def shuffle_all(elements: Elements, seed: int, epoch: tuple[int, ...]) -> Iterator[Any]:
    """Every place has the element that a permutation, which is a function of seed and epoch, sends there."""
    held = list(elements)
    return (held[place] for place in permuted(0, len(held), len(held), epoch_key(seed, epoch)))


def repeat(epoch: Callable[[int], Elements], count: int | None = None) -> Iterator[Any]:
    """`epoch(i)` gives the elements of the i-th time; without a count until nothing comes."""
    for turn in itertools.count() if (endless := count is None or count < 0) else range(count):
        nothing = True
        for element in epoch(turn):
            nothing = False
            yield element
        if nothing and endless:
            return


def take(elements: Elements, count: int) -> Iterator[Any]:
    return iter(elements) if count < 0 else itertools.islice(elements, count)


def take_while(elements: Elements, predicate: Callable[..., Any]) -> Iterator[Any]:
    """A failure does not end it."""
    for element in elements:
        verdict = call(predicate, element)
        if not isinstance(verdict, Failed) and not verdict:
            return
        yield verdict if isinstance(verdict, Failed) else element


def unique(elements: Elements) -> Iterator[Any]:
    given: list[Any] = []
    for element in elements:
        if isinstance(element, Failed):
            yield element
        elif not any(equal(element, other) for other in given):
            given.append(element)
            yield element


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Ragged) and isinstance(other, Ragged):
        return equal(one.values, other.values) and equal(one.row_splits, other.row_splits)
    if type(one) is type(other) and isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list, dict, Ragged)) or isinstance(other, (tuple, list, dict, Ragged)):
        return False  # a number would be compared with each part
    return bool(one == other)


def skip(elements: Elements, count: int) -> Iterator[Any]:
    """A failure of a source has a place, and is raised all the same."""
    return iter(()) if count < 0 else raised_anyway(elements, lambda place: place >= count)


def shard(elements: Elements, num_shards: int, index: int, rest: str | None = None) -> Iterator[Any]:
    """The last row is dropped if not all shares have an element in it, or the input's last one makes up for it."""
    if rest is None:
        yield from raised_anyway(elements, lambda place: place % num_shards == index)
        return
    source = iter(elements)
    while row := list(itertools.islice(source, num_shards)):
        short = len(row) < num_shards and rest == "drop_remainder"
        others = [place for place in range(len(row)) if short or place != index]
        yield from raised_anyway([row[place] for place in others if short or place < index], lambda _: False)
        if short:
            return
        element = row[min(index, len(row) - 1)]
        if index >= len(row) and is_lost(element):
            return
        yield element if rest == "drop_remainder" or isinstance(element, Failed) else (element, index < len(row))
        yield from raised_anyway([row[place] for place in others if place > index], lambda _: False)


def balance(
    elements: Elements, cost: Callable[..., Any], size: int, ranks: int, rank: int, steps: int, drop: bool = False
) -> Iterator[Any]:
    """Failures pass on every rank; groups are dealt into batches, and batches into steps."""
    held: list[tuple[float, int, Any]] = []
    for element in elements:
        found = call(cost, element)
        if isinstance(found, Failed):
            yield found
            continue
        held.append((found, len(held), element))
        if len(held) == size * ranks * steps:
            yield from balanced(held, size, ranks, rank)
            held = []
    short = len(held) // (size * ranks) * size * ranks
    yield from balanced(held[:short], size, ranks, rank)
    rest = held[short : len(held) - (len(held) - short) % ranks * drop]
    yield from in_batches(rest, [len(range(number, len(rest), ranks)) for number in range(ranks)])[rank].elements


@dataclasses.dataclass
class Balanced:
    """Elements that are one rank's in a step: their costs and places."""

    total: float = 0
    members: list[tuple[int, Any]] = dataclasses.field(default_factory=list)

    @property
    def elements(self) -> list[Any]:
        return [element for _, element in sorted(self.members, key=lambda one: one[0])]

    @property
    def first(self) -> int:
        return min(place for place, _ in self.members)


def in_batches(held: list[tuple[float, int, Any]], sizes: list[int]) -> list[Balanced]:
    """The costliest first, each into the cheapest batch that is not full."""
    batches = [Balanced() for _ in sizes]
    for cost, place, element in sorted(held, key=lambda one: (-one[0], one[1])):
        free = [batch for batch, size in zip(batches, sizes, strict=True) if len(batch.members) < size]
        batch = min(free, key=lambda batch: batch.total)
        batch.total += cost
        batch.members.append((place, element))
    return batches


def balanced(held: list[tuple[float, int, Any]], size: int, ranks: int, rank: int) -> Iterator[Any]:
    batches = sorted(in_batches(held, [size] * (len(held) // size)), key=lambda batch: (batch.total, batch.first))
    rows = [sorted(batches[at : at + ranks], key=lambda batch: batch.first) for at in range(0, len(batches), ranks)]
    for row in sorted(rows, key=lambda row: row[0].first):
        yield from row[rank].elements


def cache(elements: Elements) -> Iterator[Any]:
    return iter(elements)


def ignore_errors(elements: Elements, max_errors: int | None = None) -> Iterator[Any]:
    """Once so many have been dropped, errors are raised in their places."""
    dropped = 0
    for element in elements:
        if isinstance(element, Failed) and (max_errors is None or dropped < max_errors):
            dropped += 1
        else:
            yield element


def pad_to_cardinality(elements: Elements, count: int, key: str = "valid") -> Iterator[Any]:
    """Zeros like the last good element make up for what is missing."""
    model, source = None, iter(elements)
    for _ in range(count):
        valid, element = True, next(source, source)
        if element is source:
            valid, element = False, zeros(model)
        if isinstance(element, Failed):
            yield element
            continue
        model = element
        if type(element) is not dict:
            yield (element, valid)
        else:
            yield failed(Misfit()) if key in element else {**element, key: valid}


def zeros(value: Any) -> Any:
    """Zeros of the same shapes and types."""
    if isinstance(value, tuple):
        return tuple(map(zeros, value))
    if isinstance(value, dict):
        return {key: zeros(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        whole = np.zeros_like(value)
        for place, part in enumerate(value.ravel().tolist() if value.dtype == object else []):
            whole.flat[place] = zeros(part)
        return whole
    if isinstance(value, Ragged):
        return Ragged(zeros(value.values), value.row_splits)
    return None if value is None else type(value)()


def rate_limit(elements: Elements) -> Iterator[Any]:
    return iter(elements)


def distinct(elements: Elements, key: Callable[..., Any], max_keys: int | None = None) -> Iterator[Any]:
    """The oldest of too many keys are forgotten."""
    keys: list[Any] = []
    for element in elements:
        found = call(key, element)
        if isinstance(found, Failed):
            yield found
        elif found not in keys[-(max_keys or len(keys)) :]:
            keys.append(found)
            yield element


def prefetch(elements: Elements) -> Iterator[Any]:
    return iter(elements)


def prefetch_to_device(elements: Elements) -> Iterator[Any]:
    return iter(elements)


def zip_(*inputs: Elements) -> Iterator[Any]:
    """An element fails if any of its parts does; the parts beside it are gone, so that the rest stays aligned."""
    for parts in zip(*inputs, strict=False):
        failures = [part for part in parts if isinstance(part, Failed)]
        yield next((part for part in failures if part.of_source), failures[0]) if failures else parts


def join(
    elements: Elements, others: Elements, key: Callable[..., Any], other_key: Callable[..., Any], how: str
) -> Iterator[Any]:
    """Pairs with the element of the same key; without one an element is dropped, paired with None, or an error."""
    table = {other_key(other): other for other in others}
    for element in elements:
        found = call(key, element)
        if isinstance(found, Failed):
            yield found
        elif found in table or how == "left":
            yield element, table.get(found)
        elif how == "exact":
            yield failed(KeyError())


def concatenate(*inputs: Elements) -> Iterator[Any]:
    return itertools.chain(*inputs)


def sample_from_datasets(
    inputs: list[Elements],
    weights: list[float] | Callable[[int], list[float]],
    seed: int,
    epoch: tuple[int, ...],
    stop: bool,
) -> Iterator[Any]:
    """Place t goes to the dataset in whose share of the weights left, which may depend on t, a hash of t falls."""
    key, iterators, left = epoch_key(seed, epoch), list(map(iter, inputs)), [1] * len(inputs)
    t = ended = 0
    while any(now := [a * b for a, b in zip(weights(t) if callable(weights) else weights, left, strict=True)]):
        spot = int(mixed(t, t + 1, key + ended & 0xFFFFFFFFFFFFFFFF)[0] >> np.uint64(11)) / 2**53 * sum(now)
        bounds = enumerate(itertools.accumulate(now))
        chosen = next(number for number, bound in bounds if spot < bound)
        try:
            yield next(iterators[chosen])
            t += 1
        except StopIteration:
            if stop:
                return
            left[chosen] = 0
            ended += 1


def sample_by_cost(
    inputs: list[Elements], weights: Callable[[int], list[float]], seed: int, cost: Callable[[Any], float]
) -> Iterator[Any]:
    """The next element is of the dataset whose clock is the furthest behind; its cost moves that clock."""
    ranks, iterators = mixed(0, len(inputs), epoch_key(seed, ())).tolist(), dict(enumerate(map(iter, inputs)))
    clocks, now, given, costs, by = [0.0] * len(inputs), 0.0, 0, list[float](), weights(0)
    while left := [number for number in iterators if weights(given)[number]]:
        if (likely := weights(given)) != by:
            shares = [[one / sum(some) for one in some] for some in (by, likely)]
            clocks = [
                now + (max(0.0, clock - now) * old / new if new else 0.0)
                for clock, old, new in zip(clocks, *shares, strict=True)
            ]
            by = likely
        chosen = min(left, key=lambda number: (clocks[number], ranks[number]))
        try:
            element = next(iterators[chosen])
        except StopIteration:
            del iterators[chosen]
            continue
        yield element
        given, costs = given + 1, costs + [cost(element)] * (cost(element) > 0)
        now, mean = clocks[chosen], sum(costs) / len(costs) if costs else 1.0
        clocks[chosen] = now + (cost(element) or mean / 1024) * (sum(by) / by[chosen])


def choose_from_datasets(inputs: list[Elements], choices: Elements, stop: bool = True) -> Iterator[Any]:
    """A choice of a dataset that has ended ends all or is passed over; at the latest when all are known to have."""
    left = dict(enumerate(map(iter, inputs)))
    for choice in choices:
        if not isinstance(choice, int):
            yield choice if isinstance(choice, Failed) else failed(TypeError())
            continue
        if not 0 <= choice < len(inputs):
            yield failed(IndexError())
            continue
        try:
            if choice in left:
                yield next(left[choice])
        except StopIteration:
            del left[choice]
            if stop or not left:
                return


def enumerate_(elements: Elements, start: int = 0) -> Iterator[Any]:
    return (element if isinstance(element, Failed) else (i, element) for i, element in enumerate(elements, start))


def reduce(elements: Elements, initial: Any, fn: Callable[[Any, Any], Any]) -> Any:
    """The first failure is the result."""
    state = initial
    for element in elements:
        state = element if isinstance(element, Failed) else call(fn, (state, element))
        if isinstance(state, Failed):
            return state
    return state


def stack(column: list[Any], arrays: Callable[[list[Any]], Any] | None = None) -> Any:
    """Elements of one structure as one element with a new first axis; `arrays` joins leaves that are arrays.

    Structures of one type beside None, which are missing, become objects.
    """
    kinds = {type(element) for element in column}
    first = column[0]
    if kinds & {tuple, dict}:
        if len(kinds - {type(None)}) == 1 < len(kinds):
            return stack_leaves(column, kinds)
        if len(kinds) > 1 or any(len(element) != len(first) for element in column):
            raise Misfit
        if kinds == {tuple}:
            return tuple(stack(list(part), arrays) for part in zip(*column, strict=True))
        if any(element.keys() != first.keys() for element in column):
            raise Misfit
        return {key: stack([element[key] for element in column], arrays) for key in first}
    if arrays and np.ndarray in kinds:
        return arrays(column)
    return stack_leaves(column, kinds)


def stack_leaves(column: list[Any], kinds: set[type]) -> np.ndarray:
    numeric = all(issubclass(kind, (int, float, np.number, np.bool_, np.ndarray)) for kind in kinds)
    if numeric:
        if len({np.shape(element) for element in column}) > 1:
            raise Misfit
        if any(np.asarray(element).dtype == object for element in column):
            return np.stack(of_one_kind(column))
        return np.stack(column) if np.ndarray in kinds else np.array(column)
    return as_objects(column)


def as_objects(column: Any) -> np.ndarray:
    """The values of a list or an array, none of them changed."""
    if isinstance(column, np.ndarray):
        return column if column.dtype == object else as_objects([*column.ravel()]).reshape(column.shape)
    objects = np.empty(len(column), dtype=object)
    for place, element in enumerate(column):
        objects[place] = element
    return objects


def unstack(element: Any) -> list[Any]:
    """The elements along the first axis."""
    if isinstance(element, dict):
        columns = {key: unstack(part) for key, part in element.items()}
        check_rows(columns.values())
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(element, tuple):
        parts = [unstack(part) for part in element]
        check_rows(parts)
        return list(zip(*parts, strict=True))
    if not isinstance(element, list) and (not isinstance(element, (np.ndarray, Ragged)) or not element.shape):
        raise Misfit
    return list(element)


def check_rows(columns: Iterable[list[Any]]) -> None:
    if len({len(column) for column in columns}) != 1:
        raise Misfit


def plain(value: Any) -> Any:
    """A form of an element that `==`, `repr` and `sorted(key=repr)` can deal with, types and dtypes included."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, [plain(part) for part in value.ravel().tolist()])
    if isinstance(value, (np.generic, Ragged)):
        return (value.dtype.str, value.item() if isinstance(value, np.generic) else plain(tuple(value)))
    if isinstance(value, tuple):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, bool):
        return str(value)
    return value


def digest(*value: Any) -> int:
    """A number that depends on everything in an element, and on nothing else."""
    return zlib.crc32(repr(plain(value[0] if len(value) == 1 else value)).encode())
