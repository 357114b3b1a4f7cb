"""What is claimed, and checked."""
