"""specrl: does speculative decoding make RL rollouts faster, by how much, and what bounds the gain?"""

__version__ = "0.1.0"
