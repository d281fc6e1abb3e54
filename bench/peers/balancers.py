"""The balancers side by side: how each is configured and started.

All stand on the same footing, as one would run them in production: one worker, least jobs
(or connections) first, timeouts everywhere, metrics reachable, a line in the access log for
each request, node-side connections kept open, and the same headers added to each request
(X-Forwarded-For, -Proto, -Host and a request id). Where they differ:

* HAProxy does not write log files itself, and its ring in memory costs it more than a file costs
  the others: by default it logs nothing, which is in its favour (`--haproxy-log ring` logs).
* nginx and Envoy write to a file through a buffer, as Evener does.
* Evener also adds Via, its default.
"""

import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import time

BALANCER_CORE = 0
LOAD_CORE = 1
TIMEOUT_S = 60


@dataclasses.dataclass(frozen=True)
class Setting:
    """What every balancer is told."""

    folder: pathlib.Path  # for its configuration and logs
    programs: dict  # name -> path
    nodes: list  # ports
    http: int  # port of the HTTP listener
    tcp: int  # port of the TCP listener
    admin: int  # port for metrics
    plain: bool  # no access log, and X-Forwarded-For alone
    haproxy_log: bool


def evener(setting):
    """Evener: its defaults, and a log file."""
    nodes = ", ".join(f'{{ address = "127.0.0.1:{port}" }}' for port in setting.nodes)
    log = "off" if setting.plain else str(setting.folder / "access.log")
    headers = "x_forwarded_proto = false, x_forwarded_host = false, via = false, request_id = false"
    config = setting.folder / "evener.toml"
    config.write_text(f"""
[process]
workers = 1
log_level = "warn"
[admin]
listen = "127.0.0.1:{setting.admin}"
[access_log]
path = "{log}"
format = "combined"
[listener.web]
bind = "127.0.0.1:{setting.http}"
protocol = "http"
pool = "app"
clients_max = 20000
timeouts = {{ head = "10s", idle = "60s", body = "30s" }}
{f"headers = {{ {headers} }}" if setting.plain else ""}
[listener.raw]
bind = "127.0.0.1:{setting.tcp}"
protocol = "tcp"
pool = "app"
clients_max = 20000
[pool.app]
scheduler = "weighted-least-jobs"
idle_connections = 512
timeouts = {{ connect = "2s", response = "60s", body = "60s", idle = "60s" }}
node = [ {nodes} ]
""")
    return [setting.programs["evener"], "run", "-c", str(config)]


def haproxy(setting):
    """HAProxy: one thread, connections to nodes shared and reused."""
    nodes = "\n".join(f"  server n{port} 127.0.0.1:{port} pool-max-conn 512" for port in setting.nodes)
    log = setting.haproxy_log and not setting.plain
    config = setting.folder / "haproxy.cfg"
    config.write_text(f"""
global
  nbthread 1
  maxconn 9000
  {"log ring@requests format rfc5424 local0" if log else ""}
defaults
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout http-request 10s
  timeout http-keep-alive 60s
  timeout queue 5s
  balance leastconn
  {"log global" if log else ""}
{'''ring requests
  format rfc5424
  maxlen 1200
  size 4194304''' if log else ""}
frontend web
  mode http
  bind 127.0.0.1:{setting.http} backlog 4096
  {"option httplog" if log else ""}
  option forwardfor
  {"" if setting.plain else '''http-request set-header X-Forwarded-Proto http
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  http-request set-header X-Request-Id %[uuid()]'''}
  default_backend app
backend app
  mode http
  http-reuse always
{nodes}
listen raw
  mode tcp
  bind 127.0.0.1:{setting.tcp} backlog 4096
  {"option tcplog" if log else ""}
{nodes}
frontend metrics
  mode http
  no log
  bind 127.0.0.1:{setting.admin}
  http-request use-service prometheus-exporter if {{ path /metrics }}
  http-request return status 200 if {{ path /healthz }}
""")
    return [setting.programs["haproxy"], "-db", "-f", str(config)]


def nginx(setting):
    """nginx: one worker process, kept connections to nodes, log through a 32 KiB buffer."""
    nodes = " ".join(f"server 127.0.0.1:{port};" for port in setting.nodes)
    folder = setting.folder
    log = "access_log off;" if setting.plain else f"access_log {folder}/access.log combined buffer=32k flush=1s;"
    config = folder / "nginx.conf"
    config.write_text(f"""
{stream_module(setting.programs["nginx"])}
user root;
daemon off;
worker_processes 1;
worker_rlimit_nofile {NOFILE};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 19000; }}
http {{
  {temp_paths(folder)}
  {log}
  keepalive_requests 1000000000;
  keepalive_timeout 60s;
  client_header_timeout 10s;
  upstream app {{
    least_conn;
    {nodes}
    keepalive 512;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{setting.http} backlog=4096;
    location / {{
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      {"" if setting.plain else '''proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Request-Id $request_id;'''}
      proxy_connect_timeout 2s;
      proxy_max_temp_file_size 0;
    }}
  }}
  server {{
    listen 127.0.0.1:{setting.admin};
    access_log off;
    location /healthz {{ return 200; }}
    location /metrics {{ stub_status; }}
  }}
}}
stream {{
  {"" if setting.plain else f'''log_format raw '$remote_addr [$time_local] $protocol $status $bytes_sent $bytes_received $session_time';
  access_log {folder}/tcp.log raw buffer=32k flush=1s;'''}
  upstream app {{ least_conn; {nodes} }}
  server {{ listen 127.0.0.1:{setting.tcp} backlog=4096; proxy_pass app; proxy_connect_timeout 2s; }}
}}
""")
    return [setting.programs["nginx"], "-p", str(folder), "-c", str(config)]


def envoy(setting):
    """Envoy: one worker thread, circuit breakers out of the way, its default log format to a file."""
    folder = setting.folder
    endpoints = "\n".join(
        f"      - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
        for port in setting.nodes)

    def log(name):
        return "" if setting.plain else f"""
          access_log:
          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: {folder}/{name}.log"""

    def cluster(name):
        return f"""
  - name: {name}
    type: STATIC
    connect_timeout: 2s
    lb_policy: LEAST_REQUEST
    circuit_breakers:
      thresholds: [{{ max_connections: 100000, max_pending_requests: 100000, max_requests: 100000 }}]
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
{endpoints.replace("      -", "        -")}"""

    def listener(name, port):
        return f"""
  - name: {name}
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    tcp_backlog_size: 4096
    filter_chains:
    - filters:"""

    config = folder / "envoy.yaml"
    config.write_text(f"""
admin:
  address: {{ socket_address: {{ address: 127.0.0.1, port_value: {setting.admin} }} }}
static_resources:
  listeners:{listener("web", setting.http)}
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          use_remote_address: true
          generate_request_id: {"false" if setting.plain else "true"}
          append_x_forwarded_port: false
          request_headers_timeout: 10s
          stream_idle_timeout: 60s
          common_http_protocol_options: {{ idle_timeout: 60s }}{log("access")}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              {"" if setting.plain else '''request_headers_to_add:
              - header: { key: X-Forwarded-Host, value: "%REQ(:AUTHORITY)%" }'''}
              routes:
              - match: {{ prefix: "/" }}
                route: {{ cluster: app, timeout: 60s }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router{listener("raw", setting.tcp)}
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: raw
          idle_timeout: 3600s
          cluster: raw{log("tcp")}
  clusters:{cluster("app")}{cluster("raw")}
""")
    return [setting.programs["envoy"], "-c", str(config), "--concurrency", "1", "--log-level", "error",
            "--disable-hot-restart"]


BALANCERS = {"evener": evener, "haproxy": haproxy, "nginx": nginx, "envoy": envoy}

# Descriptors that each process may open; Debian's default of 1024 is too few for 1,000 clients.
NOFILE = 20000


class Process:
    """A program on one core, with all the processes it starts; ends with the `with` block."""

    def __init__(self, command, core, folder, ports):
        self.log = folder / "stderr.log"
        self.command = command
        self.core = core
        self.ports = ports
        self.child = None

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(["taskset", "-c", str(self.core), *self.command],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 15
        for port in self.ports:
            while not accepts(port):
                if self.child.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    raise RuntimeError(f"{self.command[0]} does not listen on {port}: {self.tail()}")
                time.sleep(0.02)
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
        # Its own children are not ours to wait for, and may hold the ports for a moment more.
        deadline = time.monotonic() + 15
        while any(accepts(port) for port in self.ports) and time.monotonic() < deadline:
            time.sleep(0.02)

    def tail(self):
        """The last lines it wrote to stderr."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])


def accepts(port):
    """Whether something listens on `port`."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def nodes(folder, program, ports, bodies):
    """One nginx process that is all the nodes: it answers /SIZE with a body of that many bytes."""
    www = folder / "www"
    www.mkdir(parents=True)
    for size in bodies:
        (www / str(size)).write_bytes(b"x" * size)
    config = folder / "nginx.conf"
    listens = " ".join(f"listen 127.0.0.1:{port} backlog=4096;" for port in ports)
    config.write_text(f"""
user root;
daemon off;
master_process off;
worker_rlimit_nofile {NOFILE};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 19000; }}
http {{
  {temp_paths(folder)}
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 3600s;
  open_file_cache max=16 inactive=1h;
  open_file_cache_valid 1h;
  sendfile on;
  tcp_nopush on;
  server {{
    {listens}
    root {www};
    location = /128 {{ return 200 "{"x" * 128}"; }}
  }}
}}
""")
    return Process([program, "-p", str(folder), "-c", str(config)], LOAD_CORE, folder, ports)


def temp_paths(folder):
    """nginx wants folders of its own for bodies; none is used here."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)


def stream_module(program):
    """Debian's nginx has its TCP proxy in a module beside it."""
    root = pathlib.Path(program).resolve().parent.parent / "root"
    module = root / "usr/lib/nginx/modules/ngx_stream_module.so"
    return f"load_module {module};" if module.exists() else ""
