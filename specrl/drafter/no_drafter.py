"""Autoregressive decoding, the baseline."""

from specrl.config.drafter import NoDrafterConfig


class NoDrafter:
    """Drafts nothing. `k` is 0 whatever the config says: k = 0 means autoregressive everywhere."""

    def __init__(self, config: NoDrafterConfig) -> None:
        self.name = config.name
        self.k = 0

    def speculative_config(self) -> None:
        """None: vLLM decodes autoregressively."""
        return

    def draft_setup(self) -> None:
        """None: nothing learns."""
        return
