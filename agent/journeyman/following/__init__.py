"""Following what the control plane tells: one list, then a watch; for the loops that act on it."""
