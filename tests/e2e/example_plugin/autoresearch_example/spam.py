"""A list of words that mark a mail as spam, scored by its mistakes on labelled mails."""

from collections.abc import Mapping
from pathlib import Path

from autoresearch import core

MAILS = {
    core.Split.SEARCH: [("win money now", 1), ("lunch at noon", 0), ("free money", 1), ("see you monday", 0)],
    core.Split.HOLDOUT: [("win a prize", 1), ("lunch is ready", 0), ("easy money", 1), ("monday meeting", 0)],
}


class SpamAdapter:
    metric = core.Metric("mistakes", "mails", core.Direction.MINIMIZE, min_effect=0.5)
    scope = core.Scope(editable=("words.txt",))

    def workspace_files(self) -> Mapping[str, str]:
        return {"words.txt": "lunch\nwin\nmoney\nmonday\n", "program.md": "Find the words of spam.\n"}

    def prepare(self, workspace: core.Workspace) -> None: ...

    def measure(self, artifact: Path, *, seed: int, split: core.Split, run: core.RunContext) -> core.Measurement:
        words = set((artifact / "words.txt").read_text(encoding="utf-8").split())
        if not words:
            raise core.CandidateError("words.txt holds no word.")
        mistakes = sum(bool(words & set(text.split())) != bool(spam) for text, spam in MAILS[split])
        return core.Measurement(float(mistakes), seed=seed, seconds=0.0, secondary={"words": float(len(words))})


def create_adapter(options: Mapping[str, str]) -> core.Adapter:
    return SpamAdapter()
