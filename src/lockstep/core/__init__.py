"""The words that every part shares. Never imports torch."""
