"""A small image classifier, in NumPy or in PyTorch: the consumer that the demonstration feeds."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asyncdata.demo.extra import require

__all__ = ("Classifier", "NumpyClassifier", "TorchClassifier", "new_classifier", "one_core")

Images: TypeAlias = "NDArray[np.uint8]"
Labels: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float32]"

TILE: Final = 8
HIDDEN: Final = 128
LEARNING_RATE: Final = 2e-3
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Classifier(Protocol):
    """What the training loop asks of a model. Images are uint8, batch x height x width x 3."""

    framework: str

    def step(self, images: Images, labels: Labels) -> float:
        """Train on one batch and return its loss."""
        ...

    def correct(self, images: Images, labels: Labels) -> int:
        """Return how many of `images` are given their own label."""
        ...


def new_classifier(classes: int) -> Classifier:
    """Return an untrained classifier, always the same one: in PyTorch where it is installed, else in NumPy."""
    return TorchClassifier(classes) if find_spec("torch") else NumpyClassifier(classes)


def one_core() -> AbstractContextManager[Any]:
    """Give NumPy one core for as long as a `with` block lasts.

    Its threads would spin between two steps, on the cores that decode the next batch. An accelerator does not.
    """
    return require("threadpoolctl").threadpool_limits(1)


class NumpyClassifier:
    """One convolution over 8 x 8 tiles, ReLU, the mean over all tiles, and a softmax, trained with Adam."""

    framework = "NumPy"

    def __init__(self, classes: int) -> None:
        random = np.random.default_rng(0)
        self.weights = [
            scaled_normal(random, TILE * TILE * 3, HIDDEN),
            np.zeros(HIDDEN, np.float32),
            scaled_normal(random, HIDDEN, classes),
            np.zeros(classes, np.float32),
        ]
        self.means = [np.zeros_like(weight) for weight in self.weights]
        self.squares = [np.zeros_like(weight) for weight in self.weights]
        self.steps = 0

    def step(self, images: Images, labels: Labels) -> float:
        """Train on one batch and return its loss."""
        tiles = cut_tiles(images)
        hidden, pooled, scores = self.forward(tiles, len(images))
        chances = softmax(scores)
        rows = np.arange(len(labels))
        loss = -float(np.log(chances[rows, labels] + EPSILON).mean())
        chances[rows, labels] -= 1
        self.descend(self.gradients(tiles, hidden, pooled, chances / np.float32(len(labels))))
        return loss

    def correct(self, images: Images, labels: Labels) -> int:
        """Return how many of `images` are given their own label."""
        _, _, scores = self.forward(cut_tiles(images), len(images))
        return int((scores.argmax(axis=1) == labels).sum())

    def forward(self, tiles: Floats, count: int) -> tuple[Floats, Floats, Floats]:
        """Return the activations of every tile, their mean for each of `count` images, and the scores."""
        w1, b1, w2, b2 = self.weights
        hidden = tiles @ w1
        hidden += b1
        np.maximum(hidden, 0, out=hidden)
        pooled = hidden.reshape(count, -1, HIDDEN).mean(axis=1)
        return hidden, pooled, pooled @ w2 + b2

    def gradients(self, tiles: Floats, hidden: Floats, pooled: Floats, errors: Floats) -> list[Floats]:
        """Return the gradient of the loss for each weight, given its gradient for the scores."""
        w2 = self.weights[2]
        each = len(tiles) // len(pooled)
        back = np.repeat(errors @ w2.T / np.float32(each), each, axis=0)
        back *= hidden > 0
        return [tiles.T @ back, back.sum(axis=0), pooled.T @ errors, errors.sum(axis=0)]

    def descend(self, gradients: list[Floats]) -> None:
        """Take one step of Adam."""
        self.steps += 1
        rate = LEARNING_RATE * np.sqrt(1 - BETA2**self.steps) / (1 - BETA1**self.steps)
        for weight, mean, square, gradient in zip(self.weights, self.means, self.squares, gradients, strict=True):
            mean[...] += (1 - BETA1) * (gradient - mean)
            square[...] += (1 - BETA2) * (gradient * gradient - square)
            weight[...] -= (rate * mean / (np.sqrt(square) + EPSILON)).astype(np.float32)


def scaled_normal(random: np.random.Generator, inputs: int, outputs: int) -> Floats:
    """Return initial weights whose outputs have about the variance of their inputs."""
    return (random.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32)


def cut_tiles(images: Images) -> Floats:
    """Return every 8 x 8 tile of every image as one row of numbers between -1 and 1."""
    count, height, width, _ = images.shape
    tiles = images.reshape(count, height // TILE, TILE, width // TILE, TILE, 3).transpose(0, 1, 3, 2, 4, 5)
    return tiles.reshape(-1, TILE * TILE * 3).astype(np.float32) / np.float32(127.5) - np.float32(1)


def softmax(scores: Floats) -> Floats:
    """Return the chances of the classes, row by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class TorchClassifier:
    """The same model as `NumpyClassifier`, in PyTorch, on one core."""

    framework = "PyTorch"

    def __init__(self, classes: int) -> None:
        self.torch: Any = import_module("torch")
        torch = self.torch
        torch.set_num_threads(1)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.convolution: Any = torch.nn.Conv2d(3, HIDDEN, TILE, stride=TILE)
            self.linear: Any = torch.nn.Linear(HIDDEN, classes)
        parameters = [*self.convolution.parameters(), *self.linear.parameters()]
        self.adam: Any = torch.optim.Adam(parameters, LEARNING_RATE, (BETA1, BETA2), EPSILON)

    def step(self, images: Images, labels: Labels) -> float:
        """Train on one batch and return its loss."""
        loss = self.torch.nn.functional.cross_entropy(self.scores(images), self.torch.tensor(labels))
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item()

    def correct(self, images: Images, labels: Labels) -> int:
        """Return how many of `images` are given their own label."""
        with self.torch.no_grad():
            return int((self.scores(images).argmax(dim=1).numpy() == labels).sum())

    def scores(self, images: Images) -> Any:
        """Return the scores of the classes."""
        pixels = self.torch.tensor(images).permute(0, 3, 1, 2).float() / 127.5 - 1
        return self.linear(self.torch.relu(self.convolution(pixels)).mean(dim=(2, 3)))
