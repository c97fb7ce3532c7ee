"""Every knob of specrl as a typed dataclass; the docstring under a field is its help text."""
