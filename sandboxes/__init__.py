"""Where candidates are run: simulators, the population trainer and the isolation of reward code. Knows no LLM."""
