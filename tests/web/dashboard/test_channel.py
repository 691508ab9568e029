"""The channel of a page's parts: each listener gets what it has not seen, and nothing is queued."""

from __future__ import annotations

import asyncio

from markupsafe import Markup

from autoresearch.web.dashboard.channel import Channel, as_event


def test_an_event_keeps_every_line() -> None:
    """Lines become lines of data, so that a browser puts the same text together again."""
    assert as_event("head", "<p>a</p>\n<p>b</p>", 7) == b"id: 7\nevent: head\ndata: <p>a</p>\ndata: <p>b</p>\n\n"
    assert as_event("head", "a\rb", 1).count(b"data:") == 2, "a lone carriage return ends a line of a stream, too"


def test_the_same_part_is_not_news() -> None:
    """A part that was rendered again and is the same is sent to nobody."""

    async def go() -> None:
        channel = Channel()
        assert channel.publish("head", Markup("a")) and not channel.publish("head", Markup("a"))
        assert channel.version == 1

    asyncio.run(go())


def test_a_slow_listener_gets_the_newest_of_each_part() -> None:
    """Who comes late gets every part once, as it is now, in the order of their change."""

    async def go() -> list[bytes]:
        channel = Channel()
        for number in range(100):
            channel.publish("head", Markup(f"h{number}"))
            channel.publish("now", Markup(f"n{number}"))
        stream = channel.stream(0)
        got = [await anext(stream), await anext(stream)]
        channel.close()
        assert [part async for part in stream] == []
        return got

    hello, news = asyncio.run(go())
    assert hello.startswith(b":")
    assert news == as_event("head", "h99", 199) + as_event("now", "n99", 200)


def test_a_listener_hears_only_what_it_has_not_seen() -> None:
    """A page that was made at version 2 gets the third change alone, and the channel knows how many listen."""

    async def go() -> None:
        channel = Channel()
        channel.publish("head", Markup("a"))
        channel.publish("now", Markup("b"))
        stream = channel.stream(channel.version)
        await anext(stream)
        assert channel.listeners == 1
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        channel.publish("now", Markup("c"))
        assert await waiting == as_event("now", "c", 3)
        await stream.aclose()  # type: ignore[attr-defined]
        assert channel.listeners == 0

    asyncio.run(go())
