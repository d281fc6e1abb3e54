"""What runs: nodes (nginx, whose requests cost CPU time), their agents, the director, a CPU hog."""

import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

# Debian's nginx finds its modules here; the module for Perl is what makes requests cost time.
MODULE = pathlib.Path("/usr/lib/nginx/modules/ngx_http_perl_module.so")


class Process:
    """A program, with all the processes it starts; ends with the `with` block."""

    def __init__(self, command, folder, name, ports=(), enter=None):
        self.command, self.ports, self.enter = command, ports, enter
        self.log = folder / f"{name}.log"
        self.child = None

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          start_new_session=True, preexec_fn=self.enter)
        for port in self.ports:
            wait_for(f"{self.command[0]} to listen on {port}", lambda: self.alive() and accepts(port))
        return self

    def alive(self):
        """Whether it runs; an error if it has ended."""
        if self.child.poll() is not None:
            raise RuntimeError(f"{' '.join(map(str, self.command))} ended: {self.tail()}")
        return True

    def __exit__(self, *_):
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()

    def cpu_s(self):
        """CPU time that it has used."""
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tail(self):
        """The last lines it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])


def wait_for(what, condition, limit_s=30):
    """Waits until a condition holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {limit_s} s in vain for {what}")
        time.sleep(0.02)


def accepts(port):
    """Whether something listens on `port`."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def node(folder, program, name, port, cost_ms, groups):
    """nginx with one worker: a request at /NUMBER uses CPU time drawn, by its number, from an exponential distribution."""
    home = folder / name
    home.mkdir()
    paths = " ".join(f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = home / "nginx.conf"
    # The time is the process's own: what a quota or another process takes away makes the request longer, not cheaper.
    # A connection for each request: so connections at the port are its jobs.
    config.write_text(f"""
load_module {MODULE};
user root;
daemon off;
master_process off;
pid {home}/pid;
error_log {home}/error.log;
events {{ worker_connections 4000; }}
http {{
  {paths}
  access_log off;
  keepalive_timeout 0;
  server {{
    listen 127.0.0.1:{port} backlog=4000;
    location = /up {{ return 200 up; }}
    location / {{
      perl 'sub {{
        use Time::HiRes qw(clock_gettime CLOCK_PROCESS_CPUTIME_ID);
        my $start = clock_gettime(CLOCK_PROCESS_CPUTIME_ID);
        my $r = shift;
        my ($n) = ($r->uri =~ m!(\\d+)$!);
        my $share = ((($n * 2654435761) % 4294967296) + 0.5) / 4294967296;
        my $cost = -{cost_ms / 1000} * log($share);
        1 while clock_gettime(CLOCK_PROCESS_CPUTIME_ID) < $start + $cost;
        $r->send_http_header("text/plain");
        $r->print("{name} $n\\n");
        return OK;
      }}';
    }}
  }}
}}
""")
    return Process([program, "-p", str(home), "-c", str(config)], folder, name, [port], groups.join(name))


def agent(folder, program, name, port, director, groups):
    """The node's agent: it reads the node's group, and counts its connections."""
    config = folder / f"agent-{name}.toml"
    config.write_text(f"""
[agent]
node = "{name}"
director = "necp://127.0.0.1:{director}"
service = "tcp/{port}"
interval = "500ms"
reconnect = {{ min = "100ms", max = "1s" }}
{groups.agent(name)}
[[agent.source]]
connections = {{ port = {port} }}
""")
    return Process([program, "agent", "-c", str(config)], folder, f"agent-{name}", enter=groups.join())


def director(folder, program, ports, nodes, pool, groups):
    """The director, with one worker."""
    listed = ", ".join(f'{{ name = "{name}", address = "127.0.0.1:{port}"{weight} }}' for name, port, weight in nodes)
    config = folder / "evener.toml"
    config.write_text(f"""
[process]
workers = 1
log_level = "warn"
[admin]
listen = "127.0.0.1:{ports['admin']}"
[feedback]
necp = "127.0.0.1:{ports['necp']}"
[listener.web]
bind = "127.0.0.1:{ports['http']}"
protocol = "http"
pool = "app"
[pool.app]
{pool}
timeouts = {{ connect = "5s", response = "30s" }}
node = [ {listed} ]
""")
    return Process([program, "run", "-c", str(config)], folder, "director", [ports["http"], ports["admin"]], groups.join())


def hog(folder, name, groups, count):
    """Processes that use all CPU time they get, in a node's group."""
    loop = "while :; do :; done"
    command = ["sh", "-c", " & ".join([loop] * count)]
    return Process(command, folder, f"hog-{name}", enter=groups.join(name))


def answered(port):
    """Waits for an answer that costs a node nothing, which comes after all that it has accepted before."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/up", timeout=120) as answer:
        answer.read()


def pool(ports):
    """What the director says of its pool."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ports['admin']}/pools/app", timeout=10) as answer:
        return answer.read()
