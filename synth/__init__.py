"""The reward engine: task text in, reward.py and its proof out."""
