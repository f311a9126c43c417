"""The files that people install, as text: one renderer a service manager, all of them pure."""
