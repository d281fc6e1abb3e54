"""What a balancer costs under a load: CPU from /proc, requests and latency from wrk."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

LUA = """
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\\n{"requests":%d,"duration_us":%d,"bytes":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d,"p50_us":%d,"p99_us":%d}\\n',
    summary.requests, summary.duration, summary.bytes, e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


def tree(pid):
    """The process and all its descendants."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting.extend(parents.get(found[-1], []))
    return found


def cpu_s(pid):
    """CPU seconds, user and system, that the tree of `pid` has used: all processes, all threads.

    From schedstat (nanoseconds), which has no tick to round to; from stat (10 ms) where the kernel
    was built without. A thread that ended takes its schedstat along: none of the balancers ends
    threads under load.
    """
    total = 0.0
    for process in tree(pid):
        try:
            tasks = list(pathlib.Path(f"/proc/{process}/task").iterdir())
            total += sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
        except (OSError, IndexError):
            try:
                fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def resident_bytes(pid):
    """Memory that the tree of `pid` has for itself (private pages)."""
    total = 0
    for process in tree(pid):
        for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean", "Private_Dirty")):
                total += int(line.split()[1]) * 1024
    return total


def wrk(program, core, folder, url, connections, duration_s, close):
    """Runs wrk with one thread; its figures as a dictionary."""
    script = folder / "done.lua"
    script.write_text(LUA)
    command = ["taskset", "-c", str(core), program, "-t", "1", "-c", str(connections), "-d", f"{duration_s}s",
               "--timeout", "10s", "--latency", "-s", str(script), "-H", "Host: example.com"]
    if close:
        command += ["-H", "Connection: close"]
    for attempt in (1, 2):
        output = subprocess.run([*command, url], capture_output=True, text=True, timeout=duration_s + 60)
        if output.returncode == 0:
            break
        # Said, not hidden: the second failure ends the run.
        print(f"wrk failed: {output.stdout}{output.stderr}", file=sys.stderr)
        if attempt == 2:
            sys.exit("wrk failed twice: is the balancer still there?")
    return json.loads(output.stdout.strip().splitlines()[-1])


def load(balancer, program, core, folder, row, url, warm_up_s, duration_s):
    """Warms up, then measures once. CPU is counted from just before wrk starts to just after it ends."""
    if warm_up_s:
        wrk(program, core, folder, url, row.connections, warm_up_s, row.close)
    before = cpu_s(balancer.child.pid)
    figures = wrk(program, core, folder, url, row.connections, duration_s, row.close)
    used = cpu_s(balancer.child.pid) - before
    errors = {kind: figures[kind] for kind in ("connect", "read", "write", "status", "timeout") if figures[kind]}
    seconds = figures["duration_us"] / 1e6
    return {
        "cpu_us": used * 1e6 / max(figures["requests"], 1),
        "requests_per_s": figures["requests"] / seconds,
        "busy": used / seconds,
        "p50_us": figures["p50_us"],
        "p99_us": figures["p99_us"],
        "errors": errors,
    }


def idle(balancer, port, path, connections):
    """Opens keep-alive connections, one request each, and holds them: private bytes per connection."""
    request = f"GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode()

    def opened():
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        client.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = client.recv(65536)
            if not piece:
                raise RuntimeError("the balancer closed an idle connection")
            answer += piece
        return client

    held = [opened() for _ in range(64)]  # past what is allocated once
    before = resident_bytes(balancer.child.pid)
    held += [opened() for _ in range(connections)]
    time.sleep(0.5)
    grown = resident_bytes(balancer.child.pid) - before
    errors = {}
    for client in held:
        client.setblocking(False)
        try:
            if not client.recv(1, socket.MSG_PEEK):
                errors["closed"] = errors.get("closed", 0) + 1
        except BlockingIOError:
            pass
        client.close()
    return {"bytes_per_connection": grown / connections, "errors": errors}
