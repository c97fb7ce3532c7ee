"""The EAGLE-3 drafter: what vLLM drafts with, and the draft that the learner trains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from specrl.config.adaptation import AdaptationConfig
from specrl.config.drafter import Eagle3Config
from specrl.types import DraftSetup

TRAINER = "specrl.drafter.training:Eagle3Trainer"


class Eagle3Drafter:
    """vLLM's eagle3 method with a draft folder that specrl made or took over."""

    def __init__(
        self, config: Eagle3Config, folder: Path, adaptation: AdaptationConfig | None = None
    ) -> None:
        """`folder` holds the draft's first weights; see `eagle3_folder.check_folder`.

        Without `adaptation` the draft stays as it is.
        """
        self.name = config.name
        self.k = config.longest_k
        self._config = config
        self._folder = folder
        self._adaptation = adaptation

    def speculative_config(self) -> dict[str, Any]:
        """vLLM's `speculative_config`."""
        entries: dict[str, Any] = {
            "method": "eagle3",
            "model": str(self._folder),
            "num_speculative_tokens": self.k,
            "draft_sample_method": self._config.sampling,
        }
        if self._config.verification == "block":
            entries["rejection_sample_method"] = "block"
        return entries

    def draft_setup(self) -> DraftSetup:
        """The learner holds the draft in every case, and trains it where it adapts online."""
        setup = DraftSetup(target=TRAINER, folder=self._folder, config=self._config)
        adaptation = self._adaptation
        if adaptation is None or adaptation.name != "online":
            return setup
        return replace(
            setup,
            every=adaptation.every,
            tokens=adaptation.tokens,
            learning_rate=adaptation.learning_rate,
            passes=adaptation.passes,
            loss=adaptation.loss,
        )
