"""Guard, shim and one-shot updater: what must still work when the agent does not."""
