"""Programs of others that serve models: how each is started, and what its last words mean.  All pure."""
