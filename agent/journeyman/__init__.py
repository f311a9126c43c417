"""The per-host daemon and the command line of Journeyman."""

__version__ = "0.1.0"
