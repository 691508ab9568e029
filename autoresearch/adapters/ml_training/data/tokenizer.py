"""Byte-pair encoding: trained by `rustbpe`, used through `tiktoken`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    import tiktoken

BOS = "<|bos|>"
"""Name of the one special token; in a text these characters are text like any other."""

SMALLEST_VOCABULARY = 257
"""256 bytes and BOS."""

_SLICE = 100_000  # characters

# The pattern of GPT-4 with digits in groups of at most two instead of three: with a thousand tokens, the thousand
# three-digit numbers would take merges away from words. nanochat does the same for vocabularies up to 32k.
SPLIT_PATTERN = "|".join(
    [
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?+\p{L}+",
        r"\p{N}{1,2}",
        r" ?[^\s\p{L}\p{N}]++[\r\n]*",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


@dataclass(frozen=True)
class Tokenizer:
    """Merges in order of rank.

    Attributes:
        tokens: Bytes of token i; the 256 single bytes and then the merges.
        vocab_size: Number of ids, BOS included; ids between the last merge and BOS are unused.
        pattern: Regular expression that cuts text into pieces which merges never cross.
    """

    tokens: tuple[bytes, ...]
    vocab_size: int
    pattern: str = SPLIT_PATTERN

    @property
    def bos_id(self) -> int:
        """The last id."""
        return self.vocab_size - 1

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> Tokenizer:
        """Learn merges from `texts`.

        Args:
            texts: Documents; read once.
            vocab_size: Number of ids, BOS included.

        Raises:
            UsageError: If `vocab_size` does not even hold the single bytes.
        """
        import rustbpe

        check_vocab_size(vocab_size)
        trainer = rustbpe.Tokenizer()
        trainer.train_from_iterator(
            (piece for text in texts for piece in slices(text)), vocab_size - 1, pattern=SPLIT_PATTERN
        )
        ranked = sorted(trainer.get_mergeable_ranks(), key=lambda pair: pair[1])
        return cls(tuple(bytes(token) for token, _ in ranked), vocab_size)

    def encoding(self) -> tiktoken.Encoding:
        """Return the same tokenizer as tiktoken knows it."""
        import tiktoken

        return tiktoken.Encoding(
            name=f"autoresearch_{self.vocab_size}",
            pat_str=self.pattern,
            mergeable_ranks={token: rank for rank, token in enumerate(self.tokens)},
            special_tokens={BOS: self.bos_id},
        )

    def token_bytes(self) -> NDArray[np.int64]:
        """Return the number of bytes of each token; 0 for BOS and unused ids. Shape (V,), int64.

        Counted from the merges. Decoding one token at a time would turn every cut character into a replacement
        character of three bytes, and bits per byte would look better than they are.
        """
        table = np.zeros(self.vocab_size, np.int64)
        table[: len(self.tokens)] = [len(token) for token in self.tokens]
        return table

    def save(self, path: Path) -> None:
        """Write to a JSON file."""
        tokens = [base64.b64encode(token).decode("ascii") for token in self.tokens]
        content = {"vocab_size": self.vocab_size, "pattern": self.pattern, "bos": BOS, "tokens": tokens}
        path.write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read what `save` wrote.

        Raises:
            EnvironmentNotReadyError: If the file is missing or damaged.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            tokens = tuple(base64.b64decode(token) for token in content["tokens"])
            return cls(tokens, int(content["vocab_size"]), str(content["pattern"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentNotReadyError(
                f"The tokenizer in {path} cannot be read: {error}.\nDelete {path.parent} and run again."
            ) from error


def slices(text: str) -> Iterator[str]:
    """Cut a text into stretches that the tokenizer can stand; most texts are one.

    The regular expression engine behind tiktoken and rustbpe overflows its stack on a million spaces in a row, which
    ends the process. A stretch of 100,000 characters is safe, and a cut costs a token or none.
    """
    return (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))


def check_vocab_size(vocab_size: int) -> None:
    """Raise UsageError when a vocabulary of this size cannot be built."""
    if vocab_size < SMALLEST_VOCABULARY:
        raise UsageError(
            f"A vocabulary of {vocab_size} tokens is too small: the 256 single bytes and BOS need "
            f"{SMALLEST_VOCABULARY}.\nAsk for at least that many."
        )
