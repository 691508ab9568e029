"""`python -m autoresearch` does what `autoresearch` does."""

from __future__ import annotations

from autoresearch.cli import main

if __name__ == "__main__":
    main()
