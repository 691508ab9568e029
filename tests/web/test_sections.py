"""What an adapter adds to the report of its run."""

from __future__ import annotations

from pathlib import Path

from autoresearch.core.ledger import Run
from autoresearch.web.sections import sections_of


def test_an_adapter_of_the_python_api_adds_nothing(tmp_path: Path) -> None:
    """A name that no package declares cannot be asked."""
    assert sections_of(tmp_path, Run(id="r", adapter="Mine")) == ()


def test_an_adapter_without_sections_adds_nothing(tmp_path: Path) -> None:
    """The protocol is optional."""
    assert sections_of(tmp_path, Run(id="r", adapter="ml")) == ()


def test_a_failing_adapter_is_a_sentence_in_the_report(tmp_path: Path) -> None:
    """What it refuses is shown where its sections would be; the rest of the report is not lost."""
    (section,) = sections_of(tmp_path, Run(id="r", adapter="ml", options={"nonsense": "1"}))
    assert section.title == "What ml adds is missing" and "nonsense" in section.text
