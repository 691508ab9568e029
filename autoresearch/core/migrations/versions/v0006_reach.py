"""Which share of all people sees what an experiment brought, once it is kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; without lanes a keep reaches everybody."""
    op.add_column("experiment", sa.Column("reach", sa.Float(), nullable=False, server_default="1"))
