"""Texts to test with."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoresearch.adapters.ml_training.data.sources import Progress, Text

SYLLABLES = ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "wa", "xe"]


def made_up_documents(count: int, *, seed: int = 0, words: int = 60) -> list[str]:
    """Return texts of made-up words, no two nearly the same."""
    chance = random.Random(seed)
    vocabulary = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(2000)]
    return [" ".join(chance.choices(vocabulary, k=chance.randint(5, words))) + "." for _ in range(count)]


@dataclass(frozen=True)
class ListSource:
    """A source whose documents are a list."""

    texts: Sequence[str]
    name: str = "list"

    def fetch(self, cache: Path, progress: Progress) -> Text:
        return Text(self.name, json.dumps(list(self.texts)), self._documents)

    def _documents(self) -> Iterator[str]:
        return iter(self.texts)
