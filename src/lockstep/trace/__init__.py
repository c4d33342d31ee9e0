"""A run as evidence: what every rank did, in order, with the user's lines."""
