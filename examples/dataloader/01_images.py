"""Images of three kinds, one of them rare: a WeightedRandomSampler, a collate function and workers, as with PyTorch.

The only line that is asyncdata's is the import; `--torch` takes PyTorch's DataLoader, for the same batches.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import Dataset, WeightedRandomSampler

if "--torch" in sys.argv:
    from torch.utils.data import DataLoader
else:
    from asyncdata.torch import DataLoader


class Images(Dataset):
    """Noisy images of 8 x 8 to 12 x 12 pixels, each with a bright row, column or diagonal: its label."""

    labels = [0] * 60 + [1] * 60 + [2] * 8

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        size = 8 + index % 5
        image = torch.rand(size, size) / 2  # drawn in the worker
        line = [image[index % size], image[:, index % size], image.diagonal()][self.labels[index]]
        line += 0.5
        return image, self.labels[index]


def collate(samples):
    """Pad the images of a batch with black pixels to one size."""
    images, labels = zip(*samples, strict=True)
    batch = torch.zeros(len(images), 1, 12, 12)
    for row, image in zip(batch, images, strict=True):
        row[0, : len(image), : len(image)] = image
    return batch, torch.tensor(labels)


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(800, 3))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    counts = torch.bincount(torch.tensor(Images.labels))
    sampler = WeightedRandomSampler([1 / counts[label].item() for label in Images.labels], 128)
    loader = DataLoader(Images(), 16, sampler=sampler, num_workers=2, collate_fn=collate)
    for epoch in range(2):
        pixels, drawn, total = 0.0, torch.zeros(3, dtype=torch.int64), 0.0
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pixels += images.double().sum().item()
            drawn += torch.bincount(labels, minlength=3)
            total += loss.item()
        print(f"epoch {epoch}: {drawn.tolist()} of each kind, pixels {pixels:.6f}, loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
