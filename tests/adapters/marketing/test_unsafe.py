"""Markup, scripts, foreign addresses and deceiving characters are refused; honest text in any language is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.adapters.marketing.unsafe import hosts_in, skeleton, unsafe_parts


def parts(text: str, *hosts: str) -> list[str]:
    return list(unsafe_parts(text, hosts=hosts))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<script>alert(1)</script>", "is markup"),
        ("<b>bold</b>", "is markup"),
        ("a <img src=x", "is markup"),
        ("＜script＞", "is markup"),
        ("<!-- x", "is markup"),
        ("&lt;b&gt;", "is a character code"),
        ("&#106;avascript", "is a character code"),
        ("\\u003cscript", "is a character code"),
        ("java\u200bscript:alert(1)", "is a script address"),
        ("JavaScript :void", "is a script address"),
        ("data:text/html;base64,AAAA", "is a script address"),
        ("vbscript:x", "is a script address"),
        ("{{ sender.email }}", "is template code"),
        ("{% if x %}", "is template code"),
        ("${jndi}", "is template code"),
        ("*|FNAME|*", "is template code"),
        ('x" onmouseover="y', "is an event handler"),
        ("style='x'", "is a style"),
        ("[here](https://evil.example)", "is a Markdown link"),
        ("https://evil.example/x", "names"),
        ("visit evil.com today", "“evil.com” is an address"),
        ("write to me@evil.com", "“me@evil.com” is an address"),
        ("ftp://www.example.com", "is an address"),
        ("https://example.com@evil.net", "is an address"),
        ("pay\u202emoc.elpmaxe", "turns the reading direction"),
        ("\u2066x\u2069", "turns the reading direction"),
        ("fr\u200bee", "is invisible"),
        ("fr\u200dee", "is invisible"),
        ("fr\u00adee", "is invisible"),
        ("a\u200eb", "is invisible"),
        ("x\U000e0041", "is invisible"),
        ("\ufeffx", "is invisible"),
        ("a\u2028b", "is invisible"),
        ("a\x00b", "is no character that can be shown"),
        ("a\tb", "is no character that can be shown"),
        ("\ue000", "is no character that can be shown"),
        ("𝐅ree", "only imitates a letter"),
        ("ⓕree", "only imitates a letter"),
        ("Ｆree", "only imitates a letter"),
        ("Paypаl", "mixes letters of several alphabets"),
        ("Gооgle", "mixes letters of several alphabets"),
        ("Z͑ͫ̓ͪ̂ͫ̽a", "four marks or more"),
    ],
)
def test_what_deceives_is_refused(text: str, said: str) -> None:
    """Each kind of injection and trick is named."""
    assert any(said in sentence for sentence in parts(text, "example.com")), parts(text)


@pytest.mark.parametrize(
    "text",
    [
        "5 < 6 and 7 > 3, a < b, i <3 you, Tom & Jerry, a&b; 100 % {ok} $5",
        "It's “quoted” – really… 'yes'",
        "Größe, façade, Łódź, naïve, ¡Olé! ¿Qué?",
        "Привет, мир",
        "Ελληνικά και 5 μg",
        "שלום עולם\u200f, 5 ₪",
        "می\u200cخواهم",
        "हिन्दी क्\u200dष",
        "日本語のテキスト、中文",
        "한국어 문장",
        "ไทย ที่ น้ำ",
        "👩\u200d🍳 ☕️ 🇬🇧 ❤️",
        "H₂O, m², 1º, ½, ™ ©",
        "Two lines\nare fine",
        "Node.js, e.g. Mr.Smith and 3.5.2",
        "on time = good, Monday= yes",
        "Tiếng Việt rõ ràng",
        "See www.example.com/trial or hello@mail.example.com",
    ],
)
def test_honest_text_passes(text: str) -> None:
    """Signs, scripts and emoji that people write pass, and so do the campaign's own addresses."""
    assert parts(text, "example.com") == []


def test_hosts_are_found_in_facts() -> None:
    """Web and mail addresses name their hosts."""
    assert hosts_in("See https://www.a.example:80/x, b.com and c@d.org.") == {"a.example", "b.com", "d.org"}


def test_look_alikes_become_what_they_look_like() -> None:
    """Only words that mix alphabets are read as Latin."""
    assert skeleton("lеverаge привет") == "leverage привет"


@given(st.text(max_size=60))
def test_any_text_can_be_asked_about(text: str) -> None:
    """No text breaks the check, and every answer is a sentence."""
    assert all(sentence.endswith(".") for sentence in parts(text))
