"""Pure functions: advantages, losses, speculation arithmetic."""
