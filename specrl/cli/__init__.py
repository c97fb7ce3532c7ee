"""Console scripts; nothing heavy is imported before the config is checked."""
