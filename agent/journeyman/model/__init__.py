"""Frozen wire types, one file a kind.  Import the modules; nothing is re-exported here."""
