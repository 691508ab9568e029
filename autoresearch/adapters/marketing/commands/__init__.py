"""`autoresearch marketing ...`: one module for each command."""
