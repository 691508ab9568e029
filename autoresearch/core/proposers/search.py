"""`search`: offline hypotheses by turning one knob at a time; no key, no network, no cost.

Which knob is a question of what is untried, what has paid and what usually matters; how far, once a knob has been tried
before, is asked of Optuna's TPE. Nothing is remembered between calls: everything is rebuilt from the history in the
request, so the same seed and history give the same proposal, in another process or a year later.

    read knobs -> replay the history -> weigh every open move -> choose the knob -> choose the rung -> say why
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoresearch.core.adapter import Outcome
from autoresearch.core.artifact import Artifact, in_scope
from autoresearch.core.errors import NothingLeftToProposeError
from autoresearch.core.proposers import Change, CostEstimate, PastExperiment, Proposal, ProposalRequest
from autoresearch.core.proposers.knobs import FoundKnob, find_knobs, turn_all, words_of
from autoresearch.core.proposers.ladders import Ladder, ladder_of
from autoresearch.core.proposers.reasons import reason_for

__all__ = ["SearchProposer"]

_PAIR_SHARE = 0.1  # share of proposals that join two near misses, where there are two
_RESTLESSNESS = 0.5  # scale of the Gumbel noise on the log of a weight: a knob of twice the weight wins four in five
_RECENT = 3  # experiments back that make a category wait its turn
_ASK_TPE_FROM = 2  # attempts of one knob; with fewer there is nothing to fit
_LONGEST_SHOWN = 60  # characters of a literal in a hypothesis
_TPE_ASKS = 3  # suggestions to look at before going by weight, as many fall on what was tried already

# Weights by word of the name: learning rates first, then sizes and batches, then what shapes a schedule. A prior only;
# the history soon says more.
_INFLUENCE: tuple[tuple[frozenset[str], float], ...] = (
    # Spellings of the same work, or too weak to see: a device batch only cuts up the effective one.
    (frozenset({"EPS", "EPSILON", "DEVICE"}), 0.3),
    (frozenset({"LR"}), 3.0),
    (frozenset({"RATE"}), 3.0),
    (frozenset({"DEPTH", "LAYER", "LAYERS", "WIDTH", "ASPECT", "DIM", "EMBD", "BATCH"}), 2.0),
    (frozenset({"WARMDOWN", "COOLDOWN", "WARMUP", "DECAY", "BETA", "BETAS", "MOMENTUM", "CONTEXT", "WINDOW"}), 1.5),
)
_UNDECLARED = 0.3  # where an adapter says what may be turned, a constant that it does not name comes late


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One earlier turn of one knob."""

    old: str
    new: str
    outcome: Outcome
    effect: float | None
    number: int


@dataclass(frozen=True, slots=True)
class _Dial:
    """A knob as it stands in the incumbent, with its ladder and what was tried of it."""

    label: str
    found: FoundKnob
    ladder: Ladder
    at: float
    declared: bool
    attempts: tuple[_Attempt, ...]


@dataclass(frozen=True, slots=True)
class _Move:
    """Turning one dial to one rung; `weight` says how promising."""

    dial: _Dial
    rung: int
    weight: float

    @property
    def change(self) -> Change:
        return Change(self.dial.label, self.dial.found.source, self.dial.ladder.sources[self.rung])

    @property
    def steps(self) -> float:
        return self.rung - self.dial.at


@dataclass(slots=True)
class _Memory:
    """What the history says, by knob and as a whole."""

    attempts: dict[str, list[_Attempt]] = field(default_factory=dict)
    tried: set[frozenset[tuple[str, str, str]]] = field(default_factory=set)
    fingerprints: set[str] = field(default_factory=set)
    categories: list[str] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    keeps: Counter[str] = field(default_factory=Counter)
    last_kept: bool = False


class SearchProposer:
    """Proposes to turn one constant of the artifact, rarely two that nearly paid.

    Args:
        seed: Together with the history it determines every proposal.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    @property
    def name(self) -> str:
        """`search`."""
        return "search"

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        """Return zero dollars and tokens: nothing leaves the machine."""
        return CostEstimate(usd=0.0, tokens=0, seconds=0.05, basis="offline search, free of cost")

    def propose(self, request: ProposalRequest) -> Proposal:
        """Form one proposal from the history in the request.

        Raises:
            NothingLeftToProposeError: If the artifact has no knob, or every move that its knobs allow was tried.
        """
        memory = _remember(request)
        dials = _dials(request, memory)
        rng = random.Random(f"{self._seed}/{request.seed}/{request.number}/{len(request.history)}")
        for moves in _in_order(dials, memory, request, rng):
            artifact = turn_all(request.artifact, [(move.dial.found, move.change.new) for move in moves])
            if artifact.fingerprint not in memory.fingerprints:
                return _proposal(moves, artifact, request)
        raise NothingLeftToProposeError(
            f"All that {len(dials)} knobs allow from here has been tried. Widen their ranges or add constants to the "
            "artifact, or let a language model propose: autoresearch run --proposer claude"
        )


def _remember(request: ProposalRequest) -> _Memory:
    """Replay the history, and with it the candidates of this experiment that crashed."""
    memory = _Memory(fingerprints={request.artifact.fingerprint, request.baseline.fingerprint})
    for past in request.history:
        memory.fingerprints.add(past.fingerprint)
        memory.categories.append(past.category)
        memory.tries[past.category] += 1
        memory.keeps[past.category] += past.outcome is Outcome.KEPT
        memory.last_kept = past.outcome is Outcome.KEPT
        _remember_changes(memory, past)
    for beside in request.beside:
        memory.fingerprints.add(beside.fingerprint)
        if beside.changes:
            memory.tried.add(_key(beside.changes))
    if request.failed is not None:
        failed = request.failed.proposal
        memory.fingerprints.add(failed.artifact.fingerprint)
        _remember_crashes(memory, (*_crashed_before(failed.details), failed.changes), request.number)
    return memory


def _remember_changes(memory: _Memory, past: PastExperiment) -> None:
    if past.changes:
        memory.tried.add(_key(past.changes))
    _remember_crashes(memory, _crashed_before(past.details), past.number)
    if len(past.changes) > 1 and past.outcome is not Outcome.KEPT:
        return  # which of the two was to blame is not known
    for change in past.changes:
        effect = None if past.effect is None else past.effect / len(past.changes)
        attempt = _Attempt(change.old, change.new, past.outcome, effect, past.number)
        memory.attempts.setdefault(change.knob, []).append(attempt)


def _remember_crashes(memory: _Memory, crashes: Sequence[tuple[Change, ...]], number: int) -> None:
    for changes in crashes:
        if changes:
            memory.tried.add(_key(changes))
        if len(changes) == 1:
            attempt = _Attempt(changes[0].old, changes[0].new, Outcome.CRASHED, None, number)
            memory.attempts.setdefault(changes[0].knob, []).append(attempt)


def _crashed_before(details: Mapping[str, object]) -> tuple[tuple[Change, ...], ...]:
    """Read back from a proposal's details which candidates of the same experiment had crashed before it."""
    crashed = details.get("crashed", ())
    if not isinstance(crashed, list | tuple):
        return ()  # another proposer's details
    return tuple(tuple(Change(*map(str, change)) for change in changes) for changes in crashed)


def _key(changes: Sequence[Change]) -> frozenset[tuple[str, str, str]]:
    return frozenset((change.knob, change.old, change.new) for change in changes)


def _dials(request: ProposalRequest, memory: _Memory) -> list[_Dial]:
    """Return every knob of the incumbent with its ladder.

    Raises:
        NothingLeftToProposeError: If there is none.
    """
    everything = find_knobs(request.artifact, request.knobs)
    found = [knob for knob in everything if in_scope(knob.path, request.scope.editable)]
    if not found:
        raise NothingLeftToProposeError(
            "The artifact has no constant that offline search could turn: it looks for NAME = number at the top of "
            "Python files and in classes, and for the knobs that the adapter declares. Name some constants, or let a "
            "language model propose: autoresearch run --proposer claude"
        )
    # A knob's ladder hangs on the baseline's value; a constant that came in later starts from where it is now.
    first = {(knob.path, knob.name): knob for knob in find_knobs(request.baseline, request.knobs)}
    declared = {(knob.path, knob.name) for knob in request.knobs}
    names = Counter(knob.name for knob in found)
    dials = []
    for knob in found:
        key = (knob.path, knob.name)
        label = knob.name if names[knob.name] == 1 else f"{knob.path}:{knob.name}"
        ladder = ladder_of(first.get(key, knob))
        at = ladder.position(knob.source)
        if at is None:  # no rung: its kind has changed since the baseline
            ladder = ladder_of(knob)
            at = ladder.position(knob.source)
        if at is not None:
            attempts = tuple(memory.attempts.get(label, ()))
            dials.append(_Dial(label, knob, ladder, at, not declared or key in declared, attempts))
    return dials


def _in_order(
    dials: Sequence[_Dial], memory: _Memory, request: ProposalRequest, rng: random.Random
) -> Iterator[tuple[_Move, ...]]:
    """Yield what to propose, most wanted first, each once; what this experiment was refused already is passed over."""
    moves = [move for dial in dials for move in _open_moves(dial, memory)]
    elsewhere = [move for move in moves if move.dial.found.knob.category not in request.avoid_categories]
    pairs = _pairs(dials, memory, request.avoid_categories)
    lucky = [rng.choice(pairs)] if pairs and rng.random() < _PAIR_SHARE else []
    # A category on a plateau is better than no idea at all, so it comes when the others are used up.
    chain = itertools.chain(
        _smaller_steps(moves, request), lucky, _ranked(elsewhere, memory, rng), _ranked(moves, memory, rng), pairs
    )
    yield from itertools.islice(_once(chain), len(request.refused), None)


def _once(choices: Iterable[tuple[_Move, ...]]) -> Iterator[tuple[_Move, ...]]:
    """Yield every choice the first time that it comes."""
    seen: set[frozenset[tuple[str, str, str]]] = set()
    for choice in choices:
        key = _key([move.change for move in choice])
        if key not in seen:
            seen.add(key)
            yield choice


def _open_moves(dial: _Dial, memory: _Memory) -> Iterator[_Move]:
    """Yield the moves of one dial that were never tried, weighed."""
    for rung, source in enumerate(dial.ladder.sources):
        if source == dial.found.source or rung == dial.at:
            continue
        if _key([Change(dial.label, dial.found.source, source)]) not in memory.tried:
            yield _Move(dial, rung, _weight(dial, rung))


def _weight(dial: _Dial, rung: int) -> float:
    """Return how promising a move is, from its name and what was tried of its knob; 1 for an ordinary first try."""
    weight = _influence(dial.found.name) * (1.0 if dial.declared else _UNDECLARED)
    weight /= 1.0 + 0.5 * sum(attempt.outcome is not Outcome.KEPT for attempt in dial.attempts)
    if not dial.ladder.ordered:
        return weight
    paid = _paid_direction(dial)
    direction = _sign(rung - dial.at)
    preferred_steps = 2.0 if paid == direction and _wins_in_a_row(dial) > 1 else 1.0
    weight *= float(0.4 ** abs(abs(rung - dial.at) - preferred_steps))
    if paid:
        # What paid may pay again; where the incumbent came from is known already.
        weight *= 3.0 if direction == paid else 0.1
    return weight * _lessons(dial, rung)


def _influence(name: str) -> float:
    words = words_of(name)
    return next((weight for telling, weight in _INFLUENCE if words & telling), 1.0)


def _lessons(dial: _Dial, rung: int) -> float:
    """Return what attempts from the present value say of a move to `rung`, as a factor."""
    direction = _sign(rung - dial.at)
    factor, untried = 1.0, True
    behind: list[float] = []
    for attempt in dial.attempts:
        old, new = dial.ladder.position(attempt.old), dial.ladder.position(attempt.new)
        if old is None or new is None or abs(old - dial.at) >= 0.5 or new == dial.at:
            continue
        if _sign(new - dial.at) == direction:
            untried = False
            factor *= _lesson_ahead(attempt, is_further=abs(rung - dial.at) > abs(new - dial.at))
        else:
            # Clearly worse on one side speaks for the other; no difference there promises little here.
            behind.append(0.7 if attempt.outcome is Outcome.INCONCLUSIVE else 1.3)
    return factor * max(behind) if behind and untried else factor


def _lesson_ahead(attempt: _Attempt, *, is_further: bool) -> float:
    """Return what an attempt in the same direction says of a further or a nearer rung, as a factor."""
    if attempt.outcome in (Outcome.CRASHED, Outcome.INVALID):
        return 0.02 if is_further else 0.5
    if attempt.outcome is Outcome.INCONCLUSIVE:
        hopeful = attempt.effect is not None and attempt.effect > 0
        return (0.8 if hopeful else 0.3) if is_further else 0.3
    return 0.1 if is_further else 0.4


def _paid_direction(dial: _Dial) -> int:
    """Return the direction of the kept turn that led to the present value; 0 without one."""
    for attempt in reversed(dial.attempts):
        if attempt.outcome is Outcome.KEPT:
            old, new = dial.ladder.position(attempt.old), dial.ladder.position(attempt.new)
            return _sign(new - old) if old is not None and new is not None and new == dial.at else 0
    return 0


def _wins_in_a_row(dial: _Dial) -> int:
    """Return how many of the last attempts of this knob were kept."""
    wins = itertools.takewhile(lambda attempt: attempt.outcome is Outcome.KEPT, reversed(dial.attempts))
    return sum(1 for _ in wins)


def _ranked(moves: Sequence[_Move], memory: _Memory, rng: random.Random) -> Iterator[tuple[_Move, ...]]:
    """Yield the best move of every dial, the most promising dial first, then all that is left by weight."""
    by_dial: dict[str, list[_Move]] = {}
    for move in moves:
        by_dial.setdefault(move.dial.label, []).append(move)
    scored = []
    for label, own in by_dial.items():
        weight = max(move.weight for move in own) * _turn_of(own[0].dial.found.knob.category, memory)
        scored.append((math.log(weight) + _RESTLESSNESS * _gumbel(rng), label))
    for _, label in sorted(scored, reverse=True):
        yield (_choose_rung(by_dial[label], rng),)
    yield from ((move,) for move in sorted(moves, key=lambda move: move.weight, reverse=True))


def _turn_of(category: str, memory: _Memory) -> float:
    """Return a factor that lets categories take turns, favours those that paid, and stays where it just paid."""
    recent = memory.categories[-_RECENT:]
    if memory.last_kept and recent[-1] == category:
        recent = []
    paid = (1.0 + memory.keeps[category]) / (1.0 + 0.3 * memory.tries[category])
    return float(0.5 ** recent.count(category) * paid)


def _gumbel(rng: random.Random) -> float:
    return -math.log(-math.log(rng.uniform(1e-12, 1.0 - 1e-12)))


def _choose_rung(moves: Sequence[_Move], rng: random.Random) -> _Move:
    """Return one of the moves of one dial: by weight while little is known of it, then as TPE suggests."""
    dial = moves[0].dial
    best = max(move.weight for move in moves)
    # A first try is a single step; later a longer one may do, if it is not much less promising.
    sound = [move for move in moves if move.weight >= (0.2 if dial.attempts else 0.99) * best]
    if len(dial.attempts) >= _ASK_TPE_FROM:
        by_rung = {move.rung: move for move in sound}
        for rung in _suggestions(dial, rng):
            if rung in by_rung:
                return by_rung[rung]
    return rng.choices(sound, [move.weight for move in sound])[0]


def _suggestions(dial: _Dial, rng: random.Random) -> Iterator[int]:
    """Yield rungs that TPE suggests from what is known of this knob alone.

    The study is of one knob, and a rung's value in it is the sum of the measured effects that lead there from the
    baseline's rung: what other knobs gained meanwhile does not blur it, and it stays small however long the run.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a line for every study would drown the run's own
    rungs = len(dial.ladder.sources)
    kind: optuna.distributions.BaseDistribution
    if dial.ladder.ordered:
        kind = optuna.distributions.IntDistribution(0, rungs - 1)
    else:
        kind = optuna.distributions.CategoricalDistribution(tuple(range(rungs)))
    sampler = optuna.samplers.TPESampler(seed=rng.randrange(2**32), n_startup_trials=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for rung, value in _standings(dial):
        study.add_trial(optuna.trial.create_trial(params={"rung": rung}, distributions={"rung": kind}, value=value))
    for _ in range(_TPE_ASKS):
        yield int(study.ask({"rung": kind}).params["rung"])


def _standings(dial: _Dial) -> Iterator[tuple[int, float]]:
    """Yield (rung, gain over the first rung seen) for the start and every attempt; a crash is worse than the worst."""
    standing: dict[int, float] = {}
    known = [attempt.effect for attempt in dial.attempts if attempt.effect is not None]
    bad = min([*known, 0.0]) - (max(map(abs, known)) if known else 1.0)
    for attempt in dial.attempts:
        old, new = dial.ladder.position(attempt.old), dial.ladder.position(attempt.new)
        if old is None or new is None:
            continue
        start, end = _rung(old, dial), _rung(new, dial)
        if start not in standing:
            standing[start] = 0.0
            yield start, 0.0
        gain = standing[start] + _gain(attempt, bad)
        standing[end] = gain
        yield end, gain


def _gain(attempt: _Attempt, bad: float) -> float:
    """Return the effect that an attempt teaches: inconclusive is neutral, what has no value is bad."""
    if attempt.outcome is Outcome.INCONCLUSIVE:
        return 0.0
    if attempt.outcome in (Outcome.CRASHED, Outcome.INVALID) or attempt.effect is None:
        return bad
    return attempt.effect


def _rung(position: float, dial: _Dial) -> int:
    """Return the rung at or next to a position."""
    return min(max(round(position), 0), len(dial.ladder.sources) - 1)


def _smaller_steps(moves: Sequence[_Move], request: ProposalRequest) -> Iterator[tuple[_Move, ...]]:
    """Yield, for a candidate that crashed, smaller steps of the same knob in the same direction, the largest first."""
    if request.failed is None or len(request.failed.proposal.changes) != 1:
        return
    crashed = request.failed.proposal.changes[0]
    for move in sorted(moves, key=lambda move: abs(move.steps), reverse=True):
        dial = move.dial
        to = dial.ladder.position(crashed.new) if dial.ladder.ordered and dial.label == crashed.knob else None
        if to is not None and _sign(to - dial.at) == _sign(move.steps) and abs(move.steps) < abs(to - dial.at):
            yield (move,)


def _pairs(dials: Sequence[_Dial], memory: _Memory, avoid: frozenset[str]) -> list[tuple[_Move, ...]]:
    """Return pairs of moves of one category that each came out better, but not by enough to be kept."""
    near = [move for dial in dials if dial.found.knob.category not in avoid for move in _near_misses(dial)]
    return [
        (first, second)
        for first, second in itertools.combinations(near, 2)
        if first.dial.label != second.dial.label
        and first.dial.found.knob.category == second.dial.found.knob.category
        and _key([first.change, second.change]) not in memory.tried
    ]


def _near_misses(dial: _Dial) -> Iterator[_Move]:
    for attempt in dial.attempts:
        unkept = attempt.outcome in (Outcome.REVERTED, Outcome.INCONCLUSIVE)
        if (
            unkept
            and attempt.old == dial.found.source
            and attempt.new in dial.ladder.sources
            and (attempt.effect or 0) > 0
        ):
            yield _Move(dial, dial.ladder.sources.index(attempt.new), 1.0)


def _proposal(moves: Sequence[_Move], artifact: Artifact, request: ProposalRequest) -> Proposal:
    details = {}
    if request.failed is not None:
        failed = request.failed.proposal
        crashed = (*_crashed_before(failed.details), failed.changes)
        details = {"crashed": [[[c.knob, c.old, c.new] for c in changes] for changes in crashed if changes]}
    return Proposal(
        hypothesis=_hypothesis(moves),
        category=moves[0].dial.found.knob.category,
        artifact=artifact,
        changes=tuple(move.change for move in moves),
        details=details,
    )


def _hypothesis(moves: Sequence[_Move]) -> str:
    """Return one sentence: what changes, and why the metric should move."""
    if len(moves) > 1:
        turns = " and ".join(_turn_in_words(move) for move in moves)
        return f"{turns[0].upper()}{turns[1:]}: each came out slightly better alone, together it may show."
    turn, move = _turn_in_words(moves[0]), moves[0]
    direction = _sign(move.steps) if move.dial.ladder.ordered else 0
    because = _past_in_words(move) or reason_for(move.dial.found.name, move.dial.found.knob.category, direction)
    return f"{turn[0].upper()}{turn[1:]}: {because}."


def _turn_in_words(move: _Move) -> str:
    found, change = move.dial.found, move.change
    if {change.old, change.new} == {"True", "False"}:
        return f"switch {found.name} {'on' if change.new == 'True' else 'off'} in {found.path}"
    verb = ("raise" if move.steps > 0 else "lower") if move.dial.ladder.ordered else "change"
    return f"{verb} {found.name} from {_in_short(change.old)} to {_in_short(change.new)} in {found.path}"


def _in_short(source: str) -> str:
    """Return a literal on one line, a long text cut: a hypothesis is one sentence, and the diff has it all."""
    line = " ".join(source.split())
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN].rstrip()}…"


def _past_in_words(move: _Move) -> str:
    """Return what an earlier attempt at this knob says for the move; empty where none does."""
    dial = move.dial
    if not dial.ladder.ordered or not dial.attempts:
        return ""
    direction = _sign(move.steps)
    verb = {1: "raising", -1: "lowering"}
    last = dial.attempts[-1]
    old, new = dial.ladder.position(last.old), dial.ladder.position(last.new)
    if old is None or new is None or old == new:
        return ""
    before = _sign(new - old)
    if last.outcome is Outcome.KEPT and before == direction:
        return f"{verb[direction]} it paid in experiment {last.number} and may pay again"
    if last.outcome is Outcome.REVERTED and before == -direction:
        return f"{verb[before]} it was worse in experiment {last.number}, so the other way may be better"
    if last.outcome is Outcome.INCONCLUSIVE and before == direction and abs(move.steps) > abs(new - dial.at):
        return f"the smaller step in experiment {last.number} was too small to tell"
    if last.outcome is Outcome.CRASHED and before == direction:
        return f"a step to {last.new} crashed in experiment {last.number}, a smaller one may hold"
    return ""


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
