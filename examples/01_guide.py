"""TensorFlow's guide "Better performance with the tf.data API", with the import changed."""

from __future__ import annotations

import time

import numpy as np

import asyncdata as ad


class ArtificialDataset(ad.Dataset):
    def _generator(num_samples):  # noqa: N805 - as the guide has it
        time.sleep(0.03)  # opening the file
        for sample_idx in range(num_samples):
            time.sleep(0.015)  # reading data (line, record) from the file
            yield (sample_idx,)

    def __new__(cls, num_samples=3):
        return ad.Dataset.from_generator(
            cls._generator, output_signature=ad.TensorSpec(shape=(1,), dtype=np.int64), args=(num_samples,)
        )


def benchmark(title, dataset, num_epochs=2):
    start_time = time.perf_counter()
    for _ in range(num_epochs):
        for _sample in dataset:
            time.sleep(0.01)  # performing a training step
    print(f"{title:22} {time.perf_counter() - start_time:.3f} s")


def mapped_function(s):
    time.sleep(0.03)  # some hard pre-processing
    return s


def increment(x):
    return x + 1


benchmark("naive", ArtificialDataset())
benchmark("prefetch", ArtificialDataset().prefetch(ad.AUTOTUNE))
benchmark("sequential interleave", ad.Dataset.range(2).interleave(lambda _: ArtificialDataset()))
benchmark(
    "parallel interleave",
    ad.Dataset.range(2).interleave(lambda _: ArtificialDataset(), num_parallel_calls=ad.AUTOTUNE),
)
benchmark("sequential map", ArtificialDataset().map(mapped_function))
benchmark("parallel map", ArtificialDataset().map(mapped_function, num_parallel_calls=ad.AUTOTUNE))
benchmark("cache, 5 epochs", ArtificialDataset().map(mapped_function).cache(), 5)

fast_dataset = ad.Dataset.range(10000)
scalar, vectorized = fast_dataset.map(increment).batch(256), fast_dataset.batch(256).map(increment)
for title, dataset in (("scalar map", scalar), ("vectorized map", vectorized)):
    start_time = time.perf_counter()
    batches = [batch for _epoch in range(2) for batch in dataset]
    print(f"{title:22} {time.perf_counter() - start_time:.4f} s for {len(batches)} batches up to {batches[-1][-1]}")
