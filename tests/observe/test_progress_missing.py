"""What `progress` says where tqdm is not installed."""

from __future__ import annotations

import sys

import pytest

import asyncdata as ad


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ad.MissingDependencyError, match=r"pip install 'asyncdata\[observe\]'"):
        ad.Dataset.range(3).progress()
