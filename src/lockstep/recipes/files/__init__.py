"""Data sets of picture files: read lazily, every bad file named, never a traceback.

Construction looks at names only; a picture is opened when its sample is read.
"""
