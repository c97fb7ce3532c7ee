"""Where the actors run."""
