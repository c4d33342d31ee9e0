"""What a file is that is no checkpoint: most were meant to be one, and the way to it went wrong."""

from lockstep.runtime.foreign.window import Window

_LFS = b"version https://git-lfs"
_MARKS = (
    (b"\x1f\x8b", "compressed with gzip", "unpack it: gunzip FILE"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it: unzstd FILE"),
    (b"\xfd7zXZ\x00", "compressed with xz", "unpack it: unxz FILE"),
    (b"BZh", "compressed with bzip2", "unpack it: bunzip2 FILE"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it first"),
    (b"\x89HDF", "an HDF5 file (Keras, h5py)", "convert it to .safetensors where it came from"),
    (b"GGUF", "a GGUF file (llama.cpp)", "take the .safetensors that it was made of"),
    (b"\x93NUMPY", "an array of numpy (.npy)", "numpy.load reads it; save it as a state dict"),
    (b"\x89PNG", "a PNG image", ""),
    (b"\xff\xd8\xff", "a JPEG image", ""),
    (b"%PDF", "a PDF", ""),
    (b"\x7fELF", "a program", ""),
)


def what_it_is(window: Window) -> tuple[str, str]:
    """What the first bytes say that a file is, and what to do about it; two empty texts where they say nothing."""
    if window.nbytes == 0:
        return "empty (0 bytes)", "copy it again; the disk may have been full"
    head = bytes(window.read(512))
    if head.startswith(_LFS):
        size = next((line[5:].decode() for line in head.splitlines() if line.startswith(b"size ")), "?")
        return f"a pointer of git-lfs to a file of {size} bytes, not the file", "fetch it: git lfs pull"
    if head[257:262] == b"ustar":
        return (
            "a tar archive; torch wrote such files before 0.1.10",
            "unpack it, or load it with torch and save it again",
        )
    for mark, name, todo in _MARKS:
        if head.startswith(mark):
            return name, todo
    if not any(head):
        return "zeros only: room was made for it and nothing was written", "copy it again"
    return _text(head, window.nbytes > len(head))


def _text(head: bytes, goes_on: bool) -> tuple[str, str]:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "a web page: the download brought an error or a login page", "download it again, signed in"
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or not goes_on:
            return "", ""
        text = head[: error.start].decode()
    if any(ord(letter) < 32 and letter not in "\t\r\n\f\x1b" for letter in text):
        return "", ""
    kind = "JSON" if start[:1] in (b"{", b"[") else "text"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f'{kind}: "{first[:60]}"', ""
