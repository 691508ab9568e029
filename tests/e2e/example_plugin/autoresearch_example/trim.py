"""A proposer that takes one line out of the artifact at a time."""

from autoresearch import core


class TrimProposer:
    name = "trim"

    def estimate(self, request: core.ProposalRequest) -> core.CostEstimate:
        return core.CostEstimate(usd=0.0, tokens=0, seconds=0.0, basis="no call is made")

    def propose(self, request: core.ProposalRequest) -> core.Proposal:
        path, text = next(iter(request.artifact.files.items()))
        tried = {past.fingerprint for past in request.history}
        lines = text.splitlines(keepends=True)
        for index, line in enumerate(lines):
            shorter = request.artifact.replace({path: "".join(lines[:index] + lines[index + 1 :])})
            if shorter.fingerprint not in tried and len(lines) > 1:
                return core.Proposal(f"Leave out {line.strip()!r}: it may do more harm than good.", "trim", shorter)
        raise core.NothingLeftToProposeError("Every line was left out once.")


def create_proposer(*, model: str | None, seed: int) -> core.Proposer:
    return TrimProposer()
