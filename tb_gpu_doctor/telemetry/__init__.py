"""What the companion writer recorded beside training, read back to arrays."""
