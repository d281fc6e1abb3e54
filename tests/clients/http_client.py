"""http_client.py URL: speaks to a director through Python's http.client and checks what comes back."""

import hashlib
import http.client
import random
import sys
import urllib.parse

address = urllib.parse.urlparse(sys.argv[1]).netloc


def check(what, holds, *details):
    """Prints what holds; ends at the first that does not."""
    if not holds:
        sys.exit(f"{what}: {details}")
    print("ok", what)


connection = http.client.HTTPConnection(address, timeout=20)
connection.connect()
local = connection.sock.getsockname()
for _ in range(20):
    connection.request("GET", "/echo")
    response = connection.getresponse()
    response.read()
    assert response.status == 200, response.status
check("keep-alive", connection.sock is not None and connection.sock.getsockname() == local)

big = random.Random(1).randbytes(10 << 20)
digest = hashlib.sha256(big).digest()
connection.request("POST", "/echo", body=big)
response = connection.getresponse()
data = response.read()
check("post-length", hashlib.sha256(data).digest() == digest, response.status, len(data))

connection.request("POST", "/chunked", body=(big[at:at + 70_000] for at in range(0, len(big), 70_000)), encode_chunked=True)
response = connection.getresponse()
data = response.read()
check("chunked both ways", hashlib.sha256(data).digest() == digest, response.status, len(data))

connection.request("HEAD", "/echo")
response = connection.getresponse()
check("head", response.read() == b"" and response.getheader("Content-Length") == "12345", response.getheaders())

connection.request("GET", "/status/204")
response = connection.getresponse()
check("no content", response.status == 204 and response.read() == b"", response.status)

connection.request("POST", "/until-close", body=b"no length")
response = connection.getresponse()
check("until close", response.read() == b"no length", response.getheaders())

connection = http.client.HTTPConnection(address, timeout=20)
connection._http_vsn, connection._http_vsn_str = 10, "HTTP/1.0"
connection.request("POST", "/chunked", body=b"for an old client" * 1000)
response = connection.getresponse()
data = response.read()
check("HTTP/1.0", data == b"for an old client" * 1000 and response.getheader("Transfer-Encoding") is None, response.getheaders())
