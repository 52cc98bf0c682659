"""What docs/language-models.md shows is what happens."""

from __future__ import annotations

from tests.pages import check_examples


def test_the_examples_of_the_documentation() -> None:
    check_examples("language-models.md")
