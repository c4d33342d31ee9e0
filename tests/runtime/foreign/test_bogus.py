"""A file that is no checkpoint is named for what it is."""

import gzip

import pytest

from lockstep.runtime.foreign.bogus import what_it_is
from lockstep.runtime.foreign.window import Window

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234567\n"


@pytest.mark.parametrize(
    ("data", "what", "todo"),
    [
        (b"", "empty", "copy"),
        (LFS, "pointer of git-lfs to a file of 1234567 bytes", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>404", "web page", "download"),
        (b"\n <HTML><body>", "web page", "download"),
        (gzip.compress(b"x", mtime=0), "gzip", "gunzip"),
        (b"\x28\xb5\x2f\xfd123", "zstd", ""),
        (b"\x89HDF\r\n\x1a\n", "HDF5", ""),
        (b"GGUF\x03\0\0\0", "GGUF", ""),
        (b"\x93NUMPY\x01\0", "array of numpy", ""),
        (bytes(257) + b"ustar\0" + bytes(250), "tar archive", ""),
        (bytes(600), "zeros only", "copy"),
        (b"just a text\nof two lines", 'text: "just a text"', ""),
        (b'{"a": 1}', "JSON", ""),
        ("größe\n".encode(), "text", ""),
        (b"\x00\x01\x02\xff\xfe", "", ""),
    ],
)
def test_it_is_named(data: bytes, what: str, todo: str) -> None:
    seen, next_step = what_it_is(Window.of(data))
    assert what in seen and todo in next_step and bool(seen) == bool(what)
