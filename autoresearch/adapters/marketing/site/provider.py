"""An OpenFeature provider: Python programs ask which text a person sees, and say what the person did.

    from openfeature import api
    from openfeature.evaluation_context import EvaluationContext
    from autoresearch.adapters.marketing.site.provider import AutoresearchProvider

    api.set_provider_and_wait(AutoresearchProvider("http://127.0.0.1:8000"))
    client = api.get_client()
    person = EvaluationContext("user-42")
    client.get_string_value("page.headline", "Plan shifts in minutes", person)   # one slot's text
    client.get_string_value("page", "control", person)                           # the arm's name
    client.get_boolean_value("page", False, person)                              # in a treatment?
    client.get_object_value("page", {}, person)                                  # all slots
    client.track("signup", person)

Needs the package openfeature-sdk. Evaluating a flag counts as showing it, so evaluate where it is shown.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import FlagNotFoundError, GeneralError, TargetingKeyMissingError, TypeMismatchError
from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
from openfeature.provider import AbstractProvider, Metadata
from openfeature.track import TrackingEventDetails

from autoresearch.adapters.marketing.live import CONTROL

_OUTSIDE = ("original", "incumbent", CONTROL)


class AutoresearchProvider(AbstractProvider):
    """Resolves flags named `surface` or `surface.slot` by asking a running server.

    Args:
        url: Where the server listens.
        timeout_seconds: After so long a caller gets its default, and nothing is counted by this side.
        expose: Whether evaluating counts as showing; False where events say so.
        traits: Names of the context's attributes that are passed on, for surfaces that are audiences.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float = 1.0, expose: bool = True, traits: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._expose = expose
        self._traits = tuple(traits)

    def get_metadata(self) -> Metadata:
        """Return the provider's name."""
        return Metadata("autoresearch")

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        """Say whether the unit sees a treatment."""
        answer = self._ask(flag_key, evaluation_context)
        return _details(answer["arm"] not in _OUTSIDE, answer)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        """Return the text of `surface.slot`, or the arm's name for `surface`."""
        answer = self._ask(flag_key, evaluation_context)
        slot = flag_key.partition(".")[2]
        if not slot:
            return _details(answer["arm"], answer)
        if slot not in answer["slots"]:
            raise FlagNotFoundError(f"There is no slot {slot!r}; there are {', '.join(answer['slots'])}.")
        return _details(answer["slots"][slot], answer)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        """Refuse: texts are no numbers."""
        raise TypeMismatchError(f"{flag_key} is a text, not a number.")

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        """Refuse: texts are no numbers."""
        raise TypeMismatchError(f"{flag_key} is a text, not a number.")

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        """Return all slots of the surface."""
        answer = self._ask(flag_key, evaluation_context)
        return _details(answer["slots"], answer)

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Send a conversion. Raises GeneralError where it did not arrive."""
        event: dict[str, Any] = {"event": tracking_event_name, "unit": _unit(evaluation_context)}
        if tracking_event_details is not None and tracking_event_details.value is not None:
            event["properties"] = {"value": tracking_event_details.value}
        request = urllib.request.Request(f"{self._url}/events", json.dumps(event).encode(), method="POST")
        self._fetch(request)

    def _ask(self, flag_key: str, context: EvaluationContext | None) -> dict[str, Any]:
        query = {"unit": _unit(context), "surface": flag_key.partition(".")[0], "expose": "1" if self._expose else "0"}
        agent = context.attributes.get("user_agent") if context is not None else None
        if isinstance(agent, str):
            query["ua"] = agent
        attributes = context.attributes if context is not None else {}
        query = {name: str(attributes[name]) for name in self._traits if name in attributes} | query
        return self._fetch(urllib.request.Request(f"{self._url}/assign?{urllib.parse.urlencode(query)}"))

    def _fetch(self, request: urllib.request.Request) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise (FlagNotFoundError(text) if error.code == 404 else GeneralError(text)) from error
        except (OSError, ValueError) as error:
            raise GeneralError(f"{self._url} gave no answer: {error}.") from error


def _unit(context: EvaluationContext | None) -> str:
    if context is None or not context.targeting_key:
        raise TargetingKeyMissingError("The targeting key says whom this is about; give the evaluation context one.")
    return context.targeting_key


def _details(value: Any, answer: Mapping[str, Any]) -> FlagResolutionDetails[Any]:
    reason = Reason.SPLIT if answer["test"] else Reason.DEFAULT
    return FlagResolutionDetails(value, reason=reason, variant=answer["arm"])
