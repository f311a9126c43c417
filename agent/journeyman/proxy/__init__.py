"""The OpenAI-compatible proxy: one stable endpoint for all models of this host."""
