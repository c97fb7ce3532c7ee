"""What the rollout engine drafts with: one small class per drafter."""

from specrl.drafter.draft_model import DraftModelDrafter
from specrl.drafter.eagle3_drafter import Eagle3Drafter
from specrl.drafter.ngram import NgramDrafter
from specrl.drafter.no_drafter import NoDrafter

__all__ = ["DraftModelDrafter", "Eagle3Drafter", "NgramDrafter", "NoDrafter"]
