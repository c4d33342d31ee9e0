from pathlib import Path

from lockstep.launch.health import cgroups

V2, V1 = "0::/a/b\n", "3:cpu,cpuacct:/a\n4:memory:/a\n5:pids:/\n0::/\n"


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_version_2_takes_the_narrowest_of_all_above(tmp_path: Path) -> None:
    write(tmp_path, a__b__cpu_DOT_max="max 100000", a__cpu_DOT_max="250000 100000")
    write(tmp_path, a__b__memory_DOT_max="1000", a__b__memory_DOT_current="400", a__memory_DOT_max="max")
    write(tmp_path, a__b__pids_DOT_max="100", a__b__pids_DOT_current="10", a__pids_DOT_max="50")
    write(tmp_path, a__pids_DOT_current="45")
    assert cgroups.cpus(tmp_path, V2) == 2.5
    assert cgroups.memory(tmp_path, V2) == (1000, 400)
    assert cgroups.processes(tmp_path, V2) == (50, 45)


def test_version_1(tmp_path: Path) -> None:
    write(tmp_path, cpu__a__cpu_DOT_cfs_quota_us="400000", cpu__a__cpu_DOT_cfs_period_us="100000")
    write(tmp_path, memory__a__memory_DOT_limit_in_bytes="9223372036854771712")
    assert cgroups.cpus(tmp_path, V1) == 4.0
    assert cgroups.memory(tmp_path, V1) is None
    write(tmp_path, cpu__a__cpu_DOT_cfs_quota_us="-1")
    assert cgroups.cpus(tmp_path, V1) is None


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    write(tmp_path, cpu_DOT_max="150000 100000")
    assert cgroups.cpus(tmp_path, "0::/\n") == 1.5
    assert cgroups.cpus(tmp_path, "0::/../../elsewhere\n") == 1.5


def test_no_limits_and_this_machine(tmp_path: Path) -> None:
    assert (cgroups.cpus(tmp_path, V2), cgroups.memory(tmp_path, V2), cgroups.processes(tmp_path, V2)) == (None,) * 3
    assert (cgroups.cpus() or 1) > 0
