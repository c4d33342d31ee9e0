"""Every sample of a data set read once, in processes that may die of it, and judged."""
