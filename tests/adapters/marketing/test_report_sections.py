"""What a campaign adds to the report of its run."""

from __future__ import annotations

from autoresearch.adapters.marketing.adapter import create_adapter
from autoresearch.adapters.marketing.report_sections import totals_section
from autoresearch.adapters.marketing.total import Totals
from autoresearch.core import OffersReportSections

KNOWN = Totals("r", 2, 0.3, 0.2, 0.15, -0.05, None, 1_234, 0.18, "simulated")


def test_the_adapter_offers_sections() -> None:
    """A report finds them by the protocol."""
    assert isinstance(create_adapter({}), OffersReportSections)


def test_the_three_totals_and_the_truth_are_told_apart() -> None:
    """Each total has its name, its interval where it has one, and what must be said of it."""
    section = totals_section(KNOWN)
    assert [(one.label, one.value) for one in section.estimates] == [
        ("as tested", 0.3),
        ("shrunk", 0.2),
        ("holdout", 0.15),
        ("truth", 0.18),
    ]
    assert (section.estimates[2].low, section.estimates[2].high) == (-0.05, None)
    assert "1,234 people since the last change" in section.estimates[2].note and "simulated" in section.text


def test_among_real_people_there_is_no_truth() -> None:
    """Without a holdout that converted its total is absent, and nothing is called simulated."""
    section = totals_section(Totals("r", 1, 0.3, 0.2, None, None, None, 0, None, ""))
    assert [one.value for one in section.estimates] == [0.3, 0.2, None]
    assert "simulated" not in section.text and section.text.startswith("1 kept change together")
