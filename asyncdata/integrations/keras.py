"""A dataset for Keras's `fit`: a `PyDataset`, which Keras asks for batches by number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, Final

from asyncdata.elements.structure import map_leaves, shared_spec, spec_of
from asyncdata.errors import PlanError
from asyncdata.integrations.loader import Loader
from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.system.optional_packages import require

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset

__all__ = ("keras_dataset",)

NONE_LEFT: Final = object()

LOOKED_AT: Final = 8
"""How many batches show which axes of batches may have any size."""


class KerasBatches:
    """The methods of the class that `Dataset.to_keras` returns; the other base is Keras's class.

    Batches come in the dataset's order, one epoch after the other, whatever numbers Keras asks for: it draws these at
    random. Before Keras trains a model for the first time, it looks at one batch to learn its shape: then the epoch
    begins again. With JAX on an accelerator Keras asks for each batch while it trains with the one before.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        super().__init__()
        self.loader = Loader[Any](dataset)
        self._ahead = batches_ahead()
        self._start_from(self.loader.state_dict())

    def _start_from(self, state: Mapping[str, Any]) -> None:
        self._batches = iter(self.loader)
        self._began: Mapping[str, Any] | None = state  # until the first epoch has begun
        self._trained: Mapping[str, Any] | None = None  # the state without the batch that Keras has ahead
        self._given = 0

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch; `None` if it never ends, so that `fit` needs `steps_per_epoch`."""
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
        """Begin where the last epoch ended, or at the beginning again if Keras has only looked at one batch."""
        if self._began is not None and self._given:
            if self._given == 1 + self._ahead != self.num_batches:
                self.load_state_dict(self._began)
            self._began = None

    def on_epoch_end(self) -> None:
        """Count the last batch of the epoch."""
        self._trained = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the training, as a loader does: the batches that Keras has trained with.

        If Keras reads one batch ahead, the last batch of an epoch counts when the epoch has ended.
        """
        return self.loader.state_dict() if self._trained is None else dict(self._trained)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`: Keras's next epoch begins there, and has full length."""
        self.loader.load_state_dict(state)
        self._start_from(state)


def batches_ahead() -> int:
    """Return how many batches Keras has asked for besides the one that it trains with."""
    keras = require("keras", "to_keras()")
    return int(keras.backend.backend() == "jax" and require("jax", "to_keras()").default_backend() != "cpu")


@cache
def keras_class(base: type[Any]) -> type[Any]:
    return new_class("KerasDataset", (KerasBatches, base), exec_body=lambda names: names.update(__module__=__name__))


def keras_dataset(dataset: Dataset[Any]) -> Any:
    """Return a dataset for Keras's backend: a `PyDataset`, or with TensorFlow a `tf.data.Dataset`."""
    if dataset.cardinality() == UNKNOWN_CARDINALITY:
        raise PlanError(
            "Keras needs the number of batches in an epoch, which this dataset does not know: add "
            "assert_cardinality(n), or add repeat() and give fit() a steps_per_epoch"
        )
    keras = require("keras", "to_keras()")
    if keras.backend.backend() == "tensorflow":  # which reads PyDatasets ahead, several iterations at once
        return tensorflow_dataset(dataset)
    return keras_class(keras.utils.PyDataset)(dataset)


def tensorflow_dataset(dataset: Dataset[Any]) -> Any:
    """Return a dataset as one of TensorFlow, each iteration of which is an epoch.

    If the plan does not know how large batches are, the first ones are looked at: an axis in which they differ, such as
    that which `padded_batch` pads, may have any size. Layers need to know the others.
    """
    tf = require("tensorflow", "to_keras()")
    found = dataset.plan.signature
    if found is None and (first := dataset.head(LOOKED_AT)):
        found = shared_spec([*map(spec_of, first)])
    found = dataset.element_spec if found is None else found
    spec = map_leaves(lambda spec, _: tf.TensorSpec(spec.shape and (None, *spec.shape[1:]), spec.dtype), found)
    made = tf.data.Dataset.from_generator(dataset.iterate, output_signature=spec)
    return made.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))
