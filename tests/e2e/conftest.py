"""The example plugin has tests of its own, which need it installed; `test_plugins.py` does that."""

collect_ignore = ["example_plugin"]
