"""NCCL's files are read as they are written; the files here are made by hand, in their formats."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

from lockstep.launch import nccl

LOG = """gpu-a:77:90 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
gpu-a:77:90 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<43219> failed : No route to host
"""


def entry(number: int, state: str, **more: object) -> dict[str, object]:
    return {
        "collective_seq_id": number,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[812]],
        "state": state,
        "is_p2p": False,
        **more,
    }


def test_where_the_files_go(tmp_path: Path) -> None:
    named = nccl.variables(tmp_path, {})
    assert named["NCCL_DEBUG_FILE"].startswith(str(tmp_path))
    assert named["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == f"{tmp_path}/flight-"
    assert "NCCL_DEBUG_FILE" not in nccl.variables(tmp_path, {"NCCL_DEBUG": "INFO"}), "it is to be seen on the screen"


def test_warnings_once_each(tmp_path: Path) -> None:
    for rank in (77, 78):
        (tmp_path / f"nccl-gpu-a-{rank}.txt").write_text(LOG)
    assert nccl.warnings(tmp_path) == ["socketStartConnect: Connect to 10.0.0.2<43219> failed : No route to host"]


def test_the_first_collective_that_did_not_end(tmp_path: Path) -> None:
    zero = [entry(811, "completed"), entry(5, "started", is_p2p=True), entry(812, "started"), entry(813, "scheduled")]
    (tmp_path / "flight-0").write_bytes(pickle.dumps({"version": "2.10", "entries": zero}))
    (tmp_path / "flight-1").write_bytes(pickle.dumps({"version": "2.10", "entries": [entry(811, "completed")]}))
    assert nccl.stuck(tmp_path) == {0: "all_reduce number 812 of sizes [[812]] is started, not completed"}
    assert nccl.notes(tmp_path).startswith("  Rank 0, flight recorder: all_reduce number 812")


FLIGHT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
def exchange():
    dist.all_reduce(torch.ones(3))
exchange()
dump = torch._C._distributed_c10d._dump_fr_trace()
open(f"{sys.argv[1]}/flight-0", "wb").write(dump)
"""


def test_a_record_that_torch_made(tmp_path: Path) -> None:
    """The format is torch's own; gloo's recorder writes the same. What it completed is told as if it had not."""
    script = tmp_path / "train.py"
    script.write_text(FLIGHT)
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}
    subprocess.run([sys.executable, str(script), str(tmp_path)], env=env, check=True, capture_output=True)
    dump = pickle.loads((tmp_path / "flight-0").read_bytes())
    for one in dump["entries"]:
        one["state"] = "started"
    (tmp_path / "flight-0").write_bytes(pickle.dumps(dump))
    said = nccl.stuck(tmp_path)[0]
    assert "all_reduce number 1 of sizes [[3]]" in said and "train.py:5 in exchange" in said


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch exploded",))


def test_a_record_that_is_none(tmp_path: Path, monkeypatch: object) -> None:
    (tmp_path / "flight-0").write_bytes(pickle.dumps({"entries": [Bomb()]}))
    (tmp_path / "flight-1").write_bytes(b"half a rec")
    (tmp_path / "flight-x").write_bytes(pickle.dumps({"entries": [entry(1, "started")]}))
    (tmp_path / "flight-3").write_bytes(pickle.dumps([1]))
    assert nccl.stuck(tmp_path) == {}
    assert nccl.notes(tmp_path) == ""
    assert not Path("exploded").exists()
