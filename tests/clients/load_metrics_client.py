"""load_metrics_client.py URL BODY: fetches URL with http.client and with h11, and sees nothing of what nodes say of themselves."""

import http.client
import socket
import sys
import urllib.parse

import h11

url = urllib.parse.urlparse(sys.argv[1])
body = sys.argv[2].encode()


def check(what, holds, *details):
    """Prints what holds; ends at the first that does not."""
    if not holds:
        sys.exit(f"{what}: {details}")
    print("ok", what)


connection = http.client.HTTPConnection(url.netloc, timeout=20)
for _ in range(3):
    connection.request("GET", url.path)
    response = connection.getresponse()
    data = response.read()
    names = [name.lower() for name, _ in response.getheaders()]
    check("http.client", data == body and not any(name.startswith("endpoint-load") for name in names), data, names)

with socket.create_connection((url.hostname, url.port), timeout=20) as stream:
    machine = h11.Connection(our_role=h11.CLIENT)
    for _ in range(3):
        request = h11.Request(method="GET", target=url.path, headers=[("Host", url.netloc)])
        stream.sendall(machine.send(request) + machine.send(h11.EndOfMessage()))
        names, data = [], b""
        while True:
            event = machine.next_event()
            if event is h11.NEED_DATA:
                machine.receive_data(stream.recv(65536))
            elif isinstance(event, h11.Data):
                data += event.data
            else:
                names += [name for name, _ in event.headers]
                if isinstance(event, h11.EndOfMessage):
                    break
        machine.start_next_cycle()
        check("h11", data == body and not any(name.startswith(b"endpoint-load") for name in names), data, names)
