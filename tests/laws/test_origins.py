"""An element's origin says where it came from: replayed from it, the element is the same, in any order of asking."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.pipelines import Pipeline, pipelines
from tests.reference import failed, plain
from tests.running import MOST


def read(elements: Any, origins: list[Any] | None = None) -> list[Any]:
    """Everything that is delivered, errors in their places; and the origin of each."""
    found: list[Any] = []
    for _ in range(MOST):
        try:
            found.append(plain(next(elements)))
        except StopIteration:
            break
        except Exception as error:
            found.append(failed(error))
        if origins is not None:
            origins.append(json.loads(json.dumps(elements.origin())))
    return found


@given(pipe=pipelines(), data=st.data())
def test_each_element_replays_equal_from_its_origin(pipe: Pipeline, data: st.DataObject) -> None:
    origins: list[Any] = []
    with pipe.build().iterate() as elements:
        found = read(elements, origins)
    if not found:
        return
    asked = data.draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=12))
    with pipe.build().replay([origins[place] for place in asked]) as again:
        assert read(again) == [found[place] for place in asked]
