"""What this machine, or these machines, can do: one file for each kind of check, and a measured all-reduce."""
