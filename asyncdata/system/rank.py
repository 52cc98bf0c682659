"""The rank of this process, from the frameworks in use, else from the environment."""

from __future__ import annotations

import os
import sys
from typing import Any, Final, NamedTuple

from asyncdata.errors import PlanError

__all__ = ("Rank", "of_torch", "this_rank")

VARIABLES: Final = (
    ("WORLD_SIZE", "RANK"),  # torchrun, and most launchers
    ("SLURM_NTASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
)


class Rank(NamedTuple):
    """How many processes there are, and the number of this one."""

    world: int
    rank: int


def this_rank(method: str = "shard", names: str = "num_shards and index") -> Rank:
    """Return this process's rank, from torch.distributed or JAX if they are set up, else from the environment.

    `PlanError` if there is none: otherwise all processes would read everything without an error.
    """
    found = of_torch() or of_jax() or of_environment()
    if found is None:
        asked = ", ".join(" and ".join(pair) for pair in VARIABLES)
        raise PlanError(
            f"{method}() found no rank in torch.distributed, JAX or the environment ({asked} are not set); give {names}"
        )
    if not 0 <= found.rank < found.world:
        raise PlanError(f"this process has rank {found.rank} of {found.world}, which is impossible")
    return found


def of_torch() -> Rank | None:
    """Ask torch.distributed, if the program has set it up."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Rank(distributed.get_world_size(), distributed.get_rank())


def of_jax() -> Rank | None:
    """Ask JAX, if the program uses it on several hosts."""
    jax: Any = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return Rank(jax.process_count(), jax.process_index())


def of_environment() -> Rank | None:
    """Ask the variables that launchers set."""
    for world, index in VARIABLES:
        if world in os.environ and index in os.environ:
            try:
                return Rank(int(os.environ[world]), int(os.environ[index]))
            except ValueError:
                found = f"{world}={os.environ[world]!r}, {index}={os.environ[index]!r}"
                raise PlanError(f"numbers are needed in the environment, got {found}") from None
    return None
