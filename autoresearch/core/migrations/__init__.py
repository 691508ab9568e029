"""Alembic migrations of the ledger; `Ledger.open` runs them.

To add one: change the tables in `autoresearch.core.ledger`, write `versions/vNNNN_what.py` with the next number, and
raise `LEDGER_VERSION`. A migration that was released never changes again.
"""
