"""What docs/formats.md and docs/migrate.md show is what happens."""

from __future__ import annotations

from tests.pages import check_examples


def test_the_examples_of_the_documentation() -> None:
    check_examples("formats.md")


def test_the_examples_for_those_who_come_from_another_loader() -> None:
    check_examples("migrate.md")
