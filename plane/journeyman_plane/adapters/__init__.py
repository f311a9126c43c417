"""The world behind the plane's ports."""
