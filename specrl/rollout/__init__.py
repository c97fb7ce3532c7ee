"""vLLM as the rollout engine: `VllmEngine` on the driver, `EngineWorker` in an actor process."""
