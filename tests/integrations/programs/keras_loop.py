"""A program that trains with Keras, with the backend of KERAS_BACKEND, and checks which batches it was given."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

import numpy as np

import asyncdata as ad

warnings.simplefilter("ignore")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

EPOCHS, STEPS = 3, 5


def batches_ahead():
    """Return how many batches Keras asks for besides the one that it trains with: one on accelerators of JAX."""
    if os.environ["KERAS_BACKEND"] != "jax":
        return 0
    import jax

    if "ahead" in sys.argv:
        jax.default_backend = lambda: "gpu"
    return int(jax.default_backend() != "cpu")


AHEAD = batches_ahead()


def make():
    return ad.Dataset.range(14).shuffle(seed=1).map(lambda x: (np.float32([x]), np.float32([x]))).batch(3)


def expected(epochs=EPOCHS):
    ds = make()
    return [x[:, 0].tolist() for _ in range(epochs) for x, _ in ds]


def noted(data):
    """Return a list in which each batch will be that a dataset gives to Keras, but for the first, which it looks at."""
    given = []
    kind = type(data)

    class Noting(kind):
        def __getitem__(self, index):
            batch = super().__getitem__(index)
            given.append(batch[0][:, 0].tolist())
            return batch

        def on_epoch_begin(self):
            if len(given) == 1 + AHEAD:  # a look
                given.clear()
            super().on_epoch_begin()

    data.__class__ = Noting
    return given


def train(data, **arguments):
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model.fit(data, verbose=0, **arguments)


def whole():
    data = make().to_keras()
    given = noted(data)
    train(data, epochs=EPOCHS)
    assert given == expected(), (given, expected())


def stopped(step):
    """Train up to a step, and go on with another dataset up to the end of all batches."""
    import keras

    data, states = make().to_keras(), []
    first = noted(data)

    class Stop(keras.callbacks.Callback):
        steps = 0

        def on_train_batch_end(self, batch, logs=None):
            self.steps += 1
            if self.steps == step:
                states.append(data.state_dict())
                raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        train(data, epochs=EPOCHS, callbacks=[Stop()])
    other = make().to_keras()
    other.load_state_dict(states[0])
    second = noted(other)
    train(other, epochs=EPOCHS - step // STEPS)
    del first[step:]  # with what Keras had ahead
    assert (first + second)[: EPOCHS * STEPS] == expected(), (first, second)


def counted():
    """Train on a dataset of TensorFlow, and compare how often each element came."""
    seen = []
    ds = make().map(lambda x, y: seen.extend(x[:, 0].tolist()) or (x, y))
    train(ds.to_keras(), epochs=EPOCHS)
    assert len(seen) >= EPOCHS * 14, seen


if __name__ == "__main__":
    import keras

    assert keras.backend.backend() == os.environ["KERAS_BACKEND"]
    if keras.backend.backend() == "tensorflow":
        counted()
    else:
        whole()
        for step in (1, 4, 7) if AHEAD else (1, 4, 5, 7):  # the last batch ahead counts when the epoch has ended
            stopped(step)
