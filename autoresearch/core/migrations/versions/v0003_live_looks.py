"""What live tests showed, look by look."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of live looks."""
    op.create_table(
        "live_look",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("experiment_id", sa.Integer(), sa.ForeignKey("experiment.id"), nullable=False),
        sa.Column("look", sa.Integer(), nullable=False),
        sa.Column("arm", sa.String(), nullable=False),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("n", "total", "total_sq")),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("experiment_id", "look", "arm"),
    )
