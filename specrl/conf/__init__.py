"""The YAML tree: train.yaml and one folder a group."""
