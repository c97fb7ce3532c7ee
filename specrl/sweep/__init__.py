"""The points of a sweep: what they are, who runs them, and how each ended."""
