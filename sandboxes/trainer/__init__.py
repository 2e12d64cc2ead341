"""Population-batched PPO: every candidate and seed of a generation trains as a slice of the same tensors."""
