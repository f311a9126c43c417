"""Pure decisions of the plane."""
