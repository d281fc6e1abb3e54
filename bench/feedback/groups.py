"""Control groups that make nodes unequal: each has a quota of CPU time.

Of version 2 where its controller `cpu` is to be had. Where that belongs to version 1, as on hosts that mount both, the
quota is set there, and what version 2 counts without a controller (time used, pressure) is put beside it in a folder
that looks to an agent like version 2.
"""

import os
import pathlib
import threading

ROOT = pathlib.Path("/sys/fs/cgroup")
# Short periods, so that a node that has used up its quota pauses for milliseconds and not for a tenth of a second.
PERIOD_US = 20_000
# A line of numbers grows; padding keeps a reader from seeing half of an old and half of a new one.
STAT_BYTES = 512
# The group of what has no quota: director, agents, generator.
REST = "rest"


class Unavailable(Exception):
    """There are no groups with a quota to be had here."""


class Groups:
    """A group for each node, by name; removed with the `with` block."""

    def __init__(self, folder, quotas):
        self.folder = folder
        self.quotas = quotas  # name -> CPUs
        self.name = f"evener-bench-{os.getpid()}"
        self.version, self.cpu, self.unified = find()
        self.stopping = threading.Event()
        self.copier = None

    def __enter__(self):
        try:
            if self.version == 2:
                enable(self.unified)
                (self.unified / self.name).mkdir()
                enable(self.unified / self.name)
            for name in (*self.quotas, REST):
                for folder in self.folders(name):
                    folder.mkdir(parents=True)
            for name, cpus in self.quotas.items():
                self.limit(name, cpus)
            self.prefer()
            if self.version == 1:
                self.lay_out()
                self.copier = threading.Thread(target=self.copy, daemon=True)
                self.copier.start()
        except OSError as error:
            self.__exit__()
            raise Unavailable(f"{error}: control groups need root") from error
        return self

    def __exit__(self, *_):
        self.stopping.set()
        if self.copier:
            self.copier.join()
        for base in {self.cpu, self.unified}:
            for folder in [*(base / self.name / name for name in (*self.quotas, REST)), base / self.name]:
                if folder.is_dir():
                    folder.rmdir()

    def folders(self, name):
        """Where a process of the node belongs."""
        return {base / self.name / name for base in (self.cpu, self.unified)}

    def limit(self, name, cpus):
        """Sets a quota."""
        quota = max(1000, round(cpus * PERIOD_US))
        folder = self.cpu / self.name / name
        if self.version == 2:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))

    def prefer(self):
        """What else this machine does gets what is left: quotas mean nothing if they are not to be had."""
        if self.version == 2:
            (self.cpu / self.name / "cpu.weight").write_text("10000")
        else:
            (self.cpu / self.name / "cpu.shares").write_text("262144")

    def join(self, name=REST):
        """What a child does before it becomes a program of the group."""
        files = [folder / "cgroup.procs" for folder in self.folders(name)]

        def enter():
            for file in files:
                file.write_text(str(os.getpid()))
        return enter

    def agent(self, name):
        """Lines for the table of the node's agent."""
        if self.version == 2:
            return f'cgroup = "/{self.name}/{name}"\n'
        return f'proc = "{self.folder}/proc"\ncgroup = "/{name}"\n'

    def describe(self):
        """How it is done, for the report."""
        if self.version == 2:
            return "cgroup v2 cpu.max"
        return "cgroup v1 quotas; usage and pressure from cgroup v2 beside it"

    def lay_out(self):
        """A folder like /proc that tells of a mount of version 2, and that mount."""
        proc, mount = self.folder / "proc", self.folder / "cgroup"
        (proc / "self").mkdir(parents=True)
        for name in ("stat", "loadavg", "pressure", "meminfo", "sys", "diskstats"):
            (proc / name).symlink_to(f"/proc/{name}")
        (proc / "self/net").symlink_to("/proc/net")
        (proc / "self/mountinfo").write_text(f"30 23 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
        (proc / "self/cgroup").write_text("0::/\n")
        for name, cpus in self.quotas.items():
            (mount / name).mkdir(parents=True)
            (mount / name / "cpu.max").write_text(f"{max(1000, round(cpus * PERIOD_US))} {PERIOD_US}\n")
            (mount / name / "cpu.pressure").symlink_to(self.unified / self.name / name / "cpu.pressure")
            (mount / name / "cpu.stat").write_bytes(b" " * STAT_BYTES)
            self.copy_stat(name)

    def copy_stat(self, name):
        """Puts what both versions count into one file."""
        used = (self.unified / self.name / name / "cpu.stat").read_text()
        throttled = (self.cpu / self.name / name / "cpu.stat").read_text()
        lines = [line for line in used.splitlines() if line.startswith("usage_usec")]
        lines += [line for line in throttled.splitlines() if line.startswith(("nr_periods", "nr_throttled"))]
        text = ("\n".join(lines) + "\n").encode().ljust(STAT_BYTES)
        with open(self.folder / "cgroup" / name / "cpu.stat", "r+b", buffering=0) as file:
            file.write(text)

    def copy(self):
        """Keeps the copies as fresh as an agent can want them."""
        while not self.stopping.wait(0.1):
            for name in self.quotas:
                self.copy_stat(name)


def find():
    """The version whose controller `cpu` can be had, where it is mounted, and where version 2 is."""
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    unified = next((pathlib.Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if unified is None:
        raise Unavailable("cgroup v2 is not mounted")
    if "cpu" in (unified / "cgroup.controllers").read_text().split():
        return 2, unified, unified
    old = next((pathlib.Path(mount[1]) for mount in mounts if mount[2] == "cgroup" and "cpu" in mount[3].split(",")), None)
    if old is None:
        raise Unavailable("no cgroup mounted here has the controller cpu")
    return 1, old, unified


def enable(folder):
    """Lets the groups below have quotas."""
    control = folder / "cgroup.subtree_control"
    if "cpu" not in control.read_text().split():
        control.write_text("+cpu")
