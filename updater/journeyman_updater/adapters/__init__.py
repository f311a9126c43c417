"""The world behind the updater's ports."""
