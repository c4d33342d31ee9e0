"""The ready recipes, and how a name becomes one."""
