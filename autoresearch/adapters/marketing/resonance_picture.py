"""A picture of the map: effects with their intervals, as SVG."""

from __future__ import annotations

from html import escape

from autoresearch.adapters.marketing.resonance import Level, ResonanceMap

_ROW, _LEFT, _WIDTH, _TOP = 22, 230, 760, 58
_COLOURS = {Level.RULE: "#0b6e4f", Level.CLAIM: "#1f5fa8", Level.CANDIDATE: "#8a8f98"}


def picture(shown: ResonanceMap, most: int = 40) -> str:
    """Return the map's first effects with their intervals, as an SVG element of its own or for inside a page.

    It fetches nothing, and every row has a title that reads as a sentence would.
    """
    effects = shown.effects[:most]
    reach = max((max(abs(effect.low), abs(effect.high)) for effect in effects), default=0.0) or 0.01
    middle, half = (_LEFT + _WIDTH) / 2.0, (_WIDTH - _LEFT) / 2.0 - 40.0

    def across(value: float) -> str:
        return f"{middle + half * value / reach:.1f}"

    rows = []
    for number, effect in enumerate(effects):
        y, colour = _TOP + _ROW * number + _ROW / 2.0, _COLOURS[effect.level]
        words = f"{effect.named}: {effect.shrunk:+.1%}, {effect.low:+.1%} to {effect.high:+.1%}, {effect.level.value}"
        rows.append(
            f'<g><title>{escape(words)}</title><text x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">'
            f'{escape(effect.tag)}</text><line x1="{across(effect.low)}" x2="{across(effect.high)}" y1="{y:.1f}" '
            f'y2="{y:.1f}" stroke="{colour}" stroke-width="2"/><circle cx="{across(effect.shrunk)}" cy="{y:.1f}" r="4" '
            f'fill="{colour}"/></g>'
        )
    height = _TOP + _ROW * len(effects) + 34
    legend = "".join(
        f'<circle cx="{_LEFT + 150 * place}" cy="36" r="4" fill="{_COLOURS[level]}"/>'
        f'<text x="{_LEFT + 10 + 150 * place}" y="40">{level.value}</text>'
        for place, level in enumerate(_COLOURS)
    )
    axis = "".join(
        f'<text x="{across(part * reach)}" y="{height - 8}" text-anchor="middle">{part * reach:+.0%}</text>'
        for part in (-1.0, -0.5, 0.0, 0.5, 1.0)
    )
    title = f"What resonates: change of the rate by tag, {shown.tests:,} tests, 90 % intervals"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"><title>{escape(title)}</title>'
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>{legend}<line x1="{middle}" x2="{middle}" '
        f'y1="{_TOP}" y2="{height - 24}" stroke="currentColor" stroke-dasharray="3 3"/>{"".join(rows)}{axis}</svg>\n'
    )
