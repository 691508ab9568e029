"""The marketing loop on made-up people with known truth: `python -m benchmarks.marketing [--quick] [--several]`.

Two runs through the command's own API, over HTTP and the real server, on the packaged page with 2,000 visitors a week
at a rate of 20 % and a smallest effect of 20 %:

- a run whose texts differ in worth: what its kept changes are believed to be worth together, shrunk, by the permanent
  holdout, and in truth
- A/A: texts that differ and are worth the same, so that every keep is false

Candidates change one to three slots at random to texts of `[options]`. With `--several` the campaign has three surfaces
(the first words of the page, its reasons, and a page of prices that half of the visitors look at) and each test two
candidates, with 8,000 visitors a week; otherwise it is the same.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from autoresearch.adapters.marketing.campaign import COPY_NAME
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.adapters.marketing.total import totals_of
from autoresearch.adapters.marketing.wording import Copy, set_slots
from autoresearch.core import CostEstimate, Proposal, ProposalRequest
from autoresearch.core.driver import run
from autoresearch.core.ledger import Ledger


class Shuffling:
    """Changes one to three slots at random."""

    name = "shuffling"

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        """Cost nothing."""
        return CostEstimate(0.0, 0, 0.0, "dice")

    def propose(self, request: ProposalRequest) -> Proposal:
        """Throw the dice; the same experiment gets the same throw."""
        dice = random.Random(f"{request.seed}/{request.number}/{len(request.refused)}")
        text = request.artifact.files[COPY_NAME]
        copy = Copy.load(text)
        # In a lane only its own texts may change; the loop names them as knobs.
        known = {knob.name.removeprefix("slots.") for knob in request.knobs}
        slots = sorted(known & set(copy.options))
        slots = dice.sample(slots, min(dice.choice((1, 1, 2, 3)), len(slots)))
        chosen = {
            slot: dice.choice([other for other in copy.options[slot] if other != copy.slots[slot]]) for slot in slots
        }
        artifact = request.artifact.replace({COPY_NAME: set_slots(text, chosen)})
        return Proposal(f"Other texts for {', '.join(slots)}.", "copy", artifact)


SURFACES = """
[slots.price_note]
max_chars = 90

[slots.price_hint]
max_chars = 120

[surfaces.hero]
slots = ["headline", "subhead", "cta"]

[surfaces.reasons]
slots = ["bullet_1", "bullet_2", "bullet_3", "proof", "closing", "form_note"]

[surfaces.pricing]
path = "/pricing"
template = "pricing.html.j2"
slots = ["price_note", "price_hint"]
"""

PRICING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Prices</title></head>
<body><p>{{ slot.price_note }}</p>
<p>{{ slot.price_hint }}</p>
<form method="post" action="{{ link.action_url }}"><button>Start</button></form></body></html>
"""


def several(folder: Path) -> None:
    """Give the campaign three surfaces, and each test two candidates."""
    options = Copy.load(folder).options
    texts = {
        "price_note": [*options["form_note"], *options["bullet_1"], *options["bullet_2"]],
        "price_hint": [*options["bullet_3"], *options["closing"]],
    }
    chosen = "\n".join(f"{slot} = {json.dumps(listed[0], ensure_ascii=False)}" for slot, listed in texts.items())
    listed = "\n".join(f"{slot} = {json.dumps(listed, ensure_ascii=False)}" for slot, listed in texts.items())
    for name, old, new, more in (
        ("campaign.toml", "weekly = 2_000", "weekly = 8_000\narms = 2", SURFACES),
        ("copy.toml", "\n[options]\n", f"{chosen}\n\n[options]\n{listed}\n", ""),
    ):
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text, f"{name} has no {old!r}"
        (folder / name).write_text(text.replace(old, new) + more, encoding="utf-8")
    (folder / "template" / "pricing.html.j2").write_text(PRICING, encoding="utf-8")


def campaign(folder: Path, spread: float) -> None:
    """Write the packaged page with enough traffic for quick tests."""
    for name, text in workspace_files("page").items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    path = folder / "campaign.toml"
    text = path.read_text(encoding="utf-8")
    for old, new in (
        ("weekly = 20_000", "weekly = 2_000"),
        ("baseline = 0.05", "baseline = 0.20"),
        ("min_effect = 0.10", "min_effect = 0.20"),
    ):
        assert old in text, f"the packaged campaign has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text + f"\n[simulated]\nspread = {spread}\n", encoding="utf-8")
    (folder / "autoresearch.toml").write_text('[run]\nadapter = "marketing"\n', encoding="utf-8")


def tested(folder: Path, experiments: int, seed: int) -> None:
    """Run and print what came of it."""
    began = time.perf_counter()
    result = run(
        workspace=folder, proposer=Shuffling(), experiments=experiments, seed=seed, options={"seed": str(seed)}
    )
    minutes = (time.perf_counter() - began) / 60
    with Ledger.open(folder / ".autoresearch" / "ledger.db") as ledger:
        tests = [ledger.live_looks(row.id) for row in ledger.experiments(result.status.run)]
        people = sum(look.n for looks in tests for look in looks if look.look == looks[-1].look)
        found = totals_of(folder, ledger)
    status = result.status
    print(
        f"{status.experiments} experiments, {people:,.0f} people, {minutes:.1f} min: {status.kept} kept, "
        f"{status.reverted} reverted, {status.inconclusive} inconclusive, {status.invalid} invalid"
    )
    low, high = ("?" if bound is None else f"{bound:+.1%}" for bound in (found.low, found.high))
    holdout = "unknown" if found.holdout is None else f"{found.holdout:+.1%} ({low} to {high})"
    print(
        f"  total: as tested {found.believed:+.1%}, shrunk {found.shrunk:+.1%}, holdout {holdout}, "
        f"truth {found.truth or 0.0:+.1%}"
    )


def main() -> None:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the experiments")
    parser.add_argument("--several", action="store_true", help="three surfaces, two candidates a test")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    share = 10 if arguments.quick else 1
    for heading, spread, experiments in (("texts differ in worth", 0.05, 200), ("A/A", 0.0, 100)):
        print(f"\n{heading}:")
        with tempfile.TemporaryDirectory() as name:
            campaign(Path(name), spread)
            if arguments.several:
                several(Path(name))
            tested(Path(name), experiments // share, arguments.seed)


if __name__ == "__main__":
    main()
