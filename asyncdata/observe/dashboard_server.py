"""The live dashboard: the server of a page that shows the numbers of `statistics/statistics` for running pipelines.

They are read twice a second (`monitored`) and kept for ten minutes (`history`).
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from os import PathLike
from typing import Any, Final

from asyncdata.errors import PlanError
from asyncdata.observe.dashboard_page import PAGE, POLICY, rendered, report_of
from asyncdata.observe.file_for_browsers import write_file
from asyncdata.observe.history import History, View, still_drawn
from asyncdata.observe.monitored import LatestStatistics, Monitored, monitor_of
from asyncdata.observe.other_pages import OtherPage, told_to_others
from asyncdata.observe.processes import Usage, UsageMeter
from asyncdata.observe.rank_pages import RankPages, rank_here
from asyncdata.observe.report_file import saved_at
from asyncdata.observe.timeline import timeline
from asyncdata.observe.trace import trace
from asyncdata.statistics.statistics import Statistics
from asyncdata.system import forks
from asyncdata.system.closing import Closable
from asyncdata.system.loopback import is_loopback, is_loopback_authority
from asyncdata.system.optional_packages import require
from asyncdata.system.rank import Rank, this_rank
from asyncdata.system.signal_handlers import start_thread

__all__ = ("PORT", "Dashboard", "dashboard", "show", "started")

PORT: Final = 8484
SECONDS: Final = 0.5
NEXT_PORTS: Final = 16
"""The ranks of one machine have ports that follow one another."""
USAGE_EACH: Final = 4
"""Processes are looked at less often, as that takes longer."""
RECORDED: Final = 2.0
MOST_SPANS: Final = 20_000
"""The seconds of the timeline, and the most pieces of work in it."""
MOST_SHOWN: Final = 8
END_TIMEOUT: Final = 2.0
EXTRA: Final = "'asyncdata[dashboard]'"
THREAD: Final = "asyncdata-dashboard"

log = logging.getLogger("asyncdata.dashboard")


class Watched(LatestStatistics):
    """A pipeline that is shown: its latest statistics, and samples of its pace and queues."""

    def __init__(self, number: int, monitor: Callable[[], Statistics], rank: str, local: bool) -> None:
        super().__init__(monitor)
        self.number = number
        self.rank = rank
        self.local = local
        self.history = History()

    def sample(self, now: float, used: int) -> None:
        """Read the statistics of the pipeline."""
        if self.monitor is not None:
            before = self.stats
            if (stats := self.look()) is not before or not self.history.count:  # others are read less often
                self.history.add(now, stats, used if self.local else 0)

    def view(self) -> View:
        return View(self.number, self.stats, self.history, self.rank, self.local)


class Dashboard(Closable):
    """A page that shows pipelines while they run, at `url`; `close` it, or leave the `with` block.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(9).iterate() as numbers:
    ...     with ad.observe.dashboard(numbers) as page:  # doctest: +SKIP
    ...         print(page.url)
    http://127.0.0.1:.../
    """

    def __init__(self, host: str, port: int) -> None:
        uvicorn = require("uvicorn", "the dashboard", EXTRA)
        self._meter = UsageMeter("the dashboard", EXTRA)
        app = self._app(local=is_loopback(host))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}/"
        self._new: deque[Callable[[], Statistics]] = deque()
        self._watched: list[Watched] = []
        self._past: list[View] = []
        self._others: list[OtherPage] = []
        self._ranks: RankPages | None = None
        self._count = 0
        self._html, self._readers = "", 0
        self._usage: Usage | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fresh = asyncio.Event()
        self._recording, self._over = asyncio.Lock(), asyncio.Event()
        self.closed = False
        logging.getLogger("uvicorn.error").addFilter(from_elsewhere)
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=1)
        config.load()
        config.get_loop_factory()  # these import their modules now, before the thread starts: see `forks.IMPORTING`
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name=THREAD, daemon=True)
        start_thread(self._thread)
        forks.register(self)
        atexit.register(self.close)

    def watch(self, monitored: Monitored | str) -> None:
        """Show another iterator too, or the pipelines of another process, by the URL of its dashboard.

        May be called in any thread. Of pipelines that are over the page shows the last eight.

        >>> import asyncdata as ad
        >>> with ad.observe.dashboard() as page:  # doctest: +SKIP
        ...     batches = iter(ad.Dataset.range(100).batch(10))
        ...     page.watch(batches)
        """
        if isinstance(monitored, str):
            self.watch_elsewhere([OtherPage(monitored)])
        else:
            self.watch_by(monitor_of("watch", monitored))

    def watch_by(self, monitor: Callable[[], Statistics]) -> None:
        """Show the pipeline of a monitor, unless it is shown already."""
        self._new.append(monitor)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page as it is now, with its curves, as one HTML file that needs no server. An existing file is
        overwritten; `PlanError` if `path` has another suffix than `.html`.

        >>> import asyncdata as ad
        >>> batches = iter(ad.Dataset.range(100).batch(10))
        >>> with ad.observe.dashboard(batches) as page:  # doctest: +SKIP
        ...     for batch in batches:
        ...         pass  # train
        ...     page.save("/tmp/run.html")
        """
        write_file("save", "HTML", path, self._report())

    def watch_elsewhere(self, pages: Sequence[OtherPage]) -> None:
        """Show the pipelines of other dashboards."""
        self._others += pages

    def watch_ranks(self, pages: RankPages) -> None:
        """Show the pipelines of the other ranks of this machine, if this is the lowest one."""
        pages.enter(self.url)
        self._ranks = pages

    # the server, in its thread

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._meter.close()

    def _app(self, local: bool) -> Any:
        applications = require("starlette.applications", "the dashboard", EXTRA)
        routing = require("starlette.routing", "the dashboard", EXTRA)
        responses = require("starlette.responses", "the dashboard", EXTRA)
        headers = {"content-security-policy": POLICY, "cache-control": "no-store", "x-content-type-options": "nosniff"}

        def answered_by(make: Callable[[], Any]) -> Any:
            async def answer(request: Any) -> Any:
                if local and not names_this_machine(request):
                    return responses.PlainTextResponse("only this machine is served\n", 403)
                reply: Any = make()
                return await reply if asyncio.iscoroutine(reply) else reply

            return answer

        async def recorded() -> Any:
            return html(await self._timeline(), headers=headers)

        html, events = responses.HTMLResponse, partial(responses.StreamingResponse, media_type="text/event-stream")
        answers: dict[str, Callable[[], Any]] = {
            "/": lambda: html(PAGE, headers=headers),
            "/events": lambda: events(self._events(), headers=headers),
            "/timeline": recorded,
            "/report.html": lambda: html(self._report(), headers=headers),
            "/pipelines.json": lambda: responses.JSONResponse(told_to_others(self._own()), headers=headers),
        }
        routes = [routing.Route(path, answered_by(make)) for path, make in answers.items()]
        return applications.Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncGenerator[None]:
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look())
            yield
            looking.cancel()

    async def _look(self) -> None:
        """Update the page, repeatedly."""
        for number in itertools.count():
            now = time.monotonic()
            if number % USAGE_EACH == 0:
                try:
                    self._usage = await asyncio.to_thread(self._meter.read)
                    await self._look_elsewhere()
                except RuntimeError:  # no thread begins any more, as the interpreter ends
                    return
            used = sum([one.memory for one in self._usage.processes]) if self._usage else 0
            self._add()
            for watched in self._watched:
                watched.sample(now, used)
            self._drop()
            if self._readers:
                self._draw()
            self._notify()
            await asyncio.sleep(SECONDS)

    async def _timeline(self) -> str:
        """Record for some seconds what runs, for one page at a time, and return it as a picture."""
        async with self._recording:
            with trace(MOST_SPANS) as found, suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), RECORDED)
        steps = [step for watched in self._watched for step in watched.stats.steps]
        order = dict.fromkeys([row for step in steps for row in (step.step, *[one.name for one in step.functions])])
        return await asyncio.to_thread(timeline, [("", found.bars(), found.seconds)], [*order])

    def _report(self) -> str:
        """Return the page as it is now, as a page without a server."""
        return report_of(self._views(), saved_at(), self._usage, self._past)

    def _draw(self) -> None:
        self._html = rendered(self._views(), self._usage, self._past)

    def _own(self) -> list[View]:
        return [watched.view() for watched in self._watched if watched.local]

    def _views(self) -> list[View]:
        return [watched.view() for watched in self._watched]

    async def _look_elsewhere(self) -> None:
        """Read the dashboards of other processes, all at once."""
        if self._ranks is not None:
            known = {page.url for page in self._others}
            found = [OtherPage(url) for url in await asyncio.to_thread(self._ranks.others)]
            self._others += [page for page in found if page.url not in known]
        for new in await asyncio.gather(*[asyncio.to_thread(page.read) for page in self._others]):
            for rank, monitor in new:
                self._show(monitor, rank, local=False)

    def _add(self) -> None:
        """Add the new pipelines."""
        while self._new:
            monitor = self._new.popleft()
            if all(one.monitor != monitor for one in self._watched):
                self._show(monitor, rank_in_words(), local=True)

    def _show(self, monitor: Callable[[], Statistics], rank: str, local: bool) -> None:
        self._count += 1
        self._watched.append(Watched(self._count, monitor, rank, local))

    def _drop(self) -> None:
        """Remove the oldest pipelines that have ended, if there are too many; only their curves remain."""
        over = [one for one in self._watched if one.monitor is None]
        for one in over[: max(0, len(self._watched) - MOST_SHOWN)]:
            self._watched.remove(one)
            self._past = still_drawn([*self._past, one.view()], time.monotonic())

    def _notify(self) -> None:
        """Wake the connections that show the page."""
        fresh, self._fresh = self._fresh, asyncio.Event()
        fresh.set()

    async def _events(self) -> AsyncGenerator[str]:
        """Yield server-sent events, each with the complete content of the page."""
        self._readers += 1
        try:
            self._draw()
            while not self.closed:
                fresh = self._fresh
                yield f"data: {json.dumps(self._html)}\n\n"
                await fresh.wait()
            yield "event: end\ndata: \n\n"
        finally:
            self._readers -= 1

    # the end

    def close(self) -> None:
        """End the server; may be called in any thread.

        >>> import asyncdata as ad
        >>> page = ad.observe.dashboard()  # doctest: +SKIP
        >>> page.close()  # doctest: +SKIP
        >>> page.closed  # doctest: +SKIP
        True
        """
        self._end()
        self._thread.join(END_TIMEOUT)

    async def aclose(self) -> None:
        """End the server without blocking the event loop.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> async def main():
        ...     async with ad.observe.dashboard() as page:  # calls `aclose` at its end
        ...         return page.closed
        >>> asyncio.run(main())  # doctest: +SKIP
        False
        """
        self._end()
        await asyncio.to_thread(self._thread.join, END_TIMEOUT)

    def _end(self) -> None:
        atexit.unregister(self.close)
        if self._ranks is not None and not self.closed:
            self._ranks.leave()
        self.closed = self._server.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over.set)
            self._loop.call_soon_threadsafe(self._notify)

    def disown(self) -> None:
        """Leave the server to the parent in a forked child."""
        self.closed = True
        self._socket.close()
        atexit.unregister(self.close)
        forks.never_finalize(self)


def from_elsewhere(record: logging.LogRecord) -> bool:
    """Return whether to log what uvicorn says: not that the dashboard's starts and ends, beside those of a service."""
    return record.threadName != THREAD or record.levelno >= logging.WARNING


def names_this_machine(request: Any) -> bool:
    """Return whether a request names this machine as its host: the name of another site may resolve to it."""
    return is_loopback_authority(", ".join(request.headers.getlist("host")))


def rank_in_words() -> str:
    """Return which of several processes this is; nothing if there is one."""
    found = known_rank()
    return f"rank {found.rank} of {found.world}" if found.world > 1 else ""


def known_rank() -> Rank:
    """Return this process's rank; the only one if there are no others."""
    try:
        return this_rank()
    except PlanError:
        return Rank(1, 0)


def dashboard(*iterators: Monitored | str, host: str = "127.0.0.1", port: int = 0) -> Dashboard:
    """Serve a page that shows what pipelines do while they run, and return it, with its `url` and `close`.

    It shows what limits each pipeline and what to change, how busy each step is now, pace, waiting and memory over ten
    minutes, progress, errors with their elements, also those that `ignore_errors` dropped, AUTOTUNE's choices, and what
    the machine and each process use. It does not keep an iterator alive. A `str` is the URL of the dashboard of another
    process, such as another rank, whose pipelines are shown too.

    Only this machine is served, unless you give another `host`: then everybody who reaches that address sees the names
    of the steps and the texts of exceptions. `port` 0 is any free port. `MissingDependencyError` without the extra
    `dashboard`. `Options(dashboard=True)` shows each epoch of a dataset.

    >>> import asyncdata as ad
    >>> batches = iter(ad.Dataset.range(100).batch(10))
    >>> with ad.observe.dashboard(batches) as page:  # doctest: +SKIP
    ...     print("see", page.url)
    ...     for batch in batches:
    ...         pass  # train
    see http://127.0.0.1:.../
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"dashboard(port=) must be a number from 0 to 65535, got {port!r:.80}")
    if not isinstance(host, str) or not set(host).isdisjoint("/@ "):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"dashboard(host=) must be a name or an address, as '127.0.0.1', got {host!r:.80}")
    monitors = [monitor_of("dashboard", one) for one in iterators if not isinstance(one, str)]
    others = [OtherPage(one) for one in iterators if isinstance(one, str)]
    page = Dashboard(host, port)
    for monitor in monitors:
        page.watch_by(monitor)
    page.watch_elsewhere(others)
    return page


SHARED: Final[dict[str, Dashboard]] = {}
"""The dashboards of `Options(dashboard=)`, by address: each stays until the process ends."""

SHARING: Final = forks.lock()


def show(where: str | bool, monitor: Callable[[], Statistics]) -> None:
    """Show a pipeline on the page at an address `host:port`; `True` is port 8484 here, or one that is free.

    Of several ranks of a run the first one of this machine has that page, which shows them all.
    """
    require("starlette.applications", "Options(dashboard=)", EXTRA)
    require("uvicorn", "Options(dashboard=)", EXTRA)
    address = f"127.0.0.1:{PORT}" if where is True else str(where)
    with SHARING:
        page = SHARED.get(address)
        if page is None or page.closed:
            page = SHARED[address] = started_here(address, where is True)
    page.watch_by(monitor)


def started_here(address: str, other: bool) -> Dashboard:
    """Start the page of this process, and log where it is: a warning, which is shown without a configuration too."""
    rank = known_rank()
    pages = RankPages.of(rank)
    if pages is not None and rank_here(rank.rank) > 0:
        page = Dashboard("127.0.0.1", 0)
        log.warning("rank %d's dashboard is at %s; that of the first rank here has it too", rank.rank, page.url)
    else:
        page = started(*host_and_port(address), other)
        log.warning("the dashboard is at %s", page.url)
    if pages is not None:
        page.watch_ranks(pages)
    return page


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def started(host: str, port: int, other: bool) -> Dashboard:
    """Start a dashboard at an address; if the port is in use, at one of the next or any `other` one, if allowed."""
    for one in [port, *range(port + 1, port + NEXT_PORTS)] if other else ():
        with suppress(OSError):
            return Dashboard(host, one)
    return Dashboard(host, 0 if other else port)
