"""What the plane does over and over."""
