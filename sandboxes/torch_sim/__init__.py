"""Batched simulators written as torch tensor operations: CPU or CUDA, same code."""
