"""E-mail as a traffic source."""
