"""Pure decisions: nothing here touches the world, and time is an argument."""
