"""The layers that a draft's folder names, against those that the engine hands over."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specrl.errors import EngineError

IDS = "eagle_aux_hidden_state_layer_ids"


def check_aux_layers(draft_folder: Path, live: Sequence[int]) -> None:
    """Raises `EngineError` unless the engine taps the layers that the draft was trained on.

    They are in the folder's own block `specrl`, and where vLLM reads them; numbers count layers
    passed.
    """
    config: Mapping[str, Any] = json.loads((draft_folder / "config.json").read_text())
    places = {"specrl.aux_layers": config.get("specrl", {}).get("aux_layers"), IDS: config.get(IDS)}
    for key, layers in places.items():
        if layers is not None and tuple(layers) != tuple(live):
            raise EngineError(
                f"the engine hands the draft layers {list(live)}, but {draft_folder}/config.json "
                f"says {key}={list(layers)}; build the draft for the layers the engine taps"
            )
