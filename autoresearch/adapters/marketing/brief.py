"""What a language model is told about a campaign."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autoresearch.adapters.marketing.brand import banned_words
from autoresearch.adapters.marketing.facts import read_facts
from autoresearch.adapters.marketing.limits import slot_of
from autoresearch.adapters.marketing.render import texts_in
from autoresearch.core import Direction

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign, PrimaryMetric

_KINDS = {"page": "a landing page", "email": "an e-mail", "ad": "an ad"}


def brief(campaign: Campaign) -> str:
    """Return goal, audience, metric, slots with limits, facts and brand; always the same bytes for the same campaign.

    Raises:
        TemplateFault: If a template is missing or does not parse.
    """
    return "\n\n".join(_paragraphs(campaign)) + "\n"


def _paragraphs(campaign: Campaign) -> Iterator[str]:
    kind = _KINDS[campaign.kind] + (f" ({campaign.platform})" if campaign.kind == "ad" else "")
    yield (
        f"The artifact is the copy of {kind}, in copy.toml: a text for each slot of a template that stays as it is. "
        f"Its language is {campaign.language}. People are assigned at random to the present copy or to yours, and what "
        "they do decides."
    )
    yield f"Goal: {campaign.goal.text}" + (f"\nAudience: {campaign.goal.audience}" if campaign.goal.audience else "")
    yield _metric(campaign.metric)
    if campaign.guardrails:
        yield f"Must not become more frequent: {', '.join(rail.name for rail in campaign.guardrails)}."
    yield "Slots, with the most characters that each may have:\n" + "\n".join(_slots(campaign))
    facts = "\n".join(f"- {fact.text}" for fact in read_facts(campaign.facts, campaign.language))
    yield f"Facts, the only ones that may be claimed:\n{facts}"
    if campaign.brand.strip():
        yield f"The brand, in its own words:\n{campaign.brand.strip()}"
    yield "\n".join(_rules(campaign))


def _metric(metric: PrimaryMetric) -> str:
    better = "higher" if metric.direction is Direction.MAXIMIZE else "lower"
    return (
        f"Metric: {metric.name}, {metric.unit}; {better} is better. A lift under {metric.min_effect:.0%} is too small "
        "to be worth a test, so change what matters to people, not a synonym."
    )


def _slots(campaign: Campaign) -> Iterator[str]:
    for name in texts_in(campaign):
        slot = slot_of(campaign, name)
        if slot is None:
            yield f"- {name}"
            continue
        lines = f" on at most {slot.max_lines} lines" if slot.max_lines > 1 else ""
        yield f"- {name}, {slot.max_chars}{lines}" + (f": {slot.about}" if slot.about else "")


def _rules(campaign: Campaign) -> Iterator[str]:
    banned = banned_words(campaign.brand)
    yield "A candidate is refused, before anybody sees it, for"
    yield "- a text that is empty or too long, a slot that is missing or not in the list above;"
    yield "- a number, price, date, superlative, comparison, guarantee, deadline or free offer that no fact holds;"
    if banned:
        yield f"- any form of a banned word: {', '.join(banned)};"
    yield "- markup, template code, or an address of the web or of a person: links belong to the template;"
    if campaign.kind == "email":
        yield "- a subject that pretends to be an answer (Re:, Fwd:);"
    if campaign.kind == "ad":
        yield "- the same text in two slots;"
    yield "- no difference that people would see: change texts under [slots]; [options] serves the offline search."
