"""Programs that run under a shim and outlive the agent."""
