"""Keeping model servers: what one is, how it is started and proven, and when it counts as hung."""
