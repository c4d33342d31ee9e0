"""A proof for its readers: the terminal (text), programs (JSON), code scanning (SARIF), a page to keep (HTML).

Each is a pure function from a Proof to text; nothing here needs torch. What two of them say comes from `words`.
"""
