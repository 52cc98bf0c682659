"""The dashboard, served for real, and read by a client and by Chromium."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.observe import other_pages
from asyncdata.observe.dashboard_server import SHARED, started
from asyncdata.observe.rank_pages import RankPages
from asyncdata.system.rank import Rank
from tests.pages import DOCS
from tests.ports import reserved_ports

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytestmark = [pytest.mark.dashboard, pytest.mark.timeout(600)]


def fails_on_three(x: int) -> int:
    if x == 3:
        raise ValueError("three is <odd>")
    return sum(range(5000)) + x


def told(url: str, enough: Callable[[str], bool]) -> str:
    """What the page is told, as soon as that is enough."""
    page = ""
    with urllib.request.urlopen(f"{url}events", timeout=120) as events:
        for line in islice(events, 120):
            if line.startswith(b"data: ") and enough(page := json.loads(line[6:])):
                return page
    raise AssertionError(page)


def take(numbers: ad.DatasetIterator[Any], count: int) -> None:
    for _ in range(count):
        try:
            next(numbers)
        except ValueError:
            continue


@pytest.fixture
def own_page() -> Iterator[None]:
    """Close the pages of `Options(dashboard=)`, which else stay until the process ends."""
    yield
    for page in SHARED.values():
        page.close()
    SHARED.clear()


@pytest.mark.usefixtures("nothing_left")
def test_what_a_pipeline_does_is_told_until_it_ends() -> None:
    with ad.Dataset.range(40).map(fails_on_three).iterate() as numbers, ad.observe.dashboard(numbers) as page:
        assert page.url.startswith("http://127.0.0.1:")
        take(numbers, 10)
        shown = told(page.url, lambda html: ">10 of 40, 25%" in html)
        assert "three is &lt;odd&gt;; in map(fails_on_three)" in shown
        take(numbers, 30)
        assert list(numbers) == []
        assert 'class="pipeline ended"' in told(page.url, lambda html: ">40 of 40, 100%" in html)


def test_an_iterator_is_not_kept() -> None:
    numbers = iter(ad.Dataset.range(40))
    with ad.observe.dashboard(numbers) as page:
        next(numbers)
        reader = weakref.ref(numbers.monitor().__self__)  # type: ignore[attr-defined]
        del numbers
        assert ">1 of 40, 2%" in told(page.url, lambda html: 'class="pipeline closed"' in html)
        gc.collect()
        assert reader() is None


@pytest.mark.usefixtures("own_page")
@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_the_option_shows_each_epoch_on_one_page(placement: Any, caplog: pytest.LogCaptureFixture) -> None:
    with reserved_ports(1) as (port,):
        address = f"127.0.0.1:{port}"
        ds = ad.Dataset.range(6).with_options(ad.Options(placement=placement, dashboard=address))
        for _ in range(10):
            assert list(ds) == [*range(6)]
        (message,) = [record.getMessage() for record in caplog.records if record.name == "asyncdata.dashboard"]
        assert message == f"the dashboard is at http://{address}/"
        page = told(f"http://{address}/", lambda html: 'id="pipeline-10"' in html and "pipeline running" not in html)
    assert page.count('class="pipeline ended"') == 8
    assert 'id="pipeline-2"' not in page


def test_that_its_server_starts_and_ends_is_not_in_the_log_of_a_service(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    with ad.observe.dashboard() as page:
        told(page.url, lambda html: "Waiting for the first pipeline" in html)
    assert caplog.records == []
    logging.getLogger("uvicorn.error").info("Started server process")
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("own_page")
def test_a_port_in_use_is_an_error_where_it_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            ad.observe.dashboard(port=port)
        with pytest.raises(OSError, match="in use"):
            next(iter(ad.Dataset.range(3).with_options(ad.Options(dashboard=f"127.0.0.1:{port}"))))
        with started("127.0.0.1", port, other=True) as page:
            assert 0 < int(page.url.rstrip("/").rpartition(":")[2]) - port < 16


@pytest.mark.parametrize("path", ["", "events", "report.html", "pipelines.json", "timeline"])
def test_a_page_elsewhere_whose_name_leads_here_is_refused(path: str) -> None:
    with ad.observe.dashboard() as page:
        request = urllib.request.Request(page.url + path, headers={"Host": "elsewhere.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=120)
        with refused.value as reply:
            assert reply.code == 403


def test_a_forked_child_leaves_the_page_to_its_parent() -> None:
    program = """
import os, urllib.request, warnings
import asyncdata as ad
warnings.simplefilter("ignore")
with ad.observe.dashboard() as page:
    urllib.request.urlopen(page.url, timeout=120).close()
    child = os.fork()
    if child == 0:
        with ad.observe.dashboard() as own:
            assert own.url != page.url
            urllib.request.urlopen(own.url, timeout=120).close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    urllib.request.urlopen(page.url, timeout=120).close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_pipelines_of_other_processes_are_shown_until_they_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import sys
import asyncdata as ad
with ad.Dataset.range(40).batch(4).iterate() as batches, ad.observe.dashboard(batches) as page:
    next(batches)
    print(page.url, flush=True)
    sys.stdin.read()
"""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setattr(other_pages, "MOST_FAILURES", 1)
    with subprocess.Popen(
        [sys.executable, "-c", program], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        url = other.stdout.readline().strip()
        monkeypatch.delenv("RANK")
        numbers = ad.Dataset.range(6).iterate()
        with numbers, ad.observe.dashboard(numbers, url) as page:
            shown = told(page.url, lambda html: "rank 3 of 8, range(40)" in html)
            assert "1 of 10, 10%" in shown
            assert shown.index('id="overview"') < shown.index("<details")
            other.communicate("")
            told(page.url, lambda html: 'class="pipeline no-answer"' in html)


RANK = """
import sys
import asyncdata as ad
with ad.Dataset.range(40).batch(4).with_options(ad.Options(dashboard=sys.argv[1])).iterate() as batches:
    next(batches)
    from asyncdata.observe.dashboard_server import SHARED
    print(SHARED[sys.argv[1]].url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def ranks(folder: Path, address: str, count: int) -> Iterator[list[str]]:
    """Start the ranks of a run as a launcher does, the last one first, and return the URLs of their pages."""
    rendezvous = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", "TMPDIR": str(folder)}
    with ExitStack() as stack:
        urls: list[str] = []
        for rank in reversed(range(count)):
            environment = {**os.environ, **rendezvous, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = subprocess.Popen(
                [sys.executable, "-c", RANK, address],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            stack.enter_context(process)
            stack.callback(process.communicate, "")
            assert process.stdout is not None
            urls.append(process.stdout.readline().strip())
        yield urls[::-1]


def test_the_first_ranks_page_shows_all_ranks_of_a_run_on_this_machine(tmp_path: Path) -> None:
    with reserved_ports(1) as (port,), ranks(tmp_path, f"127.0.0.1:{port}", 3) as urls:
        assert urls[0] == f"http://127.0.0.1:{port}/"
        shown = told(urls[0], lambda html: all(f"rank {rank} of 3, range(40)" in html for rank in range(3)))
        assert shown.count("<span>1 of 10, 10%") == 3
        assert [*re.findall(r'data-open="(.)"', shown)] == ["1", "0", "0"]
        assert re.findall(r'<a href="#pipeline-.">.: rank (.) of 3', shown) == ["0", "1", "2"]
        assert "<td>3 ranks</td><td>running</td>" in shown
        alone = told(urls[1], lambda html: "rank 1 of 3" in html)
        assert "rank 0 of 3" not in alone
        assert len(list(tmp_path.glob("asyncdata-dashboards-*/*.json"))) == 3
    assert list(tmp_path.glob("asyncdata-dashboards-*/*")) == []


def test_only_running_ranks_of_this_machine_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    first, second = RankPages.of(Rank(4, 0)), RankPages.of(Rank(4, 1))
    assert first is not None
    assert second is not None
    first.enter("http://127.0.0.1:1/")
    second.enter("http://127.0.0.1:2/")
    assert (first.others(), second.others()) == (["http://127.0.0.1:2/"], [])
    own = json.loads(second.told)
    for wrong in (
        {**own, "began": own["began"] - 60},  # a process that is gone, whose number another one has
        {**own, "url": "http://10.0.0.1:2/"},
        {**own, "pid": "x"},
        [],
    ):
        second.path(1).write_text(json.dumps(wrong))
        assert first.others() == []
    first.leave()
    second.leave()
    assert not first.path(0).exists()
    assert second.path(1).exists()  # as another process has it now
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "two")
    other = RankPages.of(Rank(4, 0))
    assert other is not None
    assert other.path(0) != first.path(0)
    first.folder.chmod(0o755)
    assert RankPages.of(Rank(4, 0)) is None  # others could tell it anything
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert RankPages.of(Rank(4, 0)) is None
    assert RankPages.of(Rank(1, 0)) is None


@pytest.mark.parametrize("wrong", ["127.0.0.1:8484", "file:///etc/passwd", "http://", ""])
def test_what_is_no_url_of_a_page_is_refused(wrong: str) -> None:
    with pytest.raises(ad.PlanError, match="the URL of another dashboard must be"):
        ad.observe.dashboard(wrong)


def test_the_command_reads_a_pipeline_and_saves_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "pipeline.py").write_text("import asyncdata as ad\nds = ad.Dataset.range(60).batch(2)\n")
    saved = tmp_path / "run.html"
    command = ["dashboard", f"{tmp_path}/pipeline.py:ds", "--seconds", "60", "--port", "0", "--report", str(saved)]
    assert main(command) == 0
    assert re.match(r"the dashboard is at http://127.0.0.1:\d+/, until Ctrl\+C\nsaved in ", capsys.readouterr().out)
    assert "<title>asyncdata</title>" in saved.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def chromium() -> str:
    """Where Chromium is; where it is not, it is installed from the system's packages."""
    names = ("chromium", "chromium-browser", "google-chrome")
    if not any(map(shutil.which, names)):
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            pytest.skip("install Chromium")
        for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "-q", *command], check=True, stdout=subprocess.DEVNULL)
    return next(filter(None, map(shutil.which, names)))


@pytest.fixture
def browser_page(chromium: str) -> Iterator[Any]:
    """A page of a browser that complains of nothing, and asks nobody but this machine."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=1200_000)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(60_000)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        asked: list[str] = []
        yield page
        browser.close()
    assert [text for text in complaints if "ERR_" not in text] == []  # the server is gone in the end
    assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:", "file:"))] == []


CONTRASTS = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => numbers(colour).slice(0, 3)
    .map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((numbers(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility() &&
    [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  return texts.map((one) => {
    const style = getComputedStyle(one);
    const own = one.closest("svg") ? style.fill : style.color;
    const [dark, bright] = [light(own), light(behind(one))].sort((a, b) => a - b);
    return [(bright + 0.05) / (dark + 0.05), one.textContent.trim().slice(0, 40)];
  });
}"""


def check_readable(browser_page: Any) -> None:
    """All text stands out from what is behind it, and nothing is wider than the page: light, dark, and on a phone."""
    wide = {"width": 1280, "height": 900}
    for scheme, size in (("light", wide), ("dark", wide), ("dark", {"width": 420, "height": 900})):
        browser_page.emulate_media(color_scheme=scheme)
        browser_page.set_viewport_size(size)
        contrasts = browser_page.evaluate(CONTRASTS)
        assert len(contrasts) > 40
        assert [found for found in contrasts if found[0] < 4.5] == []
        assert browser_page.evaluate("document.documentElement.scrollWidth") == size["width"]


OUTSIDE = """() => {
  const edge = document.rootElement.viewBox.baseVal;
  return [...document.querySelectorAll("text")].filter((one) => {
    const box = one.getBBox();
    return box.x < edge.x || box.x + box.width > edge.x + edge.width;
  }).map((one) => one.textContent);
}"""


@pytest.mark.parametrize("picture", sorted(DOCS.glob("*.svg")), ids=lambda path: path.stem)
def test_no_label_of_a_picture_of_the_documentation_is_cut(browser_page: Any, picture: Path) -> None:
    browser_page.goto(picture.as_uri())
    assert browser_page.evaluate("document.querySelectorAll('text').length") > 3
    assert browser_page.evaluate(OUTSIDE) == []


NAMELESS = """() => {
  const named = (one) => one.getAttribute("aria-label") || one.textContent.trim();
  const spoken = [...document.querySelectorAll("a, summary, [tabindex], [role=img], [role=region]")];
  const silent = [...document.querySelectorAll("svg:not([role=img]):not([aria-hidden=true])")];
  return [...spoken.filter((one) => !named(one)), ...silent].map((one) => one.outerHTML.slice(0, 80));
}"""


def check_spoken(browser_page: Any) -> None:
    """All that has a meaning has a name, headings skip no level, and each control is reached by the key Tab."""
    assert browser_page.evaluate(NAMELESS) == []
    levels = [
        int(one[1]) for one in browser_page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(h => h.tagName)")
    ]
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    controls = browser_page.locator("a:visible, summary:visible, [tabindex='0']:visible").count()
    browser_page.evaluate("document.activeElement.blur()")
    reached = set[str]()
    for _ in range(controls):
        browser_page.keyboard.press("Tab")
        reached.add(browser_page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert len(reached - {""}) == controls


def test_a_browser_shows_steps_numbers_bottleneck_and_the_end(browser_page: Any, tmp_path: Path) -> None:
    ds = ad.Dataset.range(100_000).map(fails_on_three, num_parallel_calls=2).batch(2).prefetch(4)
    with ds.iterate() as batches:
        with ad.observe.dashboard(batches) as page:
            browser_page.goto(page.url)
            browser_page.wait_for_selector("section.not-begun")
            take(batches, 200)
            browser_page.wait_for_selector("section.running")
            assert [*browser_page.locator(".step h4").all_text_contents()] == [
                step.step for step in batches.stats().steps
            ]
            browser_page.locator("dd", has_text="200").first.wait_for()
            browser_page.locator("summary", has_text="All figures").press("Enter")  # with the keyboard
            take(batches, 1000)
            browser_page.locator("dd", has_text="1,200").first.wait_for()
            assert (
                browser_page.evaluate("document.activeElement.id") == "figures-1"
            )  # the page is updated, not replaced
            assert browser_page.locator("table").last.is_visible()
            assert len(browser_page.locator(".limit").text_content()) > 20
            assert "running" in browser_page.locator("[aria-live]").text_content()
            assert "three is <odd>; in map(fails_on_three)" in browser_page.locator(".errors li").first.text_content()
            browser_page.locator("figure svg[role=img]").nth(2).wait_for()
            assert browser_page.locator(".machine").text_content().startswith("This machine: ")
            assert browser_page.locator("#gone").is_hidden()
            check_readable(browser_page)
            check_spoken(browser_page)
            browser_page.locator("summary", has_text="Timeline").press("Enter")
            browser_page.wait_for_function("document.querySelector('#timeline')?.open")
            take(batches, 100)
            browser_page.locator("#timeline svg text", has_text="map(fails_on_three").first.wait_for()
            page.save(tmp_path / "run.html")
        browser_page.locator("#gone", has_text="The program has ended").wait_for()
        assert browser_page.locator(".state").text_content() == "ended"
        assert browser_page.locator("text=/ left$| now$/").count() == 0
        assert browser_page.locator("header a").is_hidden()
    browser_page.goto((tmp_path / "run.html").as_uri())
    assert browser_page.locator(".step h4").count() == 4
    assert browser_page.locator("figure").count() == 3
