"""In which lane an experiment ran, and with how many treatments it was begun together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; experiments of older releases ran one at a time."""
    op.add_column("experiment", sa.Column("lane", sa.String(), nullable=False, server_default=""))
    op.add_column("experiment", sa.Column("family", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("proposal", sa.Column("lane", sa.String(), nullable=False, server_default=""))
