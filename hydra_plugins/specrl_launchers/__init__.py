"""hydra/launcher=specrl_local and specrl_slurm: found by Hydra wherever specrl is installed."""
