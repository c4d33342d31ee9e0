"""What earlier runs have left on this machine: who still runs, and what is held or lies about."""
