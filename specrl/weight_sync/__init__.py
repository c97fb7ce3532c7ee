"""How new weights reach the engine."""
