"""A dataset as Keras's `fit` takes one: a `PyDataset`, which is asked for batches by number, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, Final

from asyncdata.elements.structure import map_leaves
from asyncdata.errors import PlanError
from asyncdata.integrations.loader import Loader
from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.runtime.optional_packages import require

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset

__all__ = ("keras_dataset",)

NONE_LEFT: Final = object()


class KerasBatches:
    """The methods of what `Dataset.to_keras` returns; Keras's class is its other base.

    Batches come one epoch after the other, whatever numbers Keras asks for: it draws those at random. Before it trains
    a model for the first time Keras looks at one batch, to learn its shape: then the epoch begins again. With JAX on an
    accelerator it asks for each batch while it trains with the one before.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        super().__init__()
        self.loader = Loader[Any](dataset)
        self._ahead = batches_ahead()
        self._go_on(self.loader.state_dict())

    def _go_on(self, state: Mapping[str, Any]) -> None:
        self._batches = iter(self.loader)
        self._began: Mapping[str, Any] | None = state  # until the first epoch has begun
        self._trained: Mapping[str, Any] | None = None  # the state without the batch that Keras has ahead
        self._given = 0

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch; `None` of one that never ends, for which `fit` needs `steps_per_epoch`."""
        return None if self.loader.dataset.cardinality() == INFINITE_CARDINALITY else len(self.loader)

    def __getitem__(self, index: int) -> Any:
        self._given += 1
        if self._ahead:
            self._trained = self.loader.state_dict()
        batch = next(self._batches, NONE_LEFT)
        if batch is NONE_LEFT:
            self._batches = iter(self.loader)
            batch = next(self._batches)
        return batch

    def on_epoch_begin(self) -> None:
        """Begin where the last epoch ended, or at the beginning again if Keras has only looked at it."""
        if self._began is not None and self._given:
            if self._given == 1 + self._ahead != self.num_batches:
                self.load_state_dict(self._began)
            self._began = None

    def on_epoch_end(self) -> None:
        """Count the last batch of the epoch."""
        self._trained = None

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the training, as a loader does: which batches Keras has trained with.

        Where Keras has a batch ahead, the last batch of an epoch counts when the epoch has ended.
        """
        return self.loader.state_dict() if self._trained is None else dict(self._trained)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where this stood when it gave `state`: Keras's next epoch begins there, and is as long as any."""
        self.loader.load_state_dict(state)
        self._go_on(state)


def batches_ahead() -> int:
    """Return how many batches Keras has asked for besides the one that it trains with."""
    keras = require("keras", "to_keras()")
    return int(keras.backend.backend() == "jax" and require("jax", "to_keras()").default_backend() != "cpu")


@cache
def keras_class(base: type[Any]) -> type[Any]:
    """Return the class of what `to_keras` returns."""
    return new_class("KerasDataset", (KerasBatches, base), exec_body=lambda names: names.update(__module__=__name__))


def keras_dataset(dataset: Dataset[Any]) -> Any:
    """Return a dataset as Keras's backend takes it: a `PyDataset`, or with TensorFlow a `tf.data.Dataset`."""
    if dataset.cardinality() == UNKNOWN_CARDINALITY:
        raise PlanError(
            "Keras must know how many batches an epoch has, and this dataset does not: say so with "
            "assert_cardinality(n), or give this dataset a repeat() and fit() a steps_per_epoch"
        )
    keras = require("keras", "to_keras()")
    if keras.backend.backend() == "tensorflow":  # which reads PyDatasets ahead, several iterations at once
        return tensorflow_dataset(dataset)
    return keras_class(keras.utils.PyDataset)(dataset)


def tensorflow_dataset(dataset: Dataset[Any]) -> Any:
    """Return a dataset as one of TensorFlow, each iteration of which is an epoch."""
    tf = require("tensorflow", "to_keras()")
    spec = map_leaves(lambda spec, _: tf.TensorSpec((None, *spec.shape[1:]), spec.dtype), dataset.element_spec)
    made = tf.data.Dataset.from_generator(dataset.iterate, output_signature=spec)
    return made.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))
