"""The error of one element is raised in its place and says where it came from; the other elements follow."""

from __future__ import annotations

import asyncdata as ad


def decode(text):
    return int(text)


texts = ["1", "2", "three", "4", "five", "6"]
ds = ad.Dataset.from_tensor_slices(texts).map(decode, num_parallel_calls=2)

with ds.iterate() as numbers:
    while True:
        try:
            print(next(numbers))
        except StopIteration:
            break
        except ValueError as error:
            print("ValueError:", error)
            print("  ", *error.__notes__)
