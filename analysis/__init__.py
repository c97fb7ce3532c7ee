"""Tables, figures and checks from runs; reads runs, never runs anything."""
