"""The proof: the same program run in several manners, and what their traces show side by side."""
