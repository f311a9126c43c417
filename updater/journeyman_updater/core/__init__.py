"""Pure decisions of the updater."""
