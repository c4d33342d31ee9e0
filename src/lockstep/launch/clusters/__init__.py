"""Who takes part, as the scheduler that started this launcher says: Slurm's and Kubeflow Trainer's variables."""
