from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoresearch.adapters.ml_training.data.tokenizer import BOS, Tokenizer, slices
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from tests.adapters.ml_training.data.texts import made_up_documents

TOKENIZER = Tokenizer.train(made_up_documents(50), 300)
ENCODING = TOKENIZER.encoding()


@settings(max_examples=200)
@example("👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, e\u0301 combining, \ufffd replacement, \x00 null, \u2028 line")
@example(f"{BOS} <|endoftext|> <|bos|")
@example("١٢٣ ⅻ ² 12345")
@given(st.text())
def test_tokens_have_the_bytes_of_their_text(text: str) -> None:
    """Bytes counted from the merges add up to the UTF-8 bytes of any text, and decoding gives it back."""
    tokens = ENCODING.encode_ordinary(text)
    assert int(TOKENIZER.token_bytes()[tokens].sum()) == len(text.encode("utf-8"))
    assert ENCODING.decode(tokens) == text


def test_decoding_single_tokens_would_miscount() -> None:
    """The fault that counting from the merges avoids: a cut emoji decodes to replacement characters of 3 bytes each."""
    tokens = ENCODING.encode_ordinary("😀")
    assert int(TOKENIZER.token_bytes()[tokens].sum()) == 4
    assert sum(len(ENCODING.decode([token]).encode()) for token in tokens) == 12


def test_text_that_looks_like_bos_is_text() -> None:
    """Nobody can write a document boundary into a document."""
    assert TOKENIZER.bos_id not in ENCODING.encode_ordinary(f"a {BOS} b")


def test_the_vocabulary_counts_bos() -> None:
    """300 ids are 256 bytes, 43 merges and BOS, which is the last and has no bytes."""
    assert len(TOKENIZER.tokens) == 299
    assert (TOKENIZER.bos_id, ENCODING.n_vocab) == (299, 300)
    assert TOKENIZER.token_bytes().shape == (300,)
    assert TOKENIZER.token_bytes()[299] == 0
    assert TOKENIZER.token_bytes()[:256].tolist() == [1] * 256


def test_a_tiny_text_leaves_ids_unused() -> None:
    """Where there is nothing to merge, ids up to BOS stay empty and have no bytes."""
    tiny = Tokenizer.train(["ab ab"], 300)
    assert len(tiny.tokens) < 299
    assert tiny.encoding().n_vocab == 300
    assert not tiny.token_bytes()[len(tiny.tokens) :].any()
    assert tiny.encoding().decode([tiny.bos_id]) == BOS


def test_numbers_are_cut_into_pairs_of_digits() -> None:
    """No token has more than two digits, so a small vocabulary is not spent on numbers."""
    numbers = Tokenizer.train(["1234 1234 1234 1234"] * 100, 300)
    assert max(len(token) for token in numbers.tokens if token.strip(b" ").isdigit()) == 2


def test_a_saved_tokenizer_comes_back_equal(tmp_path: Path) -> None:
    """Saving and loading keeps merges, size and pattern."""
    TOKENIZER.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json") == TOKENIZER


@pytest.mark.parametrize("content", ["", "{}", '{"tokens": [1], "vocab_size": 2, "pattern": ""}'])
def test_a_damaged_file_is_told(content: str, tmp_path: Path) -> None:
    """A tokenizer that cannot be read is the machine's fault, with what to do."""
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(EnvironmentNotReadyError, match="cannot be read"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_vocabulary_below_the_bytes_is_refused() -> None:
    """256 bytes and BOS need 257 ids."""
    with pytest.raises(UsageError, match="257"):
        Tokenizer.train(["a"], 256)


def test_a_million_spaces_are_stood() -> None:
    """Whitespace that would overflow the stack of the expression engine is cut into stretches first."""
    text = f"a{' ' * 1_000_000}b"
    pieces = list(slices(text))
    assert "".join(pieces) == text
    tokens = np.concatenate([ENCODING.encode_ordinary(piece) for piece in pieces])
    assert int(TOKENIZER.token_bytes()[tokens].sum()) == len(text)
    assert len(Tokenizer.train([text], 260).tokens) == 259
