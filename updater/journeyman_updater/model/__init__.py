"""Frozen types of the updater: the state document, a release's manifest, the journal."""
