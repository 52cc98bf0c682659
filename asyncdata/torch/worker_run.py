"""WorkerRun: what a worker process does for a loader: it seeds its generators, and reads batches of the dataset."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import count as counting
from typing import Any, Final, NamedTuple, cast
from weakref import WeakSet
from zlib import crc32

import numpy as np
import numpy.typing as npt

from asyncdata.elements.tensors import is_dense
from asyncdata.errors import ResumeError
from asyncdata.executors.process.pool import SharedFunction
from asyncdata.executors.process.task import RemoteError
from asyncdata.executors.process.worker import FunctionReference
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.sources.hugging_face_streams import begin_again, forgets_its_buffer
from asyncdata.sources.stateful import Stateful, takes_others
from asyncdata.torch.collation import stacking_in_place
from asyncdata.torch.generators import GlobalStates, Snapshot, global_states, mark_of_globals, set_global_states
from asyncdata.torch.held_generators import HeldGenerators
from asyncdata.torch.held_state import digest_of_state
from asyncdata.torch.internals import (
    is_iterable,
    make_fetcher,
    numpy_seed,
    set_worker_info,
    torch,
    without_overrides,
    worker_info,
)
from asyncdata.torch.process_settings import Modes, ProcessSettings

__all__ = (
    "ENDED",
    "BatchReply",
    "BatchRequest",
    "RunSetup",
    "StandIn",
    "WorkerPosition",
    "arrived",
    "begins_later",
    "digest_of",
    "fetcher_of",
    "held_generators",
    "is_stateful",
    "read_again",
    "stream_state",
)

ENDED: Final = object()
"""What stands in place of a batch where an iterable dataset has ended."""


class WorkerPosition(NamedTuple):
    """How far a worker is: how many batches it has made in this epoch, and what it needs to continue from there."""

    turn: int = 0
    states: GlobalStates | None = None
    """The global generators, if anything was drawn from them since the worker was seeded."""
    start: GlobalStates | None = None
    """The same at the start of the epoch, for an iterable dataset that must be read again."""
    stream: str | ResumeError | None = None
    """The state of a `Stateful` dataset, as JSON, or why there is none."""
    digest: int = 0
    """A checksum of the last batch of an iterable dataset."""
    held: Snapshot | None = None
    """The states of the generators that the dataset holds, if they were drawn from: of an iterable dataset that must be
    read again those at the start of the epoch."""


class BatchRequest:
    """A batch to make: its number in the epoch, the worker, how many batches the worker made before, and the indices.

    `made` are the positions of all workers as far as they are known. When a request is sent it takes along that of its
    worker, for one that has to start again; and which runs are still read, so that the worker can drop the others.
    """

    __slots__ = ("index", "iteration", "latest", "live", "number", "turn", "worker")

    def __init__(
        self,
        number: int,
        worker: int,
        turn: int,
        iteration: int,
        index: Any,
        latest: Any,
        live: tuple[list[int], int] = ([], 0),
    ) -> None:
        self.number = number
        self.worker = worker
        self.turn = turn
        self.iteration = iteration
        self.index = index
        self.latest: list[WorkerPosition] = latest
        self.live = live

    def __reduce__(self) -> tuple[Any, ...]:
        known = {self.worker: self.latest[self.worker]}
        return BatchRequest, (self.number, self.worker, self.turn, self.iteration, self.index, known, live_runs())

    @property
    def known(self) -> WorkerPosition:
        """The last position of the worker that is known."""
        return self.latest[self.worker]


class BatchReply:
    """A batch or an error, and the position of the worker behind it. Opaque, so that the batch travels as it is."""

    __slots__ = ("data", "ended", "error", "number", "position", "seconds", "worker")

    def __init__(
        self,
        data: Any,
        ended: bool,
        error: RemoteError | None,
        number: int,
        worker: int,
        position: WorkerPosition,
        seconds: float = 0.0,
    ) -> None:
        self.data = data
        self.ended = ended
        """Whether the worker's iterable dataset has ended, and there is no batch."""
        self.number = number
        self.worker = worker
        self.position = position
        self.error = error
        self.seconds = seconds
        """How long it took a worker to make."""

    @property
    def has_batch(self) -> bool:
        """Whether there is a batch: neither an error nor the end of the dataset."""
        return self.error is None and not self.ended

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchReply, (
            self.data,
            self.ended,
            self.error,
            self.number,
            self.worker,
            self.position,
            self.seconds,
        )

    def failed(self, error: Exception) -> BatchReply:
        """Return the reply with an error in place of its batch."""
        return BatchReply(None, False, RemoteError.of(error), self.number, self.worker, self.position, self.seconds)


class RunSetup:
    """What the workers of a loader need for one epoch, or for all of them if they are persistent."""

    __name__ = "fetch_batch"

    def __init__(self, loader: Any, base_seed: int, number: int | None = None) -> None:
        self.settings = ProcessSettings()  # first, as the modules of the others are imported with these
        self.dataset = loader.dataset
        self.kind: int = loader.kind
        self.auto_collation: bool = loader.auto_collation
        self.collate_fn: Callable[[Any], Any] = loader.collate_fn
        self.drop_last: bool = loader.drop_last
        self.worker_init_fn: Callable[[int], object] | None = loader.worker_init_fn
        self.num_workers: int = loader.num_workers
        self.base_seed = base_seed
        self.function: SharedFunction | None = None
        """This as workers get it."""
        self.number = number
        if number is None:
            self.number = NEWEST[0] = next(NUMBERS)
            LIVE.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, ({**self.__dict__, "function": None},)

    def __call__(self, request: BatchRequest) -> BatchReply:
        """Make a batch: in the worker, where a `RunInWorker` is in its place."""
        raise NotImplementedError


NUMBERS: Final = counting(1)
NEWEST: Final = [0]
LIVE: Final[WeakSet[RunSetup]] = WeakSet()
"""The runs of this process that are still read."""


def live_runs() -> tuple[list[int], int]:
    """Return the numbers of the runs that are still read, and the newest number: later runs are not among them."""
    newest = NEWEST[0]
    return [setup.number or 0 for setup in [*LIVE]], newest


class RunInWorker:
    """Calls a run by its number: functions are kept longer than runs, so this holds no dataset."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, request: BatchRequest) -> BatchReply:
        live, newest = request.live
        for number in [number for number in RUNS if number <= newest and number not in live]:
            del RUNS[number]
        return RUNS[self.number].fetch(request)


RUNS: Final[dict[int, WorkerRun]] = {}

ACTIVE: Final[list[WorkerRun]] = []
"""The run whose generators are the global ones."""


def arrived(fields: dict[str, Any]) -> RunInWorker:
    """Keep the setup of a run that has come to this process."""
    setup = object.__new__(RunSetup)
    setup.__dict__.update(fields)
    number = fields["number"]
    RUNS[number] = WorkerRun(setup)
    return RunInWorker(number)


class StandIn:
    """Makes the first batches in this process, with the random numbers of the workers, until these have started.

    All workers have the one dataset that is here, so this ends when the dataset, or `collate_fn`, remembers something:
    a generator of its own, a cache, a counter. Then workers, which have one each, make that batch again.
    """

    def __init__(self, function: FunctionReference, number: int) -> None:
        function.load()
        self.setup = RUNS.pop(number).setup
        self.runs: dict[int, WorkerRun] = {}
        self.before = self.remembered()

    def remembered(self) -> bytes | None:
        """Return a digest of what the dataset and `collate_fn` remember."""
        return digest_of_state(self.setup.dataset, self.setup.collate_fn)

    def fetch(self, request: BatchRequest) -> BatchReply | None:
        """Return a batch as its worker would make it; `None` if it changed the dataset."""
        if self.before is None:
            return None
        run = self.runs.setdefault(request.worker, WorkerRun(self.setup))
        settings = self.setup.settings
        own, modules, threads = global_states(), settings.generator_states(), torch.get_num_threads()
        modes = Modes()
        torch.set_num_threads(1)  # as workers have; more would wait for cores on which the workers start
        try:
            reply = run.fetch(request)
        except BaseException:  # an interrupt: the batch is made anew by the next call
            del self.runs[request.worker]
            raise
        finally:
            torch.set_num_threads(threads)
            modes.set()
            run.states = global_states()
            ACTIVE.clear()
            set_global_states(own)
            drawn = settings.generator_states() != modules
            settings.set_generators(modules if drawn else {})
            set_worker_info(None)
        return None if drawn or self.remembered() != self.before else reply


class WorkerRun:
    """A run in a worker: a copy of the dataset, and the worker's own random numbers, as in a worker of PyTorch's."""

    def __init__(self, setup: RunSetup) -> None:
        self.setup = setup
        self.begun = False
        self.iteration = -1
        self.turn = 0
        self.fetcher: Any = None
        self.info: Any = None
        self.states: GlobalStates | None = None
        self.modules: dict[str, Snapshot] = {}
        """The states of the generators in modules of the program, where another run has others."""
        self.start: GlobalStates | None = None
        self.drawn = False
        """Whether the global generators were drawn from since they were seeded."""
        self.digest = 0
        self.held: HeldGenerators | None = None
        self.held_start: Snapshot | None = None
        self.ended = False
        """Whether an iterable dataset has given all in this epoch."""

    def fetch(self, request: BatchRequest) -> BatchReply:
        """Return a batch or its error, and the position behind it."""
        self.activate()
        if not self.begun:
            self.begin(request.worker)
        if request.iteration != self.iteration:
            self.begin_iteration(request)
        if request.turn != self.turn:
            raise ResumeError(
                f"the worker process {request.worker} of this loader has ended and cannot continue where it was: save "
                "states more often, or find out why it ended (see the log of the system for want of memory)"
            )
        self.turn += 1
        data, failed = None, None
        try:
            with stacking_in_place():
                data = self.batch(request.index)
        except Exception as error:  # noqa: BLE001  it travels
            failed = RemoteError.of(error)
        self.drawn = self.drawn or self.mark() != self.before
        states = global_states() if self.drawn else None
        stream = stream_state(self.fetcher)
        position = WorkerPosition(self.turn, states, self.start, stream, self.digest, self.held_states(stream))
        ended = data is ENDED
        return BatchReply(None if ended else data, ended, failed, request.number, request.worker, position)

    def held_states(self, stream: str | ResumeError | None) -> Snapshot | None:
        """Return the states of the generators that the dataset holds, as a position has them."""
        if self.held is None or (is_iterable(self.setup.kind) and stream is None and not self.ended):
            return self.held_start
        if self.turn == 1 or self.ended:
            self.held.find()
        return self.held.changed()

    def activate(self) -> None:
        """Make the generators of this run the global ones."""
        if ACTIVE and ACTIVE[0] is self:
            return
        if ACTIVE:
            ACTIVE[0].states, ACTIVE[0].modules = global_states(), ACTIVE[0].setup.settings.generator_states()
        ACTIVE[:] = [self]
        if self.states is not None:
            set_global_states(self.states)
            self.setup.settings.set_generators(self.modules)
        set_worker_info(self.info)
        self.setup.settings.modes.set()

    def begin(self, worker: int) -> None:
        """Take the settings of the loader's process, seed the generators, and call `worker_init_fn`."""
        setup = self.setup
        setup.settings.apply()
        seed = setup.base_seed + worker
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(numpy_seed(setup.base_seed, worker))
        self.info = worker_info(worker, setup.num_workers, seed, setup.dataset)
        set_worker_info(self.info)
        if setup.worker_init_fn is not None:
            setup.worker_init_fn(worker)
        self.held = held_generators(setup)
        self.seeded, self.mark = global_states(), mark_of_globals()
        self.before = self.mark()
        self.begun = True

    def begin_iteration(self, request: BatchRequest) -> None:
        """Begin to read the dataset, or continue behind the known position."""
        known, setup = request.known, self.setup
        again = known.turn == request.turn and known.turn > 0
        self.set_generators(known.start if again else known.states)
        self.held_start = known.held
        if self.held is not None:
            self.held.set(known.held)
        self.start = global_states() if self.drawn and is_iterable(setup.kind) else None
        self.fetcher = fetcher_of(setup, known.stream if again else None)
        self.turn = self.digest = 0
        self.ended = False
        if again:
            if is_iterable(setup.kind) and known.stream is None:
                self.ended = read_again(self.fetcher, request.index, known)
            self.turn, self.digest = known.turn, known.digest
            self.set_generators(known.states)
            if self.held is not None and known.stream is not None:  # which may have set them, too
                self.held.set(known.held)
        self.iteration = request.iteration

    def set_generators(self, states: GlobalStates | None) -> None:
        """Set the global generators, without states to what they were when the worker was seeded."""
        set_global_states(self.seeded if states is None else states)
        self.drawn = states is not None

    def batch(self, index: Any) -> Any:
        """Return the next batch, `ENDED` at the end of an iterable dataset, which is not read any further."""
        try:
            data = ENDED if self.ended else self.fetcher.fetch(index)
        except StopIteration:
            if not is_iterable(self.setup.kind):
                raise
            data, self.ended = ENDED, True
        if data is ENDED:
            self.digest = digest_of_end(self.digest)
        elif is_iterable(self.setup.kind):
            self.digest = digest_of(data)
        return data


def fetcher_of(loader: Any, stream: str | ResumeError | None = None) -> Any:
    """Return PyTorch's reader of a dataset; one that is `Stateful` continues from its state.

    As torchdata does: the dataset gets its state before it is iterated, an iterator gets its own behind that.
    """
    if isinstance(stream, ResumeError):
        raise stream
    states: dict[str, Any] = {} if stream is None else from_json_value(json.loads(stream))
    if is_iterable(loader.kind):
        begin_again(loader.dataset, restored="dataset" in states)
    if "dataset" in states:
        loader.dataset.load_state_dict(states["dataset"])
    made = make_fetcher(loader)
    if "iterator" in states:
        made.dataset_iter.load_state_dict(states["iterator"])
    return made


def held_generators(loader: Any) -> HeldGenerators | None:
    """Return the generators that a dataset without a state of its own holds."""
    return None if is_stateful(loader.dataset) else HeldGenerators(loader.dataset, loader.collate_fn)


def read_again(fetcher: Any, index: Any, known: WorkerPosition) -> bool:
    """Read an iterable dataset up to a position, and compare the last batch; return whether it has ended."""
    found, ended = 0, False
    for _ in range(known.turn):
        try:
            found = digest_of_end(found) if ended else digest_of(fetcher.fetch(index))
        except StopIteration:  # as it had, if the digests are equal
            found, ended = digest_of_end(found), True
    if found != known.digest:
        raise ResumeError(
            "the iterable dataset gives other elements when it is read again, so the loader cannot resume within this "
            "epoch: give the dataset state_dict and load_state_dict, or a seed of its own"
        )
    return ended


def stream_state(fetcher: Any) -> str | ResumeError | None:
    """Return the states of a dataset and its iterator as JSON, or why there is none; `None` if they have none."""
    dataset, iterator = fetcher.dataset, getattr(fetcher, "dataset_iter", None)
    parts = {"dataset": None if iterator is dataset or is_data(dataset) else dataset, "iterator": iterator}
    stateful: dict[str, Any] = {name: one for name, one in parts.items() if is_stateful(one)}
    if not stateful or forgets_its_buffer(dataset):
        return None
    try:
        return json.dumps(to_json_value({name: one.state_dict() for name, one in stateful.items()}))
    except Exception as error:  # noqa: BLE001  raised where a state is asked for
        return ResumeError(f"the state_dict of a {type(dataset).__name__} cannot be saved: {error!r}")


def begins_later(fetcher: Any) -> bool:
    """Return whether a dataset is iterated by what has no state of its own, as a generator, which begins when the first
    element is read: up to then the state of the dataset may be an earlier one."""
    iterator = getattr(fetcher, "dataset_iter", None)
    return iterator is not None and not is_stateful(iterator)


def is_data(dataset: object) -> bool:
    """Return whether the state of a dataset is its data: it is a module, or a TensorDict."""
    return isinstance(dataset, torch.nn.Module) or type(dataset).__module__.startswith("tensordict.")


def is_stateful(value: object) -> bool:
    """Return whether an object has a state, as torchdata asks, and its methods need no other arguments."""
    has_methods = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")  # isinstance alone takes 20 us
    return has_methods and isinstance(value, Stateful) and not takes_others(value)


SAMPLED: Final = 64
"""So many numbers of each tensor of a batch count for its digest."""

DEEPEST: Final = 60
"""Of what is nested more deeply, or contains itself, the types count alone."""


def digest_of(data: Any) -> int:
    """Return a checksum of a batch: of its structure, and of some numbers of each tensor."""
    return crc32(repr(sample_of(data)).encode())


def digest_of_end(found: int) -> int:
    """Return the checksum behind the last batch of an iterable dataset, which has this one."""
    return crc32(b"end", found)


def sample_of(data: Any, depth: int = 0) -> Any:
    """Return the part of a batch that counts."""
    if isinstance(data, torch.Tensor):
        return sample_of_tensor(data)
    inner = depth + 1
    if isinstance(data, np.ndarray):
        array = cast("npt.NDArray[Any]", data)
        some = array.reshape(-1)[:: max(1, array.size // SAMPLED)].tolist()
        return str(array.dtype), array.shape, sample_of(some, inner) if array.dtype == object else some
    if isinstance(data, dict) and depth < DEEPEST:
        return [(key, sample_of(value, inner)) for key, value in cast("dict[Any, Any]", data).items()]
    if isinstance(data, (list, tuple)) and depth < DEEPEST:
        return [sample_of(value, inner) for value in cast("list[Any]", data)]
    if data is None or isinstance(data, (str, bytes, int, float)):
        return data
    kind: type[Any] = type(cast("Any", data))  # pyright: ignore[reportUnknownVariableType]
    return kind.__name__


def sample_of_tensor(data: Any) -> Any:
    """Return the part of a tensor that counts: its dtype, its shape and some numbers, if it has them in memory."""
    with without_overrides():  # of its class, in which a slice may be an error
        if not is_dense(data):
            return str(data.dtype), str(data.layout)
        flat: Any = data.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // SAMPLED)]
        try:
            return str(data.dtype), tuple(data.shape), some.tolist()
        except RuntimeError:  # of dtypes of which PyTorch makes no numbers, such as float4
            return str(data.dtype), tuple(data.shape), some.view(torch.uint8).tolist()
