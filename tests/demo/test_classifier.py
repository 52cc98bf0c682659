from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest

from asyncdata.demo.classifier import Classifier, NumpyClassifier, TorchClassifier, cut_tiles, new_classifier, softmax
from tests.demo.conftest import BLUE, RED, coloured_noise

frameworks = pytest.mark.parametrize(
    "new",
    [
        NumpyClassifier,
        pytest.param(
            TorchClassifier,
            marks=[
                pytest.mark.torch,
                pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is optional"),
            ],
        ),
    ],
)


def batch(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, size)
    return np.stack([coloured_noise((RED, BLUE)[label], random) for label in labels]), labels


@frameworks
def test_learns_colours(new: Callable[[int], Classifier]) -> None:
    classifier = new(2)
    losses = [classifier.step(*batch(32, seed)) for seed in range(20)]
    assert losses[-1] < losses[0] / 2
    assert classifier.correct(*batch(100, 99)) == 100


@frameworks
def test_starts_the_same_every_time(new: Callable[[int], Classifier]) -> None:
    images, labels = batch(16, 0)
    assert new(3).step(images, labels) == new(3).step(images, labels)


@frameworks
def test_does_not_change_its_input(new: Callable[[int], Classifier]) -> None:
    images, labels = batch(8, 1)
    before = images.copy(), labels.copy()
    new(2).step(images, labels)
    assert np.array_equal(images, before[0])
    assert np.array_equal(labels, before[1])


def test_gradients_are_those_of_the_loss() -> None:
    classifier = NumpyClassifier(3)
    classifier.weights = [weight.astype(np.float64) for weight in classifier.weights]
    images, _ = batch(4, 2)
    tiles, labels, rows = cut_tiles(images).astype(np.float64), np.array([0, 2, 1, 1]), np.arange(4)

    def loss() -> float:
        chances = softmax(classifier.forward(tiles, 4)[2])
        return -float(np.log(chances[rows, labels]).mean())

    hidden, pooled, scores = classifier.forward(tiles, 4)
    errors = softmax(scores)
    errors[rows, labels] -= 1
    for weight, gradient in zip(classifier.weights, classifier.gradients(tiles, hidden, pooled, errors / 4)):
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        before = weight[place]
        weight[place] = before + 1e-5
        above = loss()
        weight[place] = before - 1e-5
        below = loss()
        weight[place] = before
        assert (above - below) / 2e-5 == pytest.approx(gradient[place], rel=1e-3)


def test_tiles_are_cut_where_they_lie() -> None:
    images, _ = batch(2, 3)
    tiles = cut_tiles(images).reshape(2, 8, 8, 8, 8, 3)
    assert np.allclose((tiles[1, 2, 5] + 1) * 127.5, images[1, 16:24, 40:48], atol=1e-3)


def test_pytorch_is_used_where_it_is() -> None:
    assert new_classifier(2).framework == ("PyTorch" if find_spec("torch") else "NumPy")
