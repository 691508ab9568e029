"""The dashboard: the report of every run, alive, with buttons; imports starlette only where it is served."""
