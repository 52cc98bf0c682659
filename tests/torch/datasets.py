"""Datasets and samplers for loaders, which draw random numbers in all the ways that users' ones do."""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Sampler, Subset, get_worker_info

from asyncdata.torch.worker_process import LoaderWorker, workers_of


class Sample(NamedTuple):
    """A sample of a map-style dataset."""

    number: int
    noise: torch.Tensor
    text: str


class Numbers(Dataset[int]):
    """The integers below a number."""

    def __init__(self, count: int = 11) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Noisy(Numbers):
    """Samples with random numbers of torch, Python and NumPy in a nested structure."""

    def __getitem__(self, index: int) -> Any:
        noise = [random.random(), np.random.rand()]
        return Sample(index, torch.rand(2), f"text {index}"), {"noise": noise, "array": np.full(3, index)}


class Batched(Noisy):
    """A dataset that reads a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(index, torch.rand(1)) for index in indices]


class Nested(ConcatDataset[Any]):
    """Datasets in datasets, one of which reads some samples twice."""

    def __init__(self) -> None:
        super().__init__([Subset(Noisy(), [5, 1, 3, 3]), Subset(ConcatDataset([Noisy(3), Noisy(4)]), range(7))])


class Stream(IterableDataset[Any]):
    """An iterable dataset that divides itself among workers, and draws random numbers."""

    count = 13

    def share(self) -> range:
        worker = get_worker_info()
        return range(self.count) if worker is None else range(worker.id, self.count, worker.num_workers)

    def __iter__(self) -> Iterator[Any]:
        for number in self.share():
            yield number, torch.rand(1)


class Uneven(Stream):
    """A stream of which the second worker has less than the first."""

    def share(self) -> range:
        worker = get_worker_info()
        return range(2 if worker is not None and worker.id else 12)


class StatefulStream(Stream):
    """The same as an iterator with a state, which begins anew in `__iter__`, as torchdata's examples do.

    Its state has that of a generator of torch's, a tensor.
    """

    def __iter__(self) -> Iterator[Any]:
        self.place = torch.tensor(0)
        self.generator = torch.Generator().manual_seed(3)
        return self

    def __next__(self) -> Any:
        if self.place >= len(self.share()):
            raise StopIteration
        self.place = self.place + 1
        return self.share()[int(self.place) - 1], torch.rand(1), torch.rand(1, generator=self.generator)

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]
        self.generator.set_state(state["generator"])


class Counting(Stream):
    """A stream that is iterated by a generator, and has the state: how many it has given, which a new run sets back."""

    def __init__(self) -> None:
        self.given = 0
        self.loaded = False

    def __iter__(self) -> Iterator[Any]:
        self.given *= self.loaded
        self.loaded = False
        for number in self.share()[self.given :]:
            self.given += 1
            yield number, torch.rand(1)

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given, self.loaded = state["given"], True


class EndsOnce(Stream):
    """Is its own iterator, which must not be asked again behind its end."""

    def __iter__(self) -> Iterator[Any]:
        self.left: Any = iter(self.share())
        return self

    def __next__(self) -> int:
        try:
            return next(self.left)
        except StopIteration:
            self.left = None
            raise


class Whole(torch.Tensor):
    """A tensor of a class that cannot be cut, as those of MONAI whose metadata are of several samples."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            raise ValueError("this tensor cannot be cut")
        return super().__torch_function__(func, types, args, kwargs or {})


class Wholes(Stream):
    """Gives such tensors."""

    def __iter__(self) -> Iterator[Any]:
        for number in self.share():
            yield torch.arange(number, number + 100).as_subclass(Whole)


class Unsaved(Stream):
    """A stream whose state cannot be saved."""

    def state_dict(self) -> Any:
        return {"lock": threading.Lock()}

    def load_state_dict(self, state: Any) -> None: ...


class Told(Stream):
    """A stream whose state must be told how many samples were read, as those of Mosaic and LitData."""

    def state_dict(self, samples: int) -> Any:
        raise AssertionError

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError


class Weights(torch.nn.Module):
    """A module that is a dataset, whose state is not where it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.arange(6.0))

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return float(self.weights[index].detach())

    def state_dict(self, *args: Any, **given: Any) -> Any:
        raise AssertionError


class Restless(Stream):
    """An iterable dataset that gives other elements whenever it is read."""

    def __iter__(self) -> Iterator[Any]:
        random_numbers = np.random.default_rng()
        for _ in self.share():
            yield random_numbers.random()


class LazySampler(Sampler[int]):
    """Draws each index from Python's global generator when it is asked for."""

    def __init__(self, count: int = 11) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            yield random.randrange(self.count)


class EagerSampler(LazySampler):
    """Draws all indices from NumPy's global generator in `__iter__`."""

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self.count).tolist())


class HiddenSampler(LazySampler):
    """Draws from the system, which no state can hold."""

    def __iter__(self) -> Iterator[int]:
        return iter(random.SystemRandom().sample(range(self.count), self.count))


def seed(number: int = 3) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


class Table(Numbers):
    """Holds an array of 8 MB, and writes to it."""

    def __init__(self) -> None:
        super().__init__(8)
        self.rows = np.arange(8 * 125_000.0).reshape(8, -1)

    def __getitem__(self, index: int) -> Any:
        row = torch.from_numpy(self.rows[index].copy())
        torch.from_numpy(self.rows)[index] -= 1e6
        return row


class Rows(Numbers):
    """Holds an array, and reads it."""

    def __init__(self, rows: Any) -> None:
        super().__init__(len(rows))
        self.rows = rows

    def __getitem__(self, index: int) -> Any:
        return self.rows[index].copy()


class ReadOnce(Stream):
    """A stream that returns itself, and is empty when it has been read."""

    def __init__(self) -> None:
        self.left = iter(range(7))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> int:
        return next(self.left)


class Unsendable(Numbers):
    """Holds a lock that is held."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.lock.acquire()


class Guarded(Numbers):
    """Holds locks that are free, and what is made of them."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[Any] = [threading.Lock(), threading.RLock(), threading.Condition(), threading.Semaphore(2)]
        self.same = self.locks[0]
        self.queue: queue.Queue[int] = queue.Queue()

    def __getitem__(self, index: int) -> int:
        with self.locks[0], self.locks[1], self.locks[1], self.locks[2], self.locks[3]:
            self.queue.put(index + self.same.locked())
            return self.queue.get()


class BrieflyLocked(Numbers):
    """Holds a lock that a thread holds briefly."""

    def __init__(self) -> None:
        super().__init__(4)
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        self.lock.acquire()
        threading.Timer(0.02, self.lock.release).start()
        return self.__dict__


CALLS: list[int] = []


def remember(worker: int) -> None:
    CALLS.append(worker)


def remembered(samples: list[int]) -> list[int]:
    """What `worker_init_fn` has done in this process, in this epoch."""
    return CALLS[-1:]


def numbers_of(samples: list[Any]) -> list[int]:
    return [sample[0] if isinstance(sample, tuple) else sample for sample in samples]


def wait_at_one(samples: list[int]) -> list[int]:
    if samples == [1]:
        threading.Event().wait(5)
    return samples


def slow(samples: list[int]) -> list[int]:
    """Compute for about ten milliseconds."""
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return samples


def die_at_three(samples: list[int]) -> list[int]:
    if samples == [3]:
        os._exit(3)
    return samples


def started(count: int) -> list[LoaderWorker]:
    """The workers that loaders share, which have started: until then first batches are made in this process."""
    workers = workers_of(count, own=False)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.wait_for_start()
    return workers


def fail_on_seven(samples: list[int]) -> list[int]:
    if 7 in samples:
        raise KeyError(7)
    return samples


def unsendable_three(samples: list[int]) -> Any:
    return (sample for sample in samples) if 3 in samples else samples


class CountingSampler(LazySampler):
    """Has another order in each epoch, which it counts itself."""

    epoch = -1

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(random.Random(self.epoch).sample(range(self.count), self.count))


class SeededSampler(CountingSampler):
    """Draws its seed when it is built, as torch does, unless it is given."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self.initial_seed = 2**52 + random.getrandbits(52) if seed is None else seed

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(random.Random(self.initial_seed + self.epoch).sample(range(self.count), self.count))


class Held:
    """Holds the order of a sampler."""

    def __init__(self, order: Any) -> None:
        self.order = order


class ShufflingSampler(LazySampler):
    """Shuffles in place what it holds: each epoch's order depends on all before."""

    def __init__(self, form: str, count: int) -> None:
        super().__init__(count)
        self.form = form
        order: Any = [*range(count)]
        forms = {"array": np.array, "tensor": torch.tensor, "dict": lambda one: {"order": [one]}, "object": Held}
        self.held: Any = forms.get(form, list)(order)

    @property
    def order(self) -> Any:
        """What is shuffled."""
        return {"dict": lambda: self.held["order"][0], "object": lambda: self.held.order}.get(
            self.form, lambda: self.held
        )()

    def __iter__(self) -> Iterator[int]:
        order = self.order
        if self.form == "tensor":
            order[:] = order[torch.randperm(self.count)]
        else:
            (np.random if self.form == "array" else random).shuffle(order)
        return iter([int(one) for one in order])


class ShrinkingSampler(LazySampler):
    """Keeps in a list what no state can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.order = [Held(number) for number in range(self.count)]

    def __iter__(self) -> Iterator[int]:
        self.order = self.order[1:]
        return iter([one.order for one in self.order])


class RememberingSampler(LazySampler):
    """Shuffles in place what it keeps, which is its state."""

    def __init__(self, count: int = 11) -> None:
        super().__init__(count)
        self.order = [*range(count)]

    def __iter__(self) -> Iterator[int]:
        random.shuffle(self.order)
        return iter([*self.order])

    def state_dict(self) -> dict[str, Any]:
        return {"order": [*self.order]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = [*state["order"]]


class PlacedSampler(RememberingSampler):
    """The same, whose state is the place in the epoch: it goes on there, as samplers for torchdata do."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.goes_on = 0, False

    def __iter__(self) -> Iterator[int]:
        if not self.goes_on:
            random.shuffle(self.order)
            self.place = 0
        self.goes_on = False
        while self.place < self.count:
            self.place += 1
            yield self.order[self.place - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.place, self.goes_on = state["place"], True


def own_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """How many tensors there are."""
    return len(batch)


KEPT: list[Any] = []


def keep_batches(items: list[Any]) -> Any:
    """The first batch that this process has made, of 80 KB, and this one."""
    batch = torch.utils.data.default_collate([torch.full((10_000,), float(item)) for item in items])
    KEPT.append(batch[0])
    return KEPT[0], batch[0]


def threads_of(items: list[Any]) -> int:
    """With how many threads PyTorch computes."""
    return torch.get_num_threads()


class Transform:
    """Draws from a generator of its own, which it may make when it is first called."""

    random: Any = None

    def __init__(self, make: Any, late: bool = False) -> None:
        self.make = make
        if not late:
            self.random = make()

    def __call__(self) -> float:
        self.random = self.make() if self.random is None else self.random
        if isinstance(self.random, torch.Generator):
            return float(torch.rand(1, generator=self.random))
        return float(self.random.random())


class Transforming(Numbers):
    """Has transforms, in lists and dicts, as datasets of MONAI and albumentations have."""

    def __init__(self) -> None:
        super().__init__()
        makes = [random.Random, np.random.RandomState, np.random.default_rng]
        self.transforms = [Transform(partial(make, 4)) for make in makes]
        self.named = {"torch": (Transform(new_generator),), "late": Transform(partial(random.Random, 5), late=True)}
        self.same = self.transforms[0]
        self.library, self.many = random, [Transform(random.Random) for _ in range(3)] * 400

    def __getitem__(self, index: int) -> Any:
        return index, [transform() for transform in [*self.transforms, self.named["torch"][0], self.named["late"]]]


class TransformingStream(Stream):
    """The same as a stream."""

    def __init__(self) -> None:
        self.dataset = Transforming()

    def __iter__(self) -> Iterator[Any]:
        for number in self.share():
            yield self.dataset[number]


def new_generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


class Mixing:
    """A function of samples that draws from a generator of its own."""

    def __init__(self) -> None:
        self.random = random.Random(7)

    def __call__(self, samples: list[Any]) -> Any:
        return samples, self.random.random()


class Remembering(Numbers):
    """Has a generator of its own, a cache and a counter, as many datasets do, of which each worker has its own."""

    def __init__(self, count: int = 11) -> None:
        super().__init__(count)
        self.random = np.random.default_rng(3)
        self.generator = torch.Generator().manual_seed(4)
        self.cache: dict[int, int] = {}
        self.calls = iter(range(1000))

    def __getitem__(self, index: int) -> Any:
        drawn = self.random.random(), torch.rand(1, generator=self.generator).item()
        return index, *drawn, self.cache.setdefault(index % 3, index), next(self.calls)


SHARED_RANDOM = random.Random(5)


def draw() -> float:
    """Draw from a generator of the module."""
    return SHARED_RANDOM.random()


class DrawingGlobally(Numbers):
    """Draws from a generator of its module, through a function."""

    def __getitem__(self, index: int) -> Any:
        return index, draw()


class CountingInClass(Numbers):
    """Counts its calls in the class."""

    calls = 0

    def __getitem__(self, index: int) -> Any:
        type(self).calls += 1
        return index, self.calls


class Opening(Numbers):
    """Makes at its first call what cannot be pickled, such as a connection."""

    handle: Any = None

    def __getitem__(self, index: int) -> int:
        if self.handle is None:
            self.handle = threading.Lock()
        return index


class Delegating(Dataset[Any]):
    """Has what another dataset has."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.inner[index], self.count


INTERRUPTED = threading.Lock()


def interrupted_at_four(items: list[int]) -> list[int]:
    """As if Ctrl-C were pressed, once."""
    if 4 in items and INTERRUPTED.acquire(blocking=False):
        raise KeyboardInterrupt
    return items
