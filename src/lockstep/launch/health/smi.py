"""What NVIDIA's driver says of the GPUs: `nvidia-smi`, read into values."""

import re
from dataclasses import dataclass

from lockstep.launch.tools import output

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_LINK = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS")
_BASE = ("index", "name", "memory.total", "memory.used", "driver_version", "compute_mode")
# Asked for one by one: a driver that does not know a field refuses the whole question.
_MORE = (
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.active",
    "mig.mode.current",
)


@dataclass(frozen=True)
class Gpu:
    """A GPU. Memory in MiB. pcie_gen, pcie_lanes: of its slot at best, 0 where unknown. ecc_errors: uncorrected since
    the last reboot. throttle: the driver's bit mask of why clocks are held down. mig: cut into instances."""

    index: int
    name: str
    memory_mib: int
    used_mib: int
    driver: str
    compute_mode: str
    pcie_gen: int = 0
    pcie_lanes: int = 0
    ecc_errors: int = 0
    throttle: int = 0
    mig: bool = False


def gpus() -> list[Gpu] | None:
    """The GPUs of this machine; None where there is no `nvidia-smi`, or the driver does not answer it."""
    base = _ask(",".join(_BASE))
    if base is None:
        return None
    return parse(base, {field: text for field in _MORE if (text := _ask(field)) is not None})


def parse(base: str, more: dict[str, str]) -> list[Gpu]:
    """Answers in CSV without units, a line for each GPU; what is `[N/A]` counts as 0."""
    columns = {field: text.splitlines() for field, text in more.items()}
    found = []
    for at, line in enumerate(line for line in base.splitlines() if line.strip()):
        index, *rest = (part.strip() for part in line.split(","))
        name, total, used, driver, mode = ", ".join(rest[:-4]), *rest[-4:]
        extra = {field: lines[at].strip() if at < len(lines) else "" for field, lines in columns.items()}
        found.append(
            Gpu(
                index=_number(index),
                name=name,
                memory_mib=_number(total),
                used_mib=_number(used),
                driver=driver,
                compute_mode=mode,
                pcie_gen=_number(extra.get("pcie.link.gen.max", "")),
                pcie_lanes=_number(extra.get("pcie.link.width.max", "")),
                ecc_errors=_number(extra.get("ecc.errors.uncorrected.volatile.total", "")),
                throttle=_number(extra.get("clocks_throttle_reasons.active", "")),
                mig=extra.get("mig.mode.current") == "Enabled",
            )
        )
    return found


def cuda_of_driver() -> str:
    """The newest CUDA that the driver can run (`12.4`), or ""."""
    found = re.search(r"CUDA Version:\s*([\d.]+)", output("nvidia-smi") or "")
    return found[1] if found else ""


def links() -> dict[tuple[int, int], str]:
    """How each pair of GPUs is joined: `NV12`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`."""
    return parse_links(output("nvidia-smi", "topo", "-m") or "")


def parse_links(text: str) -> dict[tuple[int, int], str]:
    """The matrix that `nvidia-smi topo -m` prints."""
    lines = [_ESCAPES.sub("", line).split() for line in text.splitlines()]
    columns = next(([word for word in line if re.fullmatch(r"GPU\d+", word)] for line in lines if line), [])
    found = {}
    for line in lines:
        if line and line[0] in columns:
            for name, link in zip(columns, line[1:], strict=False):
                if _LINK.fullmatch(link):
                    found[int(line[0][3:]), int(name[3:])] = link
    return found


def nvlink_bytes_per_s() -> dict[int, float]:
    """For each GPU the speed of all its NVLinks together, in one direction."""
    return parse_nvlink(output("nvidia-smi", "nvlink", "--status") or "")


def parse_nvlink(text: str) -> dict[int, float]:
    """`GPU 0: ...` and below it `Link 0: 26.562 GB/s` for each link that is up."""
    found: dict[int, float] = {}
    gpu = -1
    for line in text.splitlines():
        if head := re.match(r"GPU (\d+):", line):
            gpu = int(head[1])
        elif link := re.match(r"\s*Link \d+:\s*([\d.]+) GB/s", line):
            found[gpu] = found.get(gpu, 0.0) + float(link[1]) * 1e9
    return found


def _ask(fields: str) -> str | None:
    return output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0
