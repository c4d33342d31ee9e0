"""Which rank reads which sample, in which order, and how it gets to the device."""
