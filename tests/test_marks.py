"""Modules without tests that `-m` asks for are not imported."""

from __future__ import annotations

import pytest

from tests.marks import asked_for, markers_in


@pytest.mark.parametrize(
    ("expression", "given", "asked"),
    [
        ("", "", True),
        ("not slow", "", True),
        ("not slow", "slow", True),  # not each of its tests
        ("ray", "", False),
        ("ray", "slow web", False),
        ("ray", "ray slow", True),
        ("ray and not slow", "ray slow", True),
        ("slow and not torch", "torch", False),
        ("(torch or ray) and slow", "ray", False),
        ("(torch or ray) and slow", "ray slow", True),
        ("asyncio", "", True),  # a marker of others
        ("timeout(seconds=3)", "", True),
        ("not", "", True),  # pytest will say what is wrong
    ],
)
def test_what_an_expression_asks_for(expression, given, asked):
    assert asked_for(expression, frozenset(given.split())) is asked


def test_markers_stand_in_the_text_of_a_module(tmp_path):
    module = tmp_path / "test_one.py"
    module.write_text("pytestmark = [pytest.mark.web, pytest.mark.usefixtures('x')]\n@first_by_default\n@given(x)\n")
    assert markers_in(module) == {"web", "slow", "laws"}
