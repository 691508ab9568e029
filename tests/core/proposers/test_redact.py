"""Secrets out, control characters out, and ordinary code untouched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoresearch.core.proposers as package
from autoresearch.core.proposers.redact import MARK, Redactor, clean, ending, one_line

SECRETS = [
    "sk-ant-api03-AbCdEf0123456789_-xyz",
    "sk-proj-abcdefghij0123456789ABCD",
    "AKIA" + "ABCDEFGHIJ234567",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2c3" * 6,
    "glpat-abcdefghij0123456789",
    "xoxb-123456789012-abcdefABCDEF",
    "AIza" + "Sy0123456789abcdefghijABCDEFGHIJ_-x",
    "hf_" + "aB3d" * 9,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", 'KEY="{}"', "failed with {}, giving up", "\n{}\n", "https://x/?k={}&y=1"])
def test_shape(secret: str, around: str) -> None:
    """A key of a well-known service is recognised wherever it stands, and what surrounds it stays."""
    text = Redactor({})(around.format(secret))
    assert secret not in text
    before, after = around.split("{}")
    assert text.startswith(before)
    assert text.endswith(after)
    assert MARK in text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdef0123456789abcdef", "abcdef0123456789abcdef"),
        ('"x-api-key": "0123456789abcdef"', "0123456789abcdef"),
        ("postgres://user:hunter22@db/x", "hunter22"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        ),
        ("password='correct horse'", "correct horse"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut off here", "MIIE"),
    ],
)
def test_place(text: str, secret: str) -> None:
    """A secret is recognised by what stands before it."""
    assert secret not in Redactor({})(text)


def test_environment_values() -> None:
    """The value of a variable whose name speaks of a secret is hidden; those of other variables are not."""
    environ = {
        "WANDB_API_KEY": "plainlookingvalue",
        "DB_PASSWORD": "long-enough",
        "HOME": "/home/somebody",
        "PWD": "/home/somebody/work",
        "KEYBOARD": "de-latin1-nodeadkeys",
        "SHORT_TOKEN": "abc",
    }
    text = "plainlookingvalue long-enough /home/somebody/work de-latin1-nodeadkeys abc"
    assert (
        Redactor(environ)(text)
        == f"{MARK} environment] {MARK} environment] /home/somebody/work de-latin1-nodeadkeys abc"
    )


def test_longer_value_first() -> None:
    """A secret that contains another one leaves no remainder."""
    redact = Redactor({"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefgh-and-more"})
    assert redact("abcdefgh-and-more") == f"{MARK} environment]"


def test_code_is_untouched() -> None:
    """Ordinary source text passes unchanged, so that search blocks still match it."""
    redact = Redactor({})
    for path in Path(package.__file__).parent.parent.rglob("*.py"):
        if path.name != "redact.py":
            text = path.read_text()
            assert redact(text) == text, path
    for line in (
        'special_token = "<|endoftext|>"',
        "n_tokens = 17_000",
        "risk-averse-optimization-step-2",
        "the bearer of news",
    ):
        assert redact(line) == line


def test_redaction_is_stable() -> None:
    """Redacting twice is redacting once: a cached prefix must not change."""
    redact = Redactor({"MY_TOKEN": "environment-token-1"})
    text = " ".join(SECRETS) + " environment-token-1"
    assert redact(redact(text)) == redact(text)


def test_clean_strips_terminal_codes() -> None:
    """Colours, titles, bells, carriage returns and direction marks go; tabs and lines stay."""
    text = "\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07\tx\r\ny\rz \u202eabc\u200b \x9b2J\ud800"
    assert clean(text) == "red bell\tx\ny\nz abc 2J"


@settings(deadline=None)  # the machine may be busy
@given(st.text())
def test_clean_leaves_nothing_to_hide(text: str) -> None:
    """Cleaned text can be encoded and holds no control characters but tabs and line ends."""
    cleaned = clean(text)
    cleaned.encode()
    assert not [c for c in cleaned if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]


def test_ending_keeps_the_end() -> None:
    """A long log keeps its last characters and says how many went."""
    assert ending("a" * 50 + "the error", 9) == "[... 50 earlier characters left out ...]\nthe error"
    assert ending("short", 9) == "short"


@settings(deadline=None)  # the machine may be busy
@given(st.text(), st.integers(1, 50))
def test_one_line(text: str, limit: int) -> None:
    """One line is one line, within its limit."""
    line = one_line(text, limit)
    assert "\n" not in line
    assert len(line) <= limit
