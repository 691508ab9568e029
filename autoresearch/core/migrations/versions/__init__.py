"""One module for each format of the ledger."""
