"""What `imports_sibling.py` needs beside it."""
