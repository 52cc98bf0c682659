from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from tests.demo.conftest import BLUE, RED, record, write
from tests.marks import first_by_default

Demo = Callable[..., "subprocess.CompletedProcess[str]"]


def assert_one_line(text: str, *parts: str) -> None:
    assert len(text.splitlines()) == 1, text
    for part in parts:
        assert part in text


def table(output: str) -> dict[str, list[str]]:
    """The rows of the closing table by their name."""
    rows = [line.split() for line in output.splitlines() if line.startswith(("asyncdata  ", "naive  "))]
    return {name: values for name, *values in rows}


# ---------------------------------------------------------------------------------------------------------------------
# What it does


@pytest.mark.slow
def test_learns_from_shards_of_ones_own(demo: Demo, shards: Path) -> None:
    done = demo("--data", shards / "*.tfrecord", "--epochs", "3", "--batch-size", "16")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "2 labels" in done.stdout
    assert len(re.findall(r"epoch [123]/3   test accuracy", done.stdout)) == 6
    losses = re.findall(r"loss (\d+\.\d+)", done.stdout)
    assert len(losses) == 6
    assert losses[:3] == losses[3:], "both runs train on the same images in the same order"
    rows = table(done.stdout)
    assert rows.keys() == {"asyncdata", "naive"}
    assert rows["asyncdata"][-1] == "100.0%"
    assert "times as fast" in done.stdout
    timeline = Path(re.findall(r"What ran when in the last epoch: (.*)", done.stdout)[0]).read_text(encoding="utf-8")
    assert ">naive: " in timeline
    assert ">asyncdata: " in timeline
    assert ">train<title>" in timeline
    assert re.search(r"from a state of [\d,]+ bytes: the losses are those of a run that was not stopped", done.stdout)


@pytest.mark.slow
def test_naive_run_can_be_left_out(demo: Demo, shards: Path, tmp_path: Path) -> None:
    picture = tmp_path / "drawn" / "here.svg"
    done = demo("--data", shards / "*.tfrecord", "--epochs", "1", "--no-naive", "--timeline", picture)
    assert done.returncode == 0
    assert "naive: " not in picture.read_text(encoding="utf-8")
    assert table(done.stdout).keys() == {"asyncdata"}
    assert "naively" not in done.stdout


@pytest.mark.slow
def test_photographs_are_written_once_and_learned(demo: Demo, tmp_path: Path) -> None:
    done = demo("--epochs", "1", "--no-naive", "--cache", tmp_path / "here")
    assert done.returncode == 0, done.stderr
    assert float(table(done.stdout)["asyncdata"][-1].rstrip("%")) > 70
    assert len(list((tmp_path / "here").rglob("*.tfrecord"))) == 10
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_one_shard_and_a_batch_larger_than_it(demo: Demo, shards: Path) -> None:
    done = demo("--data", shards / "part-1.tfrecord", "--epochs", "1", "--batch-size", "1000")
    assert done.returncode == 0, done.stderr


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as version:
        main(["--version"])
    assert version.value.code == 0
    assert ad.__version__ in capsys.readouterr().out
    with pytest.raises(SystemExit) as help_:
        main(["demo", "--help"])
    assert help_.value.code == 0
    assert "--batch-size" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------------------
# What it says when it cannot


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epochs", "0"], "--epochs: a whole number of at least 1 is needed, got '0'"),
        (["--epochs", "many"], "got 'many'"),
        (["--batch-size", "-1"], "--batch-size"),
        (["--batch-size", "2.5"], "got '2.5'"),
        (["--data"], "--data: expected one argument"),
        (["--nonsense"], "--nonsense"),
        (["word"], "word"),
    ],
)
def test_bad_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["demo", *arguments])
    assert leaving.value.code == 2
    assert_one_line(capsys.readouterr().err, said)


def test_no_such_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["dance"])
    assert leaving.value.code == 2
    assert_one_line(capsys.readouterr().err)


def test_bad_arguments_as_a_user_sees_them(demo: Demo) -> None:
    done = demo("--epochs", "none")
    assert done.returncode == 2
    assert_one_line(done.stderr, "asyncdata demo: argument --epochs", "got 'none'")


@pytest.mark.slow
def test_missing_files(demo: Demo, tmp_path: Path) -> None:
    done = demo("--data", tmp_path / "nothing-*.tfrecord")
    assert done.returncode == 2
    assert_one_line(done.stderr, "nothing-*.tfrecord")


def test_cache_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    assert main(["demo", "--cache", str(blocker)]) == 2
    assert_one_line(capsys.readouterr().err, str(blocker))


@pytest.mark.parametrize("missing", first_by_default(["PIL", "sklearn", "threadpoolctl"]))
def test_missing_extra(missing: str, environment: dict[str, str]) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from asyncdata.__main__ import main; sys.exit(main(['demo']))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert_one_line(done.stderr, "pip install 'asyncdata[demo]'")


def test_damaged_record_names_file_and_offset(demo: Demo, shards: Path) -> None:
    damaged = shards / "part-1.tfrecord"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    done = demo("--data", shards / "*.tfrecord")
    assert done.returncode == 1
    assert_one_line(done.stderr, str(damaged))
    assert re.search(r"\b(byte|offset)\b.*\d", done.stderr)


def test_truncated_shard(demo: Demo, shards: Path) -> None:
    truncated = shards / "part-2.tfrecord"
    truncated.write_bytes(truncated.read_bytes()[:-5])
    done = demo("--data", shards / "*.tfrecord")
    assert done.returncode == 1
    assert_one_line(done.stderr, str(truncated))


@pytest.mark.parametrize(
    ("features", "status", "said"),
    [
        ({"label": 1}, 1, "image"),
        ({"image": b"not an image", "label": 1}, 1, "cannot be decoded"),
        ({"image": b"", "label": -3}, 1, "got -3"),
        ({"image": b""}, 1, "label"),
    ],
)
def test_records_of_another_kind(
    features: dict[str, object], status: int, said: str, capsys: pytest.CaptureFixture[str], shards: Path
) -> None:
    write(shards / "part-9.tfrecord", [ad.make_example(features)] * 5)
    assert main(["demo", "--data", str(shards / "*.tfrecord")]) == status
    assert_one_line(capsys.readouterr().err, said)


def test_a_single_label_teaches_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = write(tmp_path / "one.tfrecord", [record(RED, random) for _ in range(30)])
    assert main(["demo", "--data", str(path)]) == 2
    assert_one_line(capsys.readouterr().err, "at least two labels")


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_records(count: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = write(tmp_path / "few.tfrecord", [record(BLUE, random) for _ in range(count)])
    assert main(["demo", "--data", str(path)]) == 2
    assert_one_line(capsys.readouterr().err, "too few records")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_interrupt(environment: dict[str, str], shards: Path) -> None:
    command = [sys.executable, "-m", "asyncdata", "demo", "--data", str(shards / "*.tfrecord"), "--epochs", "1000000"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 2/" in line:
            break
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert_one_line(said, "interrupted")
