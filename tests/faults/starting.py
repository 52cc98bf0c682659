# Starts worker processes while another thread starts processes of its own, whose target is in this script.

from __future__ import annotations

import multiprocessing
import os
import sys
import threading

import asyncdata as ad
from asyncdata.executors.process.spawn import WorkerProcess


def mine(number: int) -> None:
    os.write(1, f"mine {number}\n".encode())


def start_mine(method: str, count: int) -> None:
    for number in range(count):
        process = multiprocessing.get_context(method).Process(target=mine, args=(number,))
        process.start()
        process.join()


def start_ours(over: threading.Event) -> None:
    while not over.is_set():
        process = WorkerProcess(target=abs, args=(1,))
        process.start()
        process.join()


if __name__ == "__main__":
    assert list(ad.Dataset.range(3).map(abs, 2, executor="process")) == [0, 1, 2]
    over = threading.Event()
    thread = threading.Thread(target=start_ours, args=(over,))
    thread.start()
    start_mine(sys.argv[1], int(sys.argv[2]))
    over.set()
    thread.join()
else:
    print("imported")
