"""Signal handlers that raise, at every place of the reading at which Python calls them."""

from __future__ import annotations

import asyncio
import dis
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from types import FrameType
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator
from asyncdata.engines.base import LoopEngine
from asyncdata.runtime.queue import LoopSignal
from asyncdata.system import sigint
from asyncdata.system.signal_handlers import DeferredHandlers, start_thread
from asyncdata.testing import leaves_nothing
from tests.marks import first_by_default
from tests.reference import Boom, failed

RETURNS = {dis.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in dis.opmap}
TRIES = 40
"""Of a pipeline in the default run: at places that are as far apart from each other."""


class AlarmError(TimeoutError):
    """What the handler raises."""


class Handler:
    """Stands for the handler of a signal that comes at one of the places in asyncdata, and counts these.

    Python calls handlers where a function begins and where a call has come back: what that returned is lost.
    """

    def __init__(self) -> None:
        self.at = self.places = 0
        self.place = ""
        self.task: asyncio.Task[Any] | None = None
        """The only task that it comes in: event loops only log what is raised elsewhere."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if not ours(frame) or frame.f_code.co_name == "__del__":  # where Python drops what is raised
            return
        returns = event == "return" and frame.f_code.co_code[frame.f_lasti] in RETURNS and ours(frame.f_back)
        if not (returns or event in {"call", "c_return"}):
            return
        if event == "c_return" and getattr(argument, "__name__", "") == "__enter__":
            return  # of `with`: that Python 3.14 calls handlers there is a fault of its own (gh-148874), mended in 3.15
        if threading.current_thread() is not threading.main_thread() or in_a_private_loop(frame):
            return
        if self.task is not None and asyncio.current_task() is not self.task:
            return
        self.places += 1
        if self.places == self.at:
            self.place = f"{event} {frame.f_code.co_qualname} {frame.f_lineno} {argument!r:.60}"
            raise AlarmError

    def raising(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns."""
        sys.setprofile(self)
        try:
            return call()
        finally:
            sys.setprofile(None)


def ours(frame: FrameType | None) -> bool:
    """Tell whether code is asyncdata's."""
    return frame is not None and frame.f_globals["__name__"].startswith("asyncdata")


def in_a_private_loop(frame: FrameType | None) -> bool:
    """Tell whether the code is run by the event loop of `LoopEngine`."""
    while frame is not None:
        if frame.f_code.co_name == "run_forever":
            return ours(frame.f_back)
        frame = frame.f_back
    return False


@pytest.fixture(autouse=True)
def handler_of_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def but_seven(number: int) -> int:
    if number == 7:
        raise Boom(number)
    return number


async def awaited(number: int) -> int:
    await asyncio.sleep(0)
    return number


PIPELINES: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "by hand": lambda: ad.Dataset.range(9).map(but_seven).prefetch(3),
    "loop": lambda: ad.Dataset.range(9).map(awaited, num_parallel_calls=2).map(but_seven).prefetch(2),
    "one block twice": lambda: ad.Dataset.range(3).cache().repeat(3),
}


def read(elements: ad.DatasetIterator[Any], handler: Handler) -> tuple[list[Any], int]:
    """Return what an iterator gives, and how often the handler raised."""
    found: list[Any] = []
    came = 0
    while True:
        try:
            found.append(handler.raising(elements.__next__))
        except AlarmError:
            came += 1
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, handler.place
        except Boom as error:
            found.append(failed(error))
        except StopIteration:
            return found, came


async def read_async(elements: ad.DatasetIterator[Any], handler: Handler) -> tuple[list[Any], int]:
    """Do the same on an event loop."""
    found: list[Any] = []
    came = 0
    handler.task = asyncio.current_task()
    while True:
        sys.setprofile(handler)
        try:
            found.append(await anext(elements))
        except AlarmError:
            came += 1
        except Boom as error:
            found.append(failed(error))
        except StopAsyncIteration:
            return found, came
        finally:
            sys.setprofile(None)


def read_on_a_loop(elements: ad.DatasetIterator[Any], handler: Handler) -> tuple[list[Any], int]:
    with asyncio.Runner(debug=True) as loop:
        return loop.run(read_async(elements, handler))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what is raised in a finalizer
@pytest.mark.parametrize("reading", [read, read_on_a_loop])
@pytest.mark.parametrize(
    ("placement", "pipeline"),
    first_by_default(
        [
            ("thread", "by hand"),
            ("current", "loop"),
            ("thread", "loop"),
            ("thread", "one block twice"),
            ("current", "by hand"),
            ("current", "one block twice"),
            ("process", "by hand"),
            ("process", "loop"),
        ],
        1,
    ),
)
def test_reading_goes_on_where_it_was(
    placement: ad.Placement, pipeline: str, reading: Callable[..., tuple[list[Any], int]]
) -> None:
    handler, came = Handler(), 0
    if placement == "process":  # what the first process of all starts stays for others
        list(ad.Dataset.range(1).with_options(ad.Options(placement=placement)))
    with leaves_nothing():
        ds = PIPELINES[pipeline]().with_options(ad.Options(placement=placement))
        expected, _ = reading(ds.iterate(), handler)
        for at in range(1, handler.places, -(-handler.places // TRIES)):
            handler.at, handler.places, handler.place = at, 0, ""
            elements = ds.iterate()
            found, once = reading(elements, handler)
            assert found == expected, handler.place
            assert elements.state_dict()["delivered"] == len(expected), handler.place
            elements.close()
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, handler.place
            came += once
        del ds, elements
    assert came >= TRIES // 4, "the others would have come later: each run makes other calls"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what is raised in a finalizer
def test_what_is_copied_to_a_device_is_not_lost_without_an_error() -> None:
    ds = ad.Dataset.range(6).batch(1).prefetch_to_device(Accelerator())
    handler, refused = Handler(), 0
    expected = [int(batch.numpy()[0]) for batch in read(ds.iterate(), handler)[0]]
    for at in range(1, handler.places, -(-handler.places // TRIES)):
        handler.at, handler.places, handler.place = at, 0, ""
        with leaves_nothing(), ds.iterate() as elements:
            found: list[int] = []
            while True:
                try:
                    found.append(int(handler.raising(elements.__next__).numpy()[0]))
                except AlarmError as error:
                    if hasattr(error, "__notes__"):  # taken for the failure of the element, in whose place it is raised
                        found.append(expected[len(found)])
                except ad.ClosedError:
                    refused += 1
                    state = elements.state_dict()
                    found += [int(batch.numpy()[0]) for batch in ds.iterate(state=state)]
                    break
                except StopIteration:
                    break
        assert found == expected, handler.place
    assert 0 < refused < TRIES


@pytest.mark.parametrize("kind", [AlarmError, RuntimeError])
def test_a_writer_that_was_not_woken_is_woken_by_the_next_call(kind: type[Exception]) -> None:
    """An event loop that is closed raises RuntimeError too, and then nobody is to be woken."""

    class Loop:
        def __init__(self) -> None:
            self.calls: list[Callable[[], object]] = []
            self.raises: Exception | None = kind()

        def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
            error, self.raises = self.raises, None
            if error is not None:
                raise error
            self.calls.append(call)

        def is_closed(self) -> bool:
            return False

    loop: Any = Loop()
    signal_of_writer = LoopSignal(loop, threadsafe=True)
    signal_of_writer.armed = True
    with pytest.raises(kind):
        signal_of_writer.notify()
    signal_of_writer.notify()
    assert len(loop.calls) == 1


def same(x: int) -> int:
    return x


def test_what_a_handler_raises_right_after_a_thread_began_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
    start = getattr(threading, name)

    def begin(*args: Any, **named: Any) -> None:
        start(*args, **named)
        begun.wait()
        raise AlarmError

    begun = threading.Event()
    thread = threading.Thread(target=begun.set)
    monkeypatch.setattr(threading, name, begin)
    with pytest.raises(AlarmError):
        start_thread(thread)
    monkeypatch.undo()
    thread.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops what finalizers raise
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")
@pytest.mark.parametrize("build", [lambda ds: ds.map(same, 2), lambda ds: ds.map(awaited, 4).batch(3).unbatch()])
def test_nothing_is_lost_or_waited_for_where_real_signals_stop_a_private_loop(build: Callable[..., Any]) -> None:
    def handle(number: int, frame: object) -> None:
        raise AlarmError

    list(build(ad.Dataset.range(9)))  # a module that is being imported is not to be interrupted
    elements = iter(build(ad.Dataset.range(10**9)).with_options(ad.Options(placement="current")))
    found: list[int] = []
    failed = 0
    before = signal.signal(signal.SIGALRM, handle)
    try:
        for alarm in range(40):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + alarm % 19))
                # in C: no signal comes between an element and its place in the list; what a finalizer raises is dropped
                # Many more than come before the signal, and not so many that those take long which no signal stops.
                found.extend(islice(elements, 10_000))
            except AlarmError as error:
                failed += hasattr(error, "__notes__")  # taken for the failure of the element whose function ran
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    beyond = len(found) + 6  # a failure comes before the batch that its element would have been in
    while len(found) < beyond:
        try:
            found.append(next(elements))
        except AlarmError:  # of an element whose turn comes now
            failed += 1
    elements.close()
    assert found == sorted({*found})
    assert found[-1] + 1 == len(found) + failed


class Turn:
    """A lock that is held when a signal comes, before `with` would release it, as in Python 3.14."""

    def __init__(self, at: int) -> None:
        self.lock = threading.Lock()
        self.at = at
        self.acquire, self.release = self.lock.acquire, self.lock.release

    def __enter__(self) -> None:
        self.lock.acquire()
        self.at -= 1
        if self.at == 0:
            signal.raise_signal(signal.SIGUSR1)

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs signals that programs may use")
@pytest.mark.parametrize("at", [1, 2])
def test_a_signal_as_a_wait_begins_leaves_no_lock_held(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start of the pipeline, or in its first wait."""

    def handle(number: int, frame: object) -> None:
        raise AlarmError

    turn = Turn(at)
    monkeypatch.setattr(sigint, "OURS", {*sigint.OURS, "tests"})
    monkeypatch.setattr(LoopEngine, "turn", property(lambda self: turn, lambda self, value: None), raising=False)
    elements = iter(ad.Dataset.range(6).map(awaited, 2).with_options(ad.Options(placement="current")))
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(AlarmError):
            next(elements)
        assert turn.at == 0
        assert not turn.lock.locked()
        assert [*elements] == [*range(6)]
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="needs signals that programs may use")
def test_each_signal_that_was_kept_is_handled_though_a_handler_raises() -> None:
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        came.append(number)
        raise AlarmError

    numbers = [signal.SIGUSR1, signal.SIGUSR2]
    before = [signal.signal(number, handle) for number in numbers]
    try:
        with pytest.raises(AlarmError), DeferredHandlers():
            for number in numbers:
                signal.raise_signal(number)
            assert came == []
        assert came == numbers
        assert [signal.getsignal(number) for number in numbers] == [handle, handle]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
