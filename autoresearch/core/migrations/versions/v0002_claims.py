"""Fresh measurements and the claims that rest on them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of `confirm` and `calibrate`."""
    op.create_table(
        "fresh_measurement",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(), sa.ForeignKey("run.id"), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("split", "commit")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("seed", "attempt")),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=True) for name in ("disturbed", "failed")),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("run_id", "split", "commit", "seed", "attempt"),
    )
    op.create_table(
        "claim",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(), sa.ForeignKey("run.id"), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("commit", "against")),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("share", "alternative")),
        *(sa.Column(name, sa.Float(), nullable=True) for name in ("e_value", "level")),
        sa.Column("seeds", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Float(), nullable=True) for name in ("raw", "shrunk", "low", "high")),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("outcome", "reason")),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("judged", sa.DateTime(timezone=True), nullable=True),
        sa.UniqueConstraint("run_id", "subject", "commit"),
    )
