"""Ray Train keeps the place of each worker in its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


def training(config: dict[str, Any]) -> None:
    """Train for some steps, report a checkpoint and fail; when started again, train to the end."""
    import tempfile

    from ray import train

    from asyncdata.checkpoint import load_shares, save_share

    context = train.get_context()
    world, rank = context.get_world_size(), context.get_world_rank()
    batches = ad.Dataset.range(40).shuffle(seed=1).shard(world, rank).map(int).batch(3).iterate()
    checkpoint = train.get_checkpoint() or (train.Checkpoint(config["saved"]) if config["saved"] else None)
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            batches.load_state_dict(load_shares(folder))
    steps = 99 if checkpoint else 2 + rank  # the second comes further
    seen = [batch.tolist() for _, batch in zip(range(steps), batches, strict=False)]
    name = f"{'rest' if checkpoint else 'first'}-{rank}-of-{world}.json"
    Path(config["folder"], name).write_text(json.dumps(seen))
    if checkpoint is None:
        with tempfile.TemporaryDirectory() as folder:
            save_share(folder, batches.state_dict())
            if rank == 0:
                Path(folder, "model.json").write_text("[1, 2, 3]")
            train.report({"steps": len(seen)}, checkpoint=train.Checkpoint.from_directory(folder))
        train.get_all_reported_checkpoints()  # waits until those of all workers are kept, which else are lost
        raise RuntimeError("stopped")


def test_ray_train_keeps_the_place_of_each_worker(ray: Any, tmp_path: Path) -> None:
    train = pytest.importorskip("ray.train")
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def run(name: str, workers: int, saved: str = "") -> Any:
        trainer = DataParallelTrainer(
            training,
            train_loop_config={"folder": str(tmp_path), "saved": saved},
            scaling_config=train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(
                name=name, storage_path=str(tmp_path / "ray"), failure_config=train.FailureConfig(max_failures=1)
            ),
        )
        return trainer.fit().checkpoint

    def seen(name: str, workers: int) -> list[Any]:
        return [json.loads((tmp_path / f"{name}-{rank}-of-{workers}.json").read_text()) for rank in range(workers)]

    saved = run("stopped", 2)
    with saved.as_directory() as folder:
        names = {path.name for path in Path(folder).iterdir()}
    assert names >= {"asyncdata-0-of-2.json", "asyncdata-1-of-2.json", "model.json"}
    first, rest = seen("first", 2), seen("rest", 2)
    for rank in range(2):
        share = ad.Dataset.range(40).shuffle(seed=1).shard(2, rank).map(int).batch(3)
        assert first[rank] + rest[rank] == [batch.tolist() for batch in share]
    run("fewer", 1, saved.path)
    (alone,) = seen("rest", 1)
    assert sorted(x for share in [*first, alone] for batch in share for x in batch) == [*range(40)]
