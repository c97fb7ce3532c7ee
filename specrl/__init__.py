"""specrl: does speculative decoding make RL rollouts faster, and what bounds the gain?"""

__version__ = "0.1.0"
