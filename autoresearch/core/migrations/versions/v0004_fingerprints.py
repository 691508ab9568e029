"""Hashes of what judged an experiment, from before and after it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; experiments of older releases know no such hashes."""
    op.add_column("experiment", sa.Column("fingerprints", sa.JSON(), nullable=False, server_default="{}"))
