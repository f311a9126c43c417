"""What the agent does over and over, one file a loop."""
