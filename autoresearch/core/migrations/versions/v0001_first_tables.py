"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _text(name: str, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=nullable)


def _int(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=nullable)


def _float(name: str, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Float(), nullable=nullable)


def _json(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(), nullable=False)


def _moment(name: str, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _key() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), primary_key=True)


def _to(name: str, target: str, nullable: bool = False) -> sa.Column[object]:
    kind = sa.String() if target == "run.id" else sa.Integer()
    return sa.Column(name, kind, sa.ForeignKey(target), nullable=nullable)


def upgrade() -> None:
    """Make every table."""
    _make_run()
    _make_session()
    _make_proposal()
    _make_experiment()
    _make_measurement()
    _make_control()


def _make_run() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.String(), primary_key=True),
        *map(_text, ("adapter", "adapter_distribution", "adapter_version")),
        _json("metric"),
        _text("policy"),
        _json("policy_parameters"),
        *map(_text, ("proposer", "model")),
        _int("seed"),
        _json("options"),
        _float("budget_seconds", nullable=True),
        _text("device", nullable=True),
        _text("state"),
        _text("stop_reason", nullable=True),
        *map(_text, ("ref", "baseline_commit", "evaluator_fingerprint")),
        _float("noise_sd", nullable=True),
        _float("noise_dof", nullable=True),
        _moment("created"),
        _moment("ended", nullable=True),
    )


def _make_session() -> None:
    op.create_table(
        "session",
        _key(),
        _to("run_id", "run.id"),
        _moment("started"),
        _moment("ended", nullable=True),
        _text("reason", nullable=True),
        _int("pid"),
        _text("host"),
        _json("limits"),
        _int("first_number"),
        _json("versions"),
    )
    op.create_index("ix_session_run_id", "session", ["run_id"])


def _make_proposal() -> None:
    op.create_table(
        "proposal",
        _key(),
        _to("run_id", "run.id"),
        *map(_int, ("number", "attempt")),
        *map(_text, ("status", "reason", "log_tail", "hypothesis", "category")),
        _json("files"),
        _text("fingerprint"),
        *map(_json, ("changes", "details")),
        *map(_text, ("origin", "proposer")),
        _float("usd"),
        *map(_int, ("tokens_in", "tokens_cached", "tokens_out")),
        _float("seconds"),
        _text("model"),
        _moment("created"),
        sa.UniqueConstraint("run_id", "number", "attempt"),
    )


def _make_experiment() -> None:
    op.create_table(
        "experiment",
        _key(),
        _to("run_id", "run.id"),
        _int("number"),
        _to("session_id", "session.id"),
        _int("parent_number", nullable=True),
        _text("parent_commit"),
        _to("proposal_id", "proposal.id", nullable=True),
        *map(_text, ("hypothesis", "category", "origin", "proposer", "fingerprint")),
        _text("candidate_commit", nullable=True),
        _text("kept_commit", nullable=True),
        _text("diff"),
        _text("outcome", nullable=True),
        _text("reason"),
        *(
            _float(name, nullable=True)
            for name in ("value", "effect", "effect_low", "effect_high", "p_better", "e_win", "e_lose")
        ),
        _float("usd"),
        _int("tokens"),
        _float("seconds"),
        *map(_json, ("timings", "changes", "details")),
        *map(_text, ("evaluator_fingerprint", "sandbox")),
        _int("repairs"),
        _text("log_tail"),
        _moment("started"),
        _moment("ended", nullable=True),
        _int("sequence", nullable=True),
        sa.UniqueConstraint("run_id", "number"),
        sa.UniqueConstraint("sequence"),
    )


def _make_measurement() -> None:
    op.create_table(
        "measurement",
        _key(),
        _to("experiment_id", "experiment.id"),
        _text("arm"),
        *map(_int, ("repair", "look", "attempt", "seed")),
        _text("split"),
        _float("value"),
        *map(_json, ("secondary", "curve")),
        _float("seconds"),
        _text("disturbed", nullable=True),
        _moment("started"),
        sa.UniqueConstraint("experiment_id", "arm", "repair", "look", "attempt"),
    )


def _make_control() -> None:
    op.create_table(
        "control",
        _key(),
        _to("run_id", "run.id"),
        *map(_text, ("command", "argument", "author")),
        _moment("created"),
        _moment("handled", nullable=True),
    )
    op.create_index("ix_control_run_id", "control", ["run_id"])
