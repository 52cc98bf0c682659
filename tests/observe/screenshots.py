"""Make the pictures of the dashboard in docs/: `python -m tests.observe.screenshots [FOLDER] [SECONDS]`.

It needs the extras `dashboard-test` and `demo`, and Chromium.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator
from asyncdata.observe.dashboard_server import SHARED

__all__ = ("main",)

SIZES = (("dashboard", "light", 1280), ("dashboard-dark", "dark", 1280), ("dashboard-phone", "light", 420))


def write_photos(folder: Path, count: int) -> None:
    """Write JPEG files, of which one in 40 is damaged."""
    waves = np.add.outer(np.arange(240), np.arange(320))
    folder.mkdir()
    for number in range(count):
        pixels = np.stack([(waves * (number % 7 + place)) % 256 for place in range(3)], axis=-1).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        content = file.getvalue()
        (folder / f"{number:04}.jpg").write_bytes(content[: 100 if number % 40 == 7 else None])


def decode(name: Any) -> Any:
    return np.asarray(Image.open(os.fsdecode(name)).resize((160, 160)))


def crop(image: Any) -> Any:
    return image[8:152, 8:152]


def flip(image: Any) -> Any:
    return np.ascontiguousarray(image[:, ::-1])


def normalise(image: Any) -> Any:
    return image / np.float32(255)


def pipeline(folder: Path) -> ad.Dataset[Any]:
    """Photos of two folders, one decoded in processes and one in threads, without those that are damaged."""
    photos = ad.Dataset.list_files(f"{folder}/photos/*", seed=0).repeat(200)
    drawings = ad.Dataset.list_files(f"{folder}/drawings/*", seed=0).repeat(200)
    datasets = {
        "photos": photos.map(decode, num_parallel_calls=2, executor="process"),
        "drawings": drawings.map(decode, num_parallel_calls=ad.AUTOTUNE),
    }
    mixed = ad.Dataset.sample_from_datasets(datasets, {"photos": 0.8, "drawings": 0.2}, seed=1)
    images = mixed.ignore_errors().map(crop).map(flip).map(normalise)
    batches = images.shuffle(256, seed=2).batch(32, drop_remainder=True).assert_cardinality(2400)
    return batches.prefetch_to_device(Accelerator())


def main(folder: str = "docs", seconds: str = "75") -> None:
    """Read the pipeline for so many seconds in a process of its own, and take the pictures while it runs."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    command = [sys.executable, "-m", "tests.observe.screenshots", "--train"]
    with (
        subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training,
        sync_playwright() as playwright,
    ):
        assert training.stdout is not None
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take_pictures(browser, training.stdout.readline().strip(), Path(folder), float(seconds))
        training.communicate("")
        picture_of_ranks(browser, Path(folder), float(seconds) / 4)


def picture_of_ranks(browser: Any, folder: Path, seconds: float) -> None:
    """Start three ranks as a launcher does, and write a picture of the page of the first one."""
    with ExitStack() as stack:
        url = ""
        run = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29513"}
        for rank in ("2", "1", "0"):
            command = [sys.executable, "-m", "tests.observe.screenshots", "--rank"]
            environment = {**os.environ, **run, "RANK": rank}
            one = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            stack.enter_context(one)
            stack.callback(one.communicate, "")
            assert one.stdout is not None
            url = one.stdout.readline().strip()
        shown = browser.new_page(viewport={"width": 1280, "height": 640})
        shown.goto(url)
        shown.wait_for_timeout(1000 * seconds)
        save(shown.screenshot(), folder / "dashboard-ranks.png")


def busy(number: int) -> int:
    return sum(range(20_000)) + number


def train_rank() -> None:
    """Read a share of the numbers with a step of 20 ms for each batch, until standard input ends."""
    ds = ad.Dataset.range(2_000_000).shard().map(busy, num_parallel_calls=2).batch(32)
    with ds.with_options(ad.Options(dashboard=True)).iterate() as batches:
        next(batches)
        print(SHARED["127.0.0.1:8484"].url, flush=True)
        read_until_told(batches, 0.02)


def train() -> None:
    """Read batches with a step of 30 ms after each, until standard input ends."""
    with TemporaryDirectory() as made:
        for part in ("photos", "drawings"):
            write_photos(Path(made) / part, 200)
        with pipeline(Path(made)).iterate() as batches, ad.observe.dashboard(batches) as page:
            print(page.url, flush=True)
            read_until_told(batches, 0.03)


def read_until_told(batches: Any, step: float) -> None:
    """Read batches, with a training step after each, until standard input ends."""
    stop = threading.Thread(target=sys.stdin.read)
    stop.start()
    while stop.is_alive():
        next(batches)
        time.sleep(step)


def take_pictures(browser: Any, url: str, folder: Path, seconds: float) -> None:
    """Write a picture of each size."""
    shown = browser.new_page()
    shown.goto(url)
    shown.wait_for_timeout(1000 * seconds)
    for name, scheme, width in SIZES:
        shown.emulate_media(color_scheme=scheme)
        shown.set_viewport_size({"width": width, "height": 900})
        shown.wait_for_timeout(1000)
        end = shown.locator(".charts" if width > 600 else ".limits").bounding_box()
        height = end["y"] + end["height"] + shown.evaluate("scrollY") + 24
        clip = {"x": 0, "y": 0, "width": width, "height": height}
        save(shown.screenshot(full_page=True, clip=clip), folder / f"{name}.png")
    shown.set_viewport_size({"width": 1280, "height": 900})
    shown.locator("#timeline summary").click()
    shown.locator("#timeline svg").wait_for()
    shown.emulate_media(color_scheme="light")
    save(shown.locator("#timeline").screenshot(), folder / "dashboard-timeline.png")


def save(picture: bytes, path: Path) -> None:
    """Write a picture with few colours, which makes it small."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    roles = {"--train": train, "--rank": train_rank}
    roles.get(" ".join(sys.argv[1:]), partial(main, *sys.argv[1:]))()
