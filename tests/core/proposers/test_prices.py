"""What a call costs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autoresearch.core.proposers.prices import (
    FREE,
    MODEL_PRICES,
    PRICES_AS_OF,
    UNKNOWN_MODEL,
    Usage,
    is_loopback,
    price_of,
)

API = "https://api.anthropic.com"


def test_sonnet_by_hand() -> None:
    """A call to Sonnet 5.5 costs what the table of the vendor says, kind by kind of token."""
    usage = Usage(fresh=1_000, cache_read=100_000, write_5m=2_000, write_1h=10_000, out=3_000)
    by_hand = (1_000 * 2 + 100_000 * 0.10 + 2_000 * 2.50 + 10_000 * 4 + 3_000 * 10) / 1e6
    assert price_of("claude-sonnet-5-5", API).usd(usage) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("model", "fresh", "write_5m", "write_1h", "read", "out"),
    [
        ("claude-fable-5-2", 8, 10, 16, 0.20, 40),
        ("claude-fable-5-1", 10, 12.5, 20, 0.25, 50),
        ("claude-opus-5-5", 4, 5, 8, 0.20, 20),
        ("claude-opus-5", 5, 6.25, 10, 0.50, 25),
        ("claude-sonnet-4-6", 3, 3.75, 6, 0.30, 15),
        ("claude-haiku-4-5", 1, 1.25, 2, 0.10, 5),
    ],
)
def test_table(model: str, fresh: float, write_5m: float, write_1h: float, read: float, out: float) -> None:
    """The cache factors give the prices of the vendor's table."""
    rate = MODEL_PRICES[model].rate
    assert (rate.fresh, rate.write_5m, rate.write_1h, rate.cache_read, rate.out) == pytest.approx(
        (fresh, write_5m, write_1h, read, out)
    )


def test_long_prompt() -> None:
    """A prompt of more than 100,000 tokens makes every token of a Haiku 5.5 call five times as dear."""
    price = price_of("claude-haiku-5-5", API)
    assert price.usd(Usage(fresh=100_000, out=1_000)) == pytest.approx(100_000 * 0.1e-6 + 1_000 * 0.5e-6)
    assert price.usd(Usage(fresh=60_000, cache_read=40_001, out=1_000)) == pytest.approx(
        60_000 * 0.5e-6 + 40_001 * 0.05e-6 + 1_000 * 2.5e-6
    )


def test_dated_name() -> None:
    """A model name with its date has the price of the name without."""
    assert price_of("claude-haiku-4-5-20251001", API) is MODEL_PRICES["claude-haiku-4-5"]


def test_unknown_model_is_dear() -> None:
    """An unknown model is charged more than any known one, and says that it is a guess."""
    price = price_of("claude-next", API)
    assert price is UNKNOWN_MODEL
    assert not price.known
    assert all(
        price.rate.fresh > known.rate.fresh and price.rate.out > known.rate.out for known in MODEL_PRICES.values()
    )


def test_only_a_local_model_is_free() -> None:
    """Nothing is free but a model of another name on this machine; a local proxy to Claude is charged."""
    assert price_of("smollm2", "http://127.0.0.1:8080") is FREE
    assert price_of("claude-sonnet-5-5", "http://127.0.0.1:8080") is MODEL_PRICES["claude-sonnet-5-5"]
    assert price_of("smollm2", "http://10.0.0.5:8080") is UNKNOWN_MODEL


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.8.8.8", "http://[::1]:80/x", "http://a.localhost"])
def test_loopback(url: str) -> None:
    """These addresses stay on the machine."""
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url", ["https://api.anthropic.com", "http://127.0.0.1.example.com", "http://localhost.example.com", "nonsense", ""]
)
def test_not_loopback(url: str) -> None:
    """These addresses do not, or cannot be known to."""
    assert not is_loopback(url)


def test_documented_prices() -> None:
    """The page about Claude lists the prices that are charged, and their date."""
    page = (Path(__file__).parents[3] / "docs" / "claude.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(claude-[a-z0-9-]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE
    )
    documented = {model: tuple(map(float, prices)) for model, *prices in rows}
    rates = {model: price.rate for model, price in MODEL_PRICES.items()}
    assert documented == {
        model: pytest.approx((rate.fresh, rate.write_1h, rate.cache_read, rate.out)) for model, rate in rates.items()
    }
    assert f"as of {PRICES_AS_OF.isoformat()}" in page


def test_documented_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python of the page runs."""
    page = (Path(__file__).parents[3] / "docs" / "claude.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
    assert "expected_effect" in json.loads(capsys.readouterr().out)["properties"]
