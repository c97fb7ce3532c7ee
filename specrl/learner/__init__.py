"""The Megatron-core learner: policy update, log-probs, weight export."""

import warnings

# Megatron-core says at import, once per module, that these optional packages are missing.
warnings.filterwarnings("ignore", message="(Transformer Engine and )?Apex (is|are) not installed")
