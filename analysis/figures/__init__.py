"""The figures: each takes frozen records and gives a picture."""
