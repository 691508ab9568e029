"""`autoresearch marketing opinion`: in which order to try ideas, and how much such an opinion has been worth."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.adapters.marketing.commands.map import MaxUsdOption, ModelOption
from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of

if TYPE_CHECKING:
    from pathlib import Path

    from autoresearch.adapters.marketing.opinion import Agreement
    from autoresearch.adapters.marketing.past_tests import PastTest
    from autoresearch.adapters.marketing.wording import Copy

Ordered = dict[str, list[tuple[str, float]]]
"""Texts of a slot with their scores, the best first."""


def opinion(
    workspace: CampaignOption = None,
    by: Annotated[str, typer.Option(help="Whose: the map's, or claude's, which needs a key.")] = "map",
    most: Annotated[int, typer.Option("--tests", min=2, help="Finished tests to score it on, drawn by lot.")] = 200,
    own: Annotated[bool, typer.Option("--own", help="Leave the imported archive out.")] = False,
    model: ModelOption = "",
    max_usd: MaxUsdOption = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Put the options of copy.toml in an order to try them in, and score that opinion on finished tests.

    An opinion is never the metric: it says what to test first, and people decide.
    """
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.resonance import tests_of
    from autoresearch.adapters.marketing.wording import Copy
    from autoresearch.core import UsageError

    if by not in ("map", "claude"):
        raise UsageError(f"--by must be map or claude, not {by!r}.")
    campaign = Campaign.load(layout_of(workspace).root)
    tests = tests_of(campaign.folder, archive=not own)
    copy = Copy.load(campaign.copy_path)
    if by == "map":
        who, mark, ordered = _by_map(tests, copy)
    else:
        who, mark, ordered = _by_claude(campaign.folder, tests, copy, most, model, max_usd)
    if as_json:
        found = {"by": who, "mark": None if mark is None else asdict(mark), "options": _plain(ordered)}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        typer.echo(_told(who, mark, ordered), nl=False)


def _by_map(tests: Sequence[PastTest], copy: Copy) -> tuple[str, Agreement | None, Ordered]:
    """Return the order of the map, and how a map of the earlier half did on the later half."""
    from autoresearch.adapters.marketing.resonance import make_map

    made = make_map(tests)

    def score(slot: str, texts: Sequence[str]) -> list[float]:
        # Tags of tests of several slots carry the slot's name, those of an archive of headlines do not.
        return [made.predict({**copy.slots, slot: text}) + made.predict({slot: text}) for text in texts]

    return "the map", made.foresight, _ordered(copy, score)


def _by_claude(
    folder: Path, tests: Sequence[PastTest], copy: Copy, most: int, model: str, max_usd: float
) -> tuple[str, Agreement | None, Ordered]:
    """Return a model's order, and how it did on finished tests without knowing their outcome."""
    from autoresearch.adapters.marketing.asking import ClaudeAsk
    from autoresearch.adapters.marketing.opinion import opinions_of, score_opinion, text_of
    from autoresearch.core import ProposalError

    used = _drawn([test for test in tests if len(test.arms) > 1 and all(arm.n > 0 for arm in test.arms)], most)
    state = folder / ".autoresearch" / "marketing"
    ask = ClaudeAsk(state, model=model, max_usd=max_usd, way_out="take the map's opinion: --by map")
    try:
        # Two tests at least make a mark; without one an order of ideas is still to be had.
        scores = opinions_of([[text_of(arm.slots) for arm in test.arms] for test in used], ask) if len(used) > 1 else []
        ordered = _ordered(copy, lambda slot, texts: opinions_of([texts], ask)[0])
    except ProposalError:
        ask.forget_last()
        raise
    finally:
        typer.echo(ask.spent, err=True)
    return ask.model, score_opinion(used, scores) if scores else None, ordered


def _drawn(tests: Sequence[PastTest], most: int) -> list[PastTest]:
    """Return some of the tests, always the same: those whose hash comes first."""
    return sorted(tests, key=lambda test: hashlib.sha256(test.id.encode()).digest())[:most]


def _ordered(copy: Copy, score: Callable[[str, Sequence[str]], Sequence[float]]) -> Ordered:
    found: Ordered = {}
    for slot, options in copy.options.items():
        texts = list(dict.fromkeys([copy.slots[slot], *options]))
        if len(texts) > 1:
            found[slot] = sorted(zip(texts, score(slot, texts), strict=True), key=lambda item: -item[1])
    return found


def _plain(ordered: Ordered) -> Mapping[str, Any]:
    return {slot: [{"text": text, "score": score} for text, score in rows] for slot, rows in ordered.items()}


def _told(who: str, mark: Agreement | None, ordered: Ordered) -> str:
    if mark is None:
        lines = [f"Nobody knows what the opinion of {who} is worth here: too few tests have finished to score it."]
    else:
        lines = [
            f"{who[0].upper()}{who[1:]}, scored on {mark.tests:,} finished tests whose outcome it was not told: rank "
            f"correlation {mark.rho:+.3f}",
            f"(90 % interval {mark.low:+.3f} to {mark.high:+.3f}), {mark.concordance:.1%} of pairs in the right order; "
            "a coin has 0 and 50 %.",
        ]
    lines.append("It says what to test first and proves nothing: people decide.")
    for slot, rows in ordered.items():
        lines += ["", f"{slot}, the most promising first:"]
        lines += [f"  {number}. {' / '.join(text.splitlines())}" for number, (text, _) in enumerate(rows, 1)]
    if not ordered:
        lines.append("copy.toml lists no options to put in an order; its table [options] holds ideas by slot.")
    return "\n".join(lines) + "\n"
