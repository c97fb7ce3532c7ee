"""Spans and metrics of a run: JSONL in the run folder, console, MLflow."""
