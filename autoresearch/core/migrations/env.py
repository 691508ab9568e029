"""Alembic's entry: migrates on the connection that the ledger hands over, in the transaction that it has begun."""

from alembic import context

from autoresearch.core.ledger import Run

# The ledger began the transaction and ends it. SQLite changes tables inside transactions as long as the driver does not
# commit on its own, and the ledger's does not: a migration that is killed half way leaves nothing behind.
context.configure(connection=context.config.attributes["connection"], target_metadata=Run.metadata)
context.run_migrations()
