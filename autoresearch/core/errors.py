"""The exceptions of autoresearch: the class says who is at fault, and with that what the loop does next.

    AutoresearchError
    ├── UsageError                  the person asked for something that cannot be: say so, exit 1
    ├── EnvironmentNotReadyError    the machine is at fault: stop the run, never book it on a candidate
    ├── CandidateError              the candidate is at fault: record it, keep the incumbent, go on
    │   ├── InvalidCandidateError   a gate failed, its value would not be the metric: outcome `invalid`
    │   └── CheckFailedError        it broke what must stay true: outcome `reverted`, reason `check failed`
    ├── ProposalError               the proposer failed: a row of its own with its cost, then try again
    │   ├── NothingLeftToProposeError   the proposer has no further idea: end the run with that reason
    │   └── BudgetExhaustedError        the next call could exceed the cap: end the run with that reason
    └── RunStoppedError             the loop ends the run by itself, and says why

Anything else that escapes is our bug and keeps its traceback. Every message says what happened, why, and what to do
next; callers print it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoresearch.core.proposers import Cost


class AutoresearchError(Exception):
    """Base of every error that is meant to be read by a person."""


class UsageError(AutoresearchError):
    """The request cannot be carried out as asked; nothing was changed."""


class EnvironmentNotReadyError(AutoresearchError):
    """A fault of the machine (no GPU, disk full, no network, key refused): every later measurement would be wrong."""


class CandidateError(AutoresearchError):
    """The candidate could not be measured, or gave an impossible value.

    Args:
        message: One or two sentences for the ledger, the log and the proposer.
        log_tail: The end of the candidate's output, which goes back to the proposer for a repair.
        early: True when the run was cut short because it was hopeless; the outcome is `reverted`, not `crashed`.
    """

    def __init__(self, message: str, *, log_tail: str = "", early: bool = False) -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.early = early


class InvalidCandidateError(CandidateError):
    """A gate failed (a leaking mask, a touched evaluator, an impossible value); no repair is asked for."""


class CheckFailedError(CandidateError):
    """The candidate works and breaks what must stay true, such as its tests; no repair is asked for."""


class ProposalError(AutoresearchError):
    """A proposal could not be had or used; it is written down with its cost, and the proposer is asked again.

    Args:
        message: What was wrong, in words that help the next attempt.
        cost: What the attempt cost; None when nothing was spent.
    """

    def __init__(self, message: str, *, cost: Cost | None = None) -> None:
        super().__init__(message)
        self.cost = cost


class NothingLeftToProposeError(ProposalError):
    """Every idea that this proposer can form has been tried."""


class BudgetExhaustedError(ProposalError):
    """The next call could cost more than what is left of the run's dollars or tokens, so it was not made."""


class RunStoppedError(AutoresearchError):
    """The loop ends the run by itself.

    Args:
        message: The reason that goes into the ledger.
        fault: Whether a person should look into it; False where the run simply came to its end.
    """

    def __init__(self, message: str, *, fault: bool = False) -> None:
        super().__init__(message)
        self.fault = fault
