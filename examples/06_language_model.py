"""The documents of this repository as input of a language model: bytes as tokens, in packed rows, in batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import asyncdata as ad

ROOT = Path(__file__).resolve().parents[1]
BEGIN, LENGTH = 256, 512  # a token before each paragraph; tokens in a row


def paragraphs(path):
    return ad.Dataset.from_iterable(Path(path).read_text(encoding="utf-8").split("\n\n"))


def tokenize(text):
    return np.concatenate([[BEGIN], np.frombuffer(text.encode(), np.uint8)]).astype(np.int32)


def train_on(rows):
    """Add the targets: the next token of the same paragraph."""
    tokens, segments = rows["inputs"], rows["inputs_segment_ids"]
    same = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return {**rows, "targets": np.roll(tokens, -1, axis=1), "loss_mask": np.pad(same, ((0, 0), (0, 1)))}


def pipeline(**how):
    files = ad.Dataset.from_iterable([str(ROOT / "LICENSE"), str(ROOT / "CONTRIBUTING.md"), str(ROOT / "README.md")])
    tokens = files.flat_map(paragraphs).map(tokenize).shuffle(1_000, seed=0)
    return tokens.pack_sequences(LENGTH, **how).batch(4).map(train_on)


if __name__ == "__main__":
    texts = [text for name in ("LICENSE", "CONTRIBUTING.md", "README.md") for text in paragraphs(ROOT / name)]
    given = sum(len(tokenize(text)) for text in texts)
    print("paragraphs", len(texts), "tokens", given)
    for how in ({"overlong": "split"}, {"strategy": "concat_then_split"}):
        batches = list(pipeline(**how))
        segments = np.concatenate([batch["inputs_segment_ids"] for batch in batches])
        print(how, "rows", len(segments), "filled", f"{(segments > 0).mean():.1%}", (segments > 0).sum() == given)
    print("one row for each paragraph would be filled", f"{given / len(texts) / LENGTH:.1%}")

    with pipeline(overlong="split").iterate() as batches:
        next(batches)
        state = batches.state_dict()
    rest = list(pipeline(overlong="split").iterate(state=state))
    whole = list(pipeline(overlong="split"))
    same = all(np.array_equal(one["inputs"], other["inputs"]) for one, other in zip(rest, whole[1:], strict=True))
    print("goes on in the middle of the rows:", same)
