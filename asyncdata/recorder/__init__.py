"""The recorder: where elements came from, which were delivered in which step, and the same elements once more."""

from __future__ import annotations

from asyncdata.recorder.locations import records_of, words_of_record
from asyncdata.recorder.replay import Replay, check_origin, replayed

__all__ = ("Replay", "check_origin", "records_of", "replayed", "words_of_record")
