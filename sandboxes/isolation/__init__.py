"""Reward code in processes of its own: a zygote forks workers, shared memory feeds them, a deadline bounds them."""
