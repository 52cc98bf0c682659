"""Every test of a transformation leaves nothing behind."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def leaving_nothing(nothing_left: None) -> None:
    """Apply `nothing_left` to all tests here."""
