"""The marketing loop on made-up people with known truth: `python -m benchmarks.marketing [--quick]`.

Two runs through the command's own API, over HTTP and the real server, on the packaged page with 2,000 visitors a week
at a rate of 20 % and a smallest effect of 20 %:

- a run whose texts differ in worth: what its kept changes are believed to be worth together, shrunk, by the permanent
  holdout, and in truth
- A/A: texts that differ and are worth the same, so that every keep is false

Candidates change one to three slots at random to texts of `[options]`.
"""

from __future__ import annotations

import argparse
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
        slots = dice.sample(sorted(copy.options), dice.choice((1, 1, 2, 3)))
        chosen = {
            slot: dice.choice([other for other in copy.options[slot] if other != copy.slots[slot]]) for slot in slots
        }
        artifact = request.artifact.replace({COPY_NAME: set_slots(text, chosen)})
        return Proposal(f"Other texts for {', '.join(slots)}.", "copy", artifact)


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
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    share = 10 if arguments.quick else 1
    for heading, spread, experiments in (("texts differ in worth", 0.05, 200), ("A/A", 0.0, 100)):
        print(f"\n{heading}:")
        with tempfile.TemporaryDirectory() as name:
            campaign(Path(name), spread)
            tested(Path(name), experiments // share, arguments.seed)


if __name__ == "__main__":
    main()
