"""Ranks over a mixture that are killed, come back in other numbers, and have their weights changed in between."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from tests.marks import first_by_default
from tests.transforms.mixture_rank import SIZES

PROGRAM = Path(__file__).parent / "mixture_rank.py"


class Ranks(ExitStack):
    """Processes that go on at the newest complete checkpoint, and are killed."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__()
        self.folder = folder
        self.count = count
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        super().__enter__()
        environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])}
        for rank in range(self.count):
            command = [sys.executable, str(PROGRAM), str(self.folder), str(self.count), str(rank)]
            process = subprocess.Popen(
                command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self.processes.append(self.enter_context(process))
            self.callback(process.kill)
        return self

    def order(self, what: str, how: Any) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps([what, how]) + "\n")
            process.stdin.flush()

    def answers(self) -> list[Any]:
        return [json.loads(process.stdout.readline()) for process in self.processes if process.stdout is not None]

    def ask(self, what: str, how: Any) -> list[Any]:
        self.order(what, how)
        return self.answers()

    def read(self, count: int) -> list[tuple[str, int]]:
        return [(name, number) for answer in self.ask("read", count) for name, number in answer]


def checkpoint_of(folder: Path, number: int) -> Path:
    path = folder / f"checkpoint-{number}"
    path.mkdir()
    return path


@pytest.mark.parametrize("kills", first_by_default([2, 20]))
def test_killed_ranks_in_changing_numbers_with_changing_weights_give_each_element_once(
    kills: int, tmp_path: Path
) -> None:
    rng, kept, number = random.Random(kills), list[tuple[str, int]](), 0
    for turn in range(kills):
        with Ranks(tmp_path, (3, 2, 4)[turn % 3]) as ranks:
            found = list(kept)
            for _ in range(rng.randint(1, 3)):
                found += ranks.read(rng.randint(1, 4))
                ranks.ask("weights", {name: rng.choice([0.0, 1.0, 5.0]) + 0.1 for name in SIZES})
                found += ranks.read(rng.randint(0, 3))
                number += 1
                path = checkpoint_of(tmp_path, number)
                given = ranks.ask("save", str(path))
                counts = Counter(name for name, _ in found)
                assert [sum(row) for row in zip(*given, strict=True)] == [counts[name] for name in SIZES]
                (path / "done").touch()
                kept = list(found)
            ranks.read(rng.randint(0, 4))  # which the checkpoint has not, so that they come again
            number += 1
            ranks.order("save", str(checkpoint_of(tmp_path, number)))  # and are killed meanwhile
    with Ranks(tmp_path, 3) as ranks:
        kept += ranks.read(1000)
    assert Counter(kept) == Counter((name, place) for name, size in SIZES.items() for place in range(size))
