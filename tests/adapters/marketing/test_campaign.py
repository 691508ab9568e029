"""campaign.toml: every key is typed, known and within sense, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.adapters.marketing.campaign import Campaign, Guardrail, typed_table
from autoresearch.core import Direction, MetricKind, UsageError
from tests.adapters.marketing.campaigns import campaign, edit, write_campaign


def test_a_campaign_is_read_with_types(tmp_path: Path) -> None:
    """What campaign.toml says arrives as values that cannot be misread."""
    read = campaign(tmp_path, "email")
    assert (read.kind, read.language, read.goal.event) == ("email", "en", "positive_reply")
    assert (read.metric.name, read.metric.kind, read.metric.direction, read.metric.min_effect) == (
        "positive_reply_rate",
        MetricKind.PROPORTION,
        Direction.MAXIMIZE,
        0.25,
    )
    assert read.guardrails[0] == Guardrail("complaint", ceiling=0.003)
    assert (read.traffic.source, read.traffic.weekly, read.traffic.maturity_days) == ("simulated", 2000, 7.0)
    assert read.slots["body"].max_lines == 9
    assert "Bristol" in read.sender.postal_address
    assert "1,200" in read.facts
    assert "Banned words" in read.brand


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('language = "en"', 'langauge = "en"', "langauge is unknown; the top of the file knows name, kind"),
        ("min_effect = 0.10", "min_efect = 0.10", "[metric] min_efect is unknown"),
        ("min_effect = 0.10", 'min_effect = "10 %"', "[metric] min_effect must be a number, not '10 %'"),
        ("min_effect = 0.10", "min_effect = 0", "[metric] min_effect must be above 0 and at most 10, not 0"),
        ("weekly = 20_000", "weekly = true", "[traffic] weekly must be a whole number, not True"),
        ("weekly = 20_000", "weekly = 0", "[traffic] weekly must be from 1 to 1e+12, not 0"),
        ("holdout = 0.05", "holdout = nan", "[traffic] holdout must be from 0 to 0.5, not nan"),
        ('source = "simulated"', 'source = "web"', "[traffic] source must be one of simulated, site"),
        ('kind = "page"', 'kind = "banner"', "kind must be one of page, email, ad, not 'banner'"),
        ('kind = "page"', "", "kind is missing"),
        ('event = "signup"', 'event = " "', "[goal] event is missing"),
        ("[goal]", "goal = 3\n[site]", "goal must be a table"),
        ("[slots.cta]\nmax_chars = 30", "[slots.cta]", "[slots.cta] max_chars is missing"),
        ("[slots.cta]", "[slots.Cta]", "'Cta' cannot name a slot"),
        ("harm = 0.5", "harm = -1", "[guardrails.refund] harm must be above 0"),
        ('canonical_url = "https:', 'canonical_url = "javascript:', "[goal] canonical_url must be an address"),
        ("holdout = 0.05", "holdout = 0.05 0.06", "is not valid TOML"),
        ('name = "Larkfield trial page"', 'name = "x"\nlinks = [1]', "links must be a list of texts"),
        ('kind = "proportion"', 'kind = "value"', "[metric] kind must be one of proportion, mean"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    """A key that is unknown, missing or senseless is refused with file and key."""
    write_campaign(tmp_path)
    edit(tmp_path, "campaign.toml", old, new)
    with pytest.raises(UsageError) as caught:
        Campaign.load(tmp_path)
    assert said in str(caught.value)
    assert str(tmp_path / "campaign.toml") in str(caught.value)


@pytest.mark.parametrize("name", ["campaign.toml", "facts.md", "brand.md"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """A campaign without one of its files is refused, and says which."""
    (write_campaign(tmp_path) / name).unlink()
    with pytest.raises(UsageError, match="is missing, and a campaign needs it") as caught:
        Campaign.load(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_text_of_another_encoding_is_named(tmp_path: Path) -> None:
    """A file that is not UTF-8 is refused with the place."""
    (write_campaign(tmp_path) / "facts.md").write_bytes("- 14 Tage für 3 €".encode("cp1252"))
    with pytest.raises(UsageError, match=r"facts\.md is not UTF-8 text \(byte 11\)"):
        Campaign.load(tmp_path)


def test_the_tables_of_a_source_wait_for_their_reader(tmp_path: Path) -> None:
    """A traffic source's table is kept as it stands, and its reader refuses what it does not know."""
    write_campaign(tmp_path)
    edit(tmp_path, "campaign.toml", "[sender]", '[counts]\nfile = "a.csv"\n\n[sender]')
    read = Campaign.load(tmp_path)
    assert read.sources == {"counts": {"file": "a.csv"}}
    assert typed_table(read.path, "counts", read.sources["counts"], {"file": str}) == {"file": "a.csv"}
    with pytest.raises(UsageError, match=r"\[counts\] file is unknown; \[counts\] knows url"):
        typed_table(read.path, "counts", read.sources["counts"], {"url": str})
