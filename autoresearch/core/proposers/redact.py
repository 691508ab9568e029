"""Secrets out of everything that is sent, stored or printed; control characters out of everything captured."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

__all__ = ["MARK", "Redactor", "clean", "ending", "one_line"]

MARK = "[redacted:"
"""How every replacement begins; an answer that contains it would write a hole into the artifact."""

_SHORTEST_VALUE = 8  # a shorter value is as likely a word of the text as the secret

# Words of a variable's name, between underscores, that say its value is a secret.
_SECRET_WORD = re.compile(
    "(?:^|_)(?:apikey|auth|authorization|bearer|credentials?|dsn|keys?|passphrase|passwd|password|pat|pwd|secrets?|tokens?"
    "|webhook)(?:_|$)",
    re.IGNORECASE,
)
# Variables whose names only look like it.
_HARMLESS = frozenset({"GPG_KEY", "OLDPWD", "PWD", "SSH_AUTH_SOCK"})

_SHAPES: tuple[tuple[str, str], ...] = (
    ("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    ("Anthropic key", r"\bsk-ant-[A-Za-z0-9_\-]{8,}"),
    ("API key", r"\bsk-(?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-]{20,}"),
    ("AWS key id", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    ("AWS secret", r"(?i)(?<=aws_secret_access_key)(\W{1,5})[A-Za-z0-9/+=]{40}"),
    ("AWS session", r"(?i)(?<=aws_session_token)(\W{1,5})[A-Za-z0-9/+=]{40,}"),
    ("GitHub token", r"\b(?:gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    ("GitLab token", r"\bglpat-[A-Za-z0-9_\-]{16,}"),
    ("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9\-]{10,}"),
    ("Google key", r"\bAIza[A-Za-z0-9_\-]{30,}"),
    ("Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}"),
    ("PyPI token", r"\bpypi-[A-Za-z0-9_\-]{40,}"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{30,}"),
    ("Stripe key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("JSON web token", r"\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*"),
    ("bearer token", r"(?i)(\bbearer\s+)(?=[^\s\"']*[0-9])[A-Za-z0-9._~+/\-]{16,}=*"),
    ("API key header", r"(?i)(\bx-api-key[\"']?\s*[:=]\s*[\"']?)[^\s\"',]{8,}"),
    ("password in a URL", r"(?<=://)([^\s/:@]*:)[^\s/@]{3,}(?=@)"),
    (
        "password",
        r"(?i)(\b(?:password|passwd|api_key|apikey|secret_key|client_secret)[\"']?\s*[:=]\s*[\"'])[^\"'\n]{6,}",
    ),
)
_COMPILED = tuple((name, re.compile(pattern, re.DOTALL)) for name, pattern in _SHAPES)

# An escape sequence is removed whole: without its first character the rest would stay as litter.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_KEPT_CONTROLS = frozenset("\n\t")
# Cc: controls. Cf: invisible marks and direction overrides, which show a person another text than the model reads.
# Cs: halves of surrogate pairs, which no UTF-8 can carry. Co: private use.
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co"})


class Redactor:
    """Replaces secrets by `[redacted: what it was]`.

    Two ways lead to a secret: its shape (keys of well-known services) and its place (the values of variables in
    `environ` whose names speak of a key, token or password). Neither finds every secret; nothing can.

    Args:
        environ: The environment whose secret values are to be hidden, usually `os.environ`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {value.strip() for name, value in environ.items() if _names_a_secret(name)}
        # Longest first: a secret that contains another one must not be left in pieces.
        self._values = sorted((v for v in values if len(v) >= _SHORTEST_VALUE), key=lambda v: (-len(v), v))

    def __call__(self, text: str) -> str:
        """Return `text` without the secrets that are recognised; the same text gives the same answer."""
        for value in self._values:
            text = text.replace(value, f"{MARK} environment]")
        for name, pattern in _COMPILED:
            # The one group that a pattern may have is what stands before the secret and stays.
            text = pattern.sub(rf"\g<1>{MARK} {name}]" if pattern.groups else f"{MARK} {name}]", text)
        return text


def _names_a_secret(name: str) -> bool:
    return name not in _HARMLESS and _SECRET_WORD.search(name) is not None


def clean(text: str) -> str:
    """Return captured text without escape sequences, control characters and invisible marks; line ends become \\n."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(c for c in text if c in _KEPT_CONTROLS or unicodedata.category(c) not in _DROPPED)


def ending(text: str, limit: int) -> str:
    """Return the last `limit` characters and say what was left out; programs say last what killed them."""
    if len(text) <= limit:
        return text
    return f"[... {len(text) - limit} earlier characters left out ...]\n{text[-limit:]}"


def one_line(text: str, limit: int) -> str:
    """Return `text` cleaned, as a single line of at most `limit` characters; a longer text keeps its start."""
    text = " ".join(clean(text).split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
