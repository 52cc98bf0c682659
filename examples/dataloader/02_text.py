"""Lines of text from an iterable dataset that its workers divide among them: bytes of which the next one is learnt.

The only line that is asyncdata's is the import; `--torch` takes PyTorch's DataLoader, for the same batches.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import IterableDataset, get_worker_info

if "--torch" in sys.argv:
    from torch.utils.data import DataLoader
else:
    from asyncdata.torch import DataLoader

TEXT = [f"{number} times {number} is {number * number}." for number in range(96)]


class Lines(IterableDataset):
    """The lines as tensors of bytes, some of which are masked: each worker has every n-th line."""

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for line in TEXT[first::step]:
            codes = torch.tensor(list(line.encode()))
            yield torch.where(torch.rand(len(codes)) < 0.1, 0, codes)


def collate(lines):
    return torch.nn.utils.rnn.pad_sequence(lines, batch_first=True)


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(128, 16), torch.nn.Linear(16, 128))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader = DataLoader(Lines(), 8, num_workers=2, collate_fn=collate)
    for epoch in range(2):
        check, total, batches = 0, 0.0, 0
        for codes in loader:
            loss = torch.nn.functional.cross_entropy(model(codes[:, :-1]).transpose(1, 2), codes[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batches += 1
            check = (check * 31 + int((codes * torch.arange(1, codes.shape[1] + 1)).sum())) % 1_000_003
            total += loss.item()
        print(f"epoch {epoch}: {batches} batches, checksum {check}, loss {total / batches:.4f}")


if __name__ == "__main__":
    main()
