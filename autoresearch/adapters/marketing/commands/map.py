"""`autoresearch marketing map`: what resonates, over all finished tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of, writing

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.past_tests import PastTest
    from autoresearch.adapters.marketing.resonance import ResonanceMap

ModelOption = Annotated[str, typer.Option(help="With claude: which model; by default the proposer's.")]
MaxUsdOption = Annotated[float, typer.Option(min=0.0, help="With claude: most dollars for this command.")]


def map_(
    workspace: CampaignOption = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture there.")] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Print what a writer is told instead of the table.")] = False,
    own: Annotated[bool, typer.Option("--own", help="Leave the imported archive out.")] = False,
    tagger: Annotated[str, typer.Option(help="Who tags the texts: rules, or claude, which needs a key.")] = "rules",
    model: ModelOption = "",
    max_usd: MaxUsdOption = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the map as JSON.")] = False,
) -> None:
    """Show what kinds of text do better, fitted over the campaign's finished tests and an imported archive."""
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.resonance import make_map, tests_of
    from autoresearch.core import UsageError

    if tagger not in ("rules", "claude"):
        raise UsageError(f"--tagger must be rules or claude, not {tagger!r}.")
    folder = Campaign.load(layout_of(workspace).root).folder
    tests = tests_of(folder, archive=not own)
    found = make_map(tests) if tagger == "rules" else _tagged_by_claude(folder, tests, model, max_usd)
    if svg is not None:
        from autoresearch.adapters.marketing.resonance_picture import picture

        drawn = picture(found)
        with writing(svg):
            svg.write_text(drawn, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        typer.echo(found.for_prompt() if prompt else found.table(), nl=False)


def _tagged_by_claude(folder: Path, tests: Sequence[PastTest], model: str, max_usd: float) -> ResonanceMap:
    """Return the map with a model's tags; what was tagged before is not paid for again."""
    from autoresearch.adapters.marketing.asking import ClaudeAsk
    from autoresearch.adapters.marketing.model_tagging import model_tagger
    from autoresearch.adapters.marketing.resonance import make_map
    from autoresearch.core import ProposalError

    make_map(tests)  # too few tests are refused before anything is paid for
    ask = ClaudeAsk(
        folder / ".autoresearch" / "marketing", model=model, max_usd=max_usd, way_out="tag by rules: --tagger rules"
    )
    try:
        tagged = model_tagger((text for test in tests for arm in test.arms for text in arm.slots.values()), ask)
    except ProposalError:
        ask.forget_last()
        raise
    finally:
        typer.echo(ask.spent, err=True)
    return make_map(tests, tagged, ask.model)
