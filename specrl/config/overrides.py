"""The words of a command line, as text."""


def bare(word: str) -> str:
    """An override without Hydra's + and ~: drafter.k=5 for ++drafter.k=5."""
    return word.lstrip("+~")


def key_of(word: str) -> str:
    """The key, or group, that an override sets, adds or removes: drafter.k of drafter.k=5."""
    return bare(word).partition("=")[0]
