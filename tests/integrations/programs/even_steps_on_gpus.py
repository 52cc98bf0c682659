"""One process, with a group that reduces tensors of a GPU alone, as NCCL does, and one that can do both."""

from __future__ import annotations

import torch
import torch.distributed as dist

import asyncdata as ad
from asyncdata.integrations.even_steps import device_of


class OnGpus(dist.ProcessGroup):
    def getBackendName(self):  # noqa: N802 - PyTorch's name
        return "on_gpus"


dist.Backend.register_backend("on_gpus", lambda store, rank, size, timeout: OnGpus(rank, size), devices=["cuda"])
dist.init_process_group("gloo")
kinds = {backend: dist.new_group([0], backend=backend) for backend in ("gloo", "on_gpus", "cpu:gloo,cuda:on_gpus")}
assert {backend: device_of(dist, group) for backend, group in kinds.items()} == {
    "gloo": "cpu",
    "on_gpus": "cuda",
    "cpu:gloo,cuda:on_gpus": "cpu",
}
assert device_of(dist, None) == "cpu"

loader = ad.Dataset.range(4).batch(2).loader()
if not torch.cuda.is_available():
    told = ""
    try:
        loader.even_steps(group=kinds["on_gpus"])
    except (AssertionError, RuntimeError) as error:  # PyTorch's: there is no GPU on which to make the number
        told = str(error)
    assert "CUDA" in told or "NVIDIA" in told, told
assert [batch.tolist() for batch in loader.even_steps(group=kinds["gloo"])] == [[0, 1], [2, 3]]
dist.destroy_process_group()
