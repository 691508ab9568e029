"""Knobs: the literal constants of an artifact and the choices that an adapter declares.

`find_knobs` reads the constants of Python files from their syntax tree, and declared values of TOML files. `turn`
replaces exactly the text of one literal: comments, layout and line ends stay as they are, so turning a knob and turning
it back restores every byte.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from autoresearch.core.proposers.toml_values import find_values

if TYPE_CHECKING:
    from autoresearch.core.artifact import Artifact

__all__ = ["FoundKnob", "Knob", "category_of", "find_knobs", "turn", "turn_all"]


@dataclass(frozen=True, slots=True)
class Knob:
    """Something in the artifact that can be turned by replacing one literal.

    An adapter declares knobs to say more than the text shows; a declared knob replaces a found one of the same name.

    Attributes:
        name: Name of the constant as the source has it (`MATRIX_LR`, `Config.depth`, `ADAM_BETAS[0]` for an element).
        path: File that holds it, relative to the workspace.
        category: Kind of idea that turning it is.
        choices: Source texts to choose from (`("True", "False")`, `('"SSSL"', '"L"')`); empty for a number on a ladder.
        low: Smallest sensible value; None without.
        high: Largest sensible value; None without.
        log: True for multiplicative steps, False for additive ones, None to decide by the value.
        power_of_two: True where the value stays a power of two; None to decide by the value.
        frozen: True to keep the search away from a constant that it would find (a seed).
    """

    name: str
    path: str
    category: str = "constants"
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool | None = None
    power_of_two: bool | None = None
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class FoundKnob:
    """A knob where it stands in one artifact.

    Attributes:
        knob: As declared by the adapter, else as guessed from the name.
        source: Text of the literal (`0.02`, `-1`, `2**16`).
        value: Its value; None for a declared choice that is no number.
        start: Index of its first byte in the UTF-8 text of the file.
        end: Index after its last byte.
    """

    knob: Knob
    source: str
    value: bool | int | float | None
    start: int
    end: int

    @property
    def name(self) -> str:
        """Name of the constant, `Class.name` inside a class."""
        return self.knob.name

    @property
    def path(self) -> str:
        """File that holds it."""
        return self.knob.path


def find_knobs(artifact: Artifact, declared: Sequence[Knob] = ()) -> list[FoundKnob]:
    """Return the knobs of `artifact`, in the order of its files and lines.

    Found are constants that get a literal number or boolean and are assigned nowhere else: `NAME = literal` at the top
    of a module or in a class (dataclass defaults), annotated or not, elements of a tuple of numbers, and products and
    powers of literals (`2**16`). Enumerations are left alone, and so are seeds, versions and what only steers output.
    A declared knob is found whatever its name, and with `choices` whatever its literal; one that the text does not hold
    is left out. A file that Python cannot parse has no knobs.

    Args:
        artifact: Where to look; `.py` files, and `.toml` files for the declared knobs of theirs (`table.key`).
        declared: Knobs of the adapter, by name and path; `frozen` ones are left out of the result.
    """
    known = {(knob.path, knob.name): knob for knob in declared}
    found: list[FoundKnob] = []
    for path, text in artifact.files.items():
        if path.endswith(".py"):
            found.extend(_find_in_file(path, text, known))
        elif path.endswith(".toml"):
            found.extend(_find_in_toml(path, text, declared))
    return found


def turn(artifact: Artifact, found: FoundKnob, new_source: str) -> Artifact:
    """Return `artifact` with `new_source` in place of the literal of `found`, which must have been found in it.

    Raises:
        ValueError: If the text at that place is not the literal, as when `found` comes from another artifact.
    """
    return turn_all(artifact, [(found, new_source)])


def turn_all(artifact: Artifact, turns: Sequence[tuple[FoundKnob, str]]) -> Artifact:
    """Return `artifact` with several knobs turned at once, any number of them in one file.

    Raises:
        ValueError: If the text at a place is not the literal, or two of the turns are of the same knob.
    """
    texts: dict[str, bytes] = {}
    # From the end to the beginning, so that no replacement moves a place that is still to come.
    for found, new_source in sorted(turns, key=lambda pair: pair[0].start, reverse=True):
        text = texts.get(found.path)
        if text is None:
            text = artifact.files.get(found.path, "").encode()
        if text[found.start : found.end] != found.source.encode():
            raise ValueError(
                f"{found.path} does not hold {found.name} = {found.source} where it was found: the artifact is another "
                "one, or the knob was turned twice. Find the knobs again."
            )
        texts[found.path] = text[: found.start] + new_source.encode() + text[found.end :]
    return artifact.replace({path: text.decode() for path, text in texts.items()})


# Which words of a name tell what kind of idea it is; the first line that matches counts. `WARMUP_LR` is schedule, not
# optimizer, so the more special word comes first.
_CATEGORIES: tuple[tuple[str, frozenset[str]], ...] = (
    ("init", frozenset({"INIT", "INITIAL", "INITIALIZER"})),
    ("schedule", frozenset({"WARM", "WARMUP", "WARMDOWN", "COOLDOWN", "SCHEDULE", "FINAL", "ANNEAL"})),
    ("regularization", frozenset({"DROPOUT", "WD", "REGULARIZATION", "SMOOTHING", "PENALTY", "SOFTCAP", "CAP"})),
    (
        "optimizer",
        frozenset(
            {"LR", "RATE", "BETA", "BETAS", "BETA1", "BETA2", "DECAY", "MOMENTUM", "EPS", "EPSILON", "CLIP", "NS"}
        ),
    ),
    ("batch", frozenset({"BATCH", "CONTEXT", "SEQ", "SEQUENCE", "BLOCK", "ACCUM", "ACCUMULATION"})),
    (
        "architecture",
        frozenset(
            {"DEPTH", "WIDTH", "HEAD", "HEADS", "LAYER", "LAYERS", "DIM", "EMBD", "EMBED", "HIDDEN", "MLP", "EXPANSION"}
            | {"WINDOW", "ROPE", "ROTARY", "KV", "ASPECT", "RATIO", "NORM", "QK", "TIE", "TIED", "BIAS", "ACTIVATION"}
        ),
    ),
)

_INERT = frozenset({"SEED", "VERSION", "VERBOSE", "DEBUG", "LOG", "LOGGING", "PRINT", "PORT", "TIMEOUT", "DEVICE"})
_ENUMERATIONS = frozenset({"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"})
_LONGEST_TUPLE = 8  # longer ones are tables, not settings


def category_of(name: str) -> str:
    """Return the kind of idea that turning a constant of this name is, `constants` where the name does not tell."""
    words = words_of(name)
    for category, telling in _CATEGORIES:
        if words & telling:
            return category
    return "constants"


def words_of(name: str) -> frozenset[str]:
    """Return the words of a name in capitals: `Config.headDim` has CONFIG, HEAD and DIM."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return frozenset(word for word in re.split(r"[^A-Za-z0-9]+", spaced.upper()) if word)


@dataclass(frozen=True, slots=True)
class _Literal:
    """One constant of a text: name, literal, value, and its place in bytes."""

    name: str
    source: str
    value: bool | int | float | None
    start: int
    end: int


def _find_in_file(path: str, text: str, known: Mapping[tuple[str, str], Knob]) -> Iterator[FoundKnob]:
    for literal in _literals_of(text):
        declared = known.get((path, literal.name))
        knob = declared or _guess(literal.name, path)
        if not knob.frozen and (literal.value is not None or (declared is not None and declared.choices)):
            yield FoundKnob(knob, literal.source, literal.value, literal.start, literal.end)


def _find_in_toml(path: str, text: str, declared: Sequence[Knob]) -> Iterator[FoundKnob]:
    """Yield the declared knobs of a TOML file; which of its other values are settings cannot be told."""
    known = {knob.name: knob for knob in declared if knob.path == path and not knob.frozen}
    if not known:
        return
    for name, at in find_values(text, known).items():
        if at.value is not None or known[name].choices:
            yield FoundKnob(known[name], at.source, at.value, at.start, at.end)


def _guess(name: str, path: str) -> Knob:
    """Return the knob that a constant is taken for when nobody declares it."""
    return Knob(name, path, category_of(name), frozen=bool(words_of(name) & _INERT))


@lru_cache(maxsize=64)  # parsing is most of what a proposal costs, and baseline and incumbent come again and again
def _literals_of(text: str) -> tuple[_Literal, ...]:
    """Return the constants of a Python text, in order; none where it cannot be parsed."""
    tree = _parse(text)
    if tree is None:
        return ()
    raw = text.encode()
    starts = _line_starts(raw)
    found = []
    for name, node in _literals(tree.body, ""):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        source = raw[start:end].decode()
        found.append(_Literal(name, source, _value(node, source), start, end))
    return tuple(found)


def _parse(text: str) -> ast.Module | None:
    """Return the syntax tree, or None for a text that Python cannot parse."""
    try:
        with warnings.catch_warnings():
            # An invalid escape in the candidate's text is no warning of ours, whichever class this Python gives it.
            warnings.simplefilter("ignore")
            return ast.parse(text.removeprefix("\ufeff"))  # Python runs files with the mark, but parses no such string
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # ValueError: null bytes or lone surrogates; the other two: nesting too deep for the parser. A file that cannot
        # be parsed has no knobs, and the loop's own check refuses the candidate with the line.
        return None


def _line_starts(raw: bytes) -> list[int]:
    """Return the index of the first byte of every line as the parser counts lines; its columns are bytes as well."""
    starts = [0]
    starts.extend(match.end() for match in re.finditer(rb"\r\n|\r|\n", raw))
    if raw.startswith(b"\xef\xbb\xbf"):
        starts[0] = 3  # the mark was taken off for the parser
    return starts


def _literals(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of every constant of a module or class that is assigned once, with elements of tuples."""
    stores = Counter(_stored_names(body))
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            if not _is_enumeration(statement):
                yield from _literals(statement.body, f"{prefix}{statement.name}.")
            continue
        name, value = _assignment(statement)
        if value is None or stores[name] != 1 or (name.startswith("__") and name.endswith("__")):
            continue
        yield f"{prefix}{name}", value
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) <= _LONGEST_TUPLE:
            for index, element in enumerate(value.elts):
                yield f"{prefix}{name}[{index}]", element


def _assignment(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """Return name and value of `NAME = value` or `NAME: type = value`; value None for any other statement."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return "", None
    return (target.id, value) if isinstance(target, ast.Name) else ("", None)


def _stored_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield every name as often as it is assigned in this scope, in loops and branches too, not in functions."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def _is_enumeration(statement: ast.ClassDef) -> bool:
    """Say whether the members of a class are names rather than settings."""
    bases = (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in statement.bases)
    return any(base in _ENUMERATIONS for base in bases)


def _value(node: ast.expr, source: str) -> bool | int | float | None:
    """Return the value of a number, a boolean, or a product or power of numbers; None for anything else."""
    if isinstance(node, ast.Constant):
        # Hexadecimal, octal and binary numbers are masks and addresses, not settings.
        is_number = type(node.value) in (bool, int, float) and source[:2].lower() not in ("0x", "0o", "0b")
        return node.value if is_number else None  # type: ignore[return-value]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = _number(node.operand)
        return None if operand is None else (-operand if isinstance(node.op, ast.USub) else operand)
    if isinstance(node, ast.BinOp):
        return _product(node)
    return None


def _number(node: ast.expr) -> int | float | None:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    return None


def _product(node: ast.BinOp) -> int | float | None:
    """Return the value of `a * b` or `a ** b` over literals, within what a setting could be."""
    left = _product(node.left) if isinstance(node.left, ast.BinOp) else _number(node.left)
    right = _number(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Pow) and 0 < left <= 1024 and 0 <= right <= 64:
        value: int | float = left**right
        return value
    return None
