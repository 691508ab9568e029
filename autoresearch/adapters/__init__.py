"""Adapters that ship with autoresearch; each enters by the same entry point as everybody else's."""
