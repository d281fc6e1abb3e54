"""h11_client.py URL: speaks to a director through h11, which refuses what is not strictly HTTP/1.1."""

import socket
import sys
import urllib.parse

import h11

url = urllib.parse.urlparse(sys.argv[1])


def check(what, holds, *details):
    """Prints what holds; ends at the first that does not."""
    if not holds:
        sys.exit(f"{what}: {details}")
    print("ok", what)


class Connection:
    """A socket with h11's state machine."""

    def __init__(self):
        self.socket = socket.create_connection((url.hostname, url.port), timeout=20)
        self.machine = h11.Connection(our_role=h11.CLIENT)

    def send(self, event):
        """Sends an event of h11's."""
        self.socket.sendall(self.machine.send(event))

    def event(self):
        """The next event of the response."""
        while True:
            event = self.machine.next_event()
            if event is not h11.NEED_DATA:
                return event
            self.machine.receive_data(self.socket.recv(65536))

    def exchange(self, method, target, headers=(), body=(), trailers=()):
        """A request and its response: interim statuses, response, body, trailers."""
        self.send(h11.Request(method=method, target=target, headers=[("Host", url.netloc), *headers]))
        for piece in body:
            self.send(h11.Data(data=piece))
        self.send(h11.EndOfMessage(headers=list(trailers)))
        interim, data = [], b""
        while True:
            event = self.event()
            if isinstance(event, h11.InformationalResponse):
                interim.append(event.status_code)
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                data += event.data
            elif isinstance(event, h11.EndOfMessage):
                if self.machine.our_state is h11.DONE and self.machine.their_state is h11.DONE:
                    self.machine.start_next_cycle()
                return interim, response, data, dict(event.headers)
            else:
                sys.exit(f"{method} {target}: {event}")


connection = Connection()
for _ in range(3):
    _, response, data, _ = connection.exchange("POST", "/echo", [("Content-Length", "5")], [b"hello"])
    assert (response.status_code, data) == (200, b"hello"), (response, data)
check("keep-alive", True)

_, response, data, trailers = connection.exchange(
    "POST", "/trailers", [("Transfer-Encoding", "chunked"), ("Trailer", "X-Sent"), ("TE", "trailers")],
    [b"a" * 1500, b"b" * 70_000, b"c"], [("X-Sent", "by h11")])
check("chunked", data == b"a" * 1500 + b"b" * 70_000 + b"c", response, len(data))
check("trailers", b"x-checksum" in trailers and trailers.get(b"x-sent") == b"by h11", trailers)

interim, response, data, _ = connection.exchange("GET", "/hints")
check("early hints", interim == [103] and data == b"after hints\n", interim, response)

_, response, data, _ = connection.exchange("HEAD", "/echo")
check("head", response.status_code == 200 and data == b"", response)

for status in (204, 304):
    _, response, data, _ = connection.exchange("GET", f"/status/{status}")
    check(f"status {status}", response.status_code == status and data == b"", response)

connection.send(h11.Request(method="POST", target="/echo",
                            headers=[("Host", url.netloc), ("Content-Length", "6"), ("Expect", "100-continue")]))
event = connection.event()
check("100-continue", isinstance(event, h11.InformationalResponse) and event.status_code == 100, event)
connection.send(h11.Data(data=b"waited"))
connection.send(h11.EndOfMessage())
data = b""
while not isinstance(event := connection.event(), h11.EndOfMessage):
    data += event.data if isinstance(event, h11.Data) else b""
check("body after 100", data == b"waited", data)

connection = Connection()
_, response, data, _ = connection.exchange("GET", "/until-close")
check("until close", response.status_code == 200, response)
