"""GPUs: what the driver has, what torch sees of it, how they are and how they are joined."""

import warnings
from collections import Counter
from collections.abc import Iterator

import torch

from lockstep.launch.earlier import gpu_memory, procfs
from lockstep.launch.earlier.ports import short
from lockstep.launch.health import smi
from lockstep.launch.health.check import Asked, Check, Status

GROUP = "GPUs"
# Bits of the driver's mask: hardware slowdown, software thermal, hardware thermal, power brake.
_TOO_HOT = 0x08 | 0x20 | 0x40 | 0x80
_BUSY_MIB = 1024


def checks(asked: Asked) -> Iterator[Check]:
    """Driver, each GPU, their links, and whether torch can use them."""
    found = smi.gpus()
    if found is None:
        yield _no_driver()
    else:
        yield driver(found, smi.cuda_of_driver(), torch.version.cuda or "")
        for gpu in found:
            yield judge(gpu, asked.ranks_per_node)
        if len(found) > 1:
            yield joined(smi.links())
        yield from users(asked)
    if found or torch.version.cuda:
        yield from _torchs_view(found or [], asked)


def _no_driver() -> Check:
    if torch.version.hip and torch.cuda.is_available():
        return Check(GROUP, "driver", "ok", f"{torch.cuda.device_count()} AMD GPUs; only torch was asked about them")
    return Check(GROUP, "driver", "ok", "no nvidia-smi: ranks run on the CPU")


def driver(found: list[smi.Gpu], newest_cuda: str, built_for: str) -> Check:
    """The driver against the CUDA that torch was built for: a newer major version does not run on it."""
    if not found:
        advice = "see whether the device is passed to this container (`--gpus all`), then `dmesg | grep -i nvrm`"
        return Check(GROUP, "driver", "fail", "nvidia-smi runs, but sees no GPU", advice)
    seen = f"driver {found[0].driver}" + (f", runs CUDA up to {newest_cuda}" if newest_cuda else "")
    if newest_cuda and built_for and int(built_for.split(".")[0]) > int(newest_cuda.split(".")[0]):
        advice = f"update the driver, or install a torch built for CUDA {newest_cuda.split('.')[0]}"
        return Check(GROUP, "driver", "fail", f"{seen}; torch was built for CUDA {built_for}", advice)
    return Check(GROUP, "driver", "ok", seen)


def judge(gpu: smi.Gpu, ranks_per_node: int) -> Check:
    """One GPU: errors of its memory, heat, mode, how full it is."""
    name = f"GPU {gpu.index}"
    seen = f"{gpu.name}, {gpu.used_mib} of {gpu.memory_mib} MiB used"
    if gpu.ecc_errors:
        seen += f", {gpu.ecc_errors} uncorrected memory errors"
        return Check(GROUP, name, "fail", seen, "take it out of use: reset it (`nvidia-smi -r`), or have it replaced")
    if "Prohibited" in gpu.compute_mode:
        return Check(GROUP, name, "fail", f"{seen}, compute mode Prohibited", f"nvidia-smi -i {gpu.index} -c DEFAULT")
    if gpu.throttle & _TOO_HOT:
        seen += f", slowed down by heat or power (mask {gpu.throttle:#x})"
        return Check(GROUP, name, "warn", seen, "its rank makes all ranks wait: look at cooling and power")
    if gpu.mig and ranks_per_node > 1:
        return Check(GROUP, name, "warn", f"{seen}, cut into MIG instances", "NCCL does not join instances of one GPU")
    if gpu.used_mib > max(_BUSY_MIB, gpu.memory_mib // 10):
        return Check(GROUP, name, "warn", seen, "another process holds memory: see `nvidia-smi`, or take other GPUs")
    return Check(GROUP, name, "ok", seen)


def joined(links: dict[tuple[int, int], str]) -> Check:
    """How the pairs are joined; a mixture means that it matters which GPUs work together."""
    kinds = Counter(link for (one, other), link in links.items() if one < other)
    if not kinds:
        return Check(GROUP, "links", "ok", "nvidia-smi does not say how the GPUs are joined")
    words = ", ".join(
        f"{count} {'pair' if count == 1 else 'pairs'} by {_meaning(link)}" for link, count in kinds.most_common()
    )
    if len(kinds) > 1 and "SYS" in kinds:
        pairs = [f"{one}-{other}" for (one, other), link in links.items() if link == "SYS" and one < other]
        advice = f"for few ranks choose GPUs that are closer (CUDA_VISIBLE_DEVICES); far apart: {', '.join(pairs[:6])}"
        return Check(GROUP, "links", "ok", words, advice)
    return Check(GROUP, "links", "ok", words)


def _meaning(link: str) -> str:
    if link.startswith("NV"):
        return f"NVLink ({link})"
    known = {"PIX": "one PCIe switch", "PXB": "several PCIe switches", "PHB": "the CPU's PCIe", "NODE": "one socket"}
    return f"{known.get(link, 'the link between sockets' if link == 'SYS' else link)} ({link})"


def users(asked: Asked) -> Iterator[Check]:
    """Who holds GPU memory: a name for processes of this user only."""
    running = procfs.processes()
    for pid, mib in gpu_memory.by_pid().items():
        process = running.get(pid)
        own = process is not None and procfs.mine(process)
        who = short(process.command, 60) if own and process is not None else "not of this user or container"
        yield Check(GROUP, f"memory of pid {pid}", "ok", f"{mib} MiB: {who}")


def _torchs_view(found: list[smi.Gpu], asked: Asked) -> Iterator[Check]:
    if not torch.version.cuda:
        advice = "install a build of torch for CUDA, or go on on the CPU"
        yield Check(GROUP, "torch", "warn", f"{len(found)} GPUs, but torch {torch.__version__} is a CPU build", advice)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        why = "; ".join(str(one.message).split("\n")[0] for one in said) or "torch.cuda.is_available() is False"
        visible = asked.environ.get("CUDA_VISIBLE_DEVICES")
        hint = f"CUDA_VISIBLE_DEVICES is {visible!r}; " if visible is not None else ""
        status: Status = "fail" if found else "ok"
        advice = f"{hint}see the driver above and /dev/nvidia*" if found else ""
        yield Check(GROUP, "torch", status, f"torch sees no GPU: {why}", advice)
        return
    if asked.ranks_per_node > count:
        advice = f"at most {count} ranks on this machine"
        yield Check(GROUP, "torch", "fail", f"{asked.ranks_per_node} ranks, torch sees {count} GPUs", advice)
        return
    lacking = [index for index in range(count) if not supported(index)]
    if lacking:
        kinds = ", ".join(torch.cuda.get_arch_list())
        seen = f"this torch has no code for GPU {', '.join(map(str, lacking))} (it has {kinds})"
        yield Check(GROUP, "torch", "fail", seen, "install a build of torch for these GPUs")
    else:
        yield Check(GROUP, "torch", "ok", f"torch sees {count} GPUs")


def supported(index: int) -> bool:
    """Whether this torch has machine code for a GPU, or code that the driver can translate for it."""
    major, minor = torch.cuda.get_device_capability(index)
    return runs_on((major, minor), torch.cuda.get_arch_list())


def runs_on(capability: tuple[int, int], built: list[str]) -> bool:
    """`sm_90` runs on 9.0 and later 9.x; `compute_90` on everything later too."""
    for name in built:
        kind, _, number = name.partition("_")
        digits = "".join(char for char in number if char.isdigit())
        has = (int(digits[:-1]), int(digits[-1]))
        if (kind == "sm" and has[0] == capability[0] and has[1] <= capability[1]) or (
            kind == "compute" and has <= capability
        ):
            return True
    return not built
