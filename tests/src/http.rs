//! A small HTTP/1.1 client and the message reader that the nodes share with it.
//! It takes what arrives literally, so that a test sees what was really sent.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::DEADLINE;

/// Header fields or trailers: names and values.
pub type Fields = Vec<(String, String)>;

/// A connection on which messages are read, with what was read beyond them.
#[derive(Debug)]
pub struct Client {
    /// The connection itself.
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response, body and trailers included.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Status codes of the 1xx responses before it.
    pub interim: Vec<u16>,
    /// The head as it came.
    pub head: Head,
    /// The body, chunks put together.
    pub body: Vec<u8>,
    /// Trailers of a chunked body.
    pub trailers: Fields,
}

impl Response {
    /// The value of header `name`, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }
}

/// The head of a request or a response.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The start line.
    pub start: String,
    /// Names as sent, values trimmed.
    pub headers: Fields,
}

impl Head {
    /// Reads a head without its final empty line.
    pub fn parse(bytes: &[u8]) -> io::Result<Head> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .map(|line| {
                let (name, value) =
                    line.split_once(':').ok_or_else(|| invalid(&format!("header {line:?}")))?;
                Ok((name.to_owned(), value.trim().to_owned()))
            })
            .collect::<io::Result<_>>()?;
        Ok(Head { start, headers })
    }

    /// The value of the first header `name`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The values of all headers `name`.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers
            .iter()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Whether the comma-separated header `name` has the element `token`.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(','))
            .any(|element| element.trim().eq_ignore_ascii_case(token))
    }
}

impl Client {
    /// Connects; reads that take longer than [`DEADLINE`] fail.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        Ok(Client::new(TcpStream::connect_timeout(&address, DEADLINE)?))
    }

    /// Reads messages from a connection that is already there.
    pub fn new(stream: TcpStream) -> Client {
        let _ = stream.set_read_timeout(Some(DEADLINE));
        let _ = stream.set_nodelay(true);
        Client { stream, buffer: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// GETs `path`.
    pub fn get(&mut self, path: &str) -> io::Result<Response> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n"))?;
        self.response()
    }

    /// POSTs `body` to `path` with a Content-Length.
    pub fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Response> {
        self.send(format!(
            "POST {path} HTTP/1.1\r\nHost: example.com\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ))?;
        self.send(body)?;
        self.response()
    }

    /// Reads the response to a request that was not HEAD.
    pub fn response(&mut self) -> io::Result<Response> {
        self.response_to("GET")
    }

    /// Reads the response to a request of `method`, and the 1xx responses before it.
    pub fn response_to(&mut self, method: &str) -> io::Result<Response> {
        let mut interim = Vec::new();
        loop {
            let head = self.head()?.ok_or_else(|| closed("before a response"))?;
            let status = head.start.split(' ').nth(1).and_then(|code| code.parse().ok());
            let status: u16 = status.ok_or_else(|| invalid(&format!("status line {:?}", head.start)))?;
            if (100..200).contains(&status) && status != 101 {
                interim.push(status);
                continue;
            }
            let mut response = Response { status, interim, head, ..Response::default() };
            if method != "HEAD" && !matches!(status, 101 | 204 | 304) {
                let until_close = response.header("Content-Length").is_none();
                (response.body, response.trailers) = self.body(&response.head, until_close)?;
            }
            return Ok(response);
        }
    }

    /// Reads a head; `None` if the connection was closed before its first byte.
    pub fn head(&mut self) -> io::Result<Option<Head>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].windows(4).position(|window| window == b"\r\n\r\n") {
                let bytes: Vec<u8> = self.buffer.drain(..searched + at + 4).collect();
                return Head::parse(&bytes).map(Some);
            }
            searched = self.buffer.len().saturating_sub(3);
            match self.fill()? {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => return Err(closed("within a head")),
                _ => {}
            }
        }
    }

    /// Reads the body that `head` announces, and its trailers. Without a length it ends with the
    /// connection (`until_close`), or there is none.
    pub fn body(&mut self, head: &Head, until_close: bool) -> io::Result<(Vec<u8>, Fields)> {
        if head.has_token("Transfer-Encoding", "chunked") {
            return self.chunked();
        }
        if let Some(length) = head.header("Content-Length") {
            let length = length.parse().map_err(|_| invalid(&format!("Content-Length {length:?}")))?;
            return Ok((self.take(length)?, Vec::new()));
        }
        if until_close {
            while self.fill()? > 0 {}
            return Ok((std::mem::take(&mut self.buffer), Vec::new()));
        }
        Ok((Vec::new(), Vec::new()))
    }

    /// Whether the other side has closed: reads until it does, and says what came before.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if self.fill()? == 0 {
                return Err(closed("within a body"));
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn chunked(&mut self) -> io::Result<(Vec<u8>, Fields)> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| invalid(&format!("chunk size {line:?}")))?;
            if size == 0 {
                break;
            }
            body.extend(self.take(size)?);
            if self.take(2)? != b"\r\n" {
                return Err(invalid("chunk without its end"));
            }
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(':') {
                Some((name, value)) => trailers.push((name.to_owned(), value.trim().to_owned())),
                None if line.is_empty() => return Ok((body, trailers)),
                None => return Err(invalid(&format!("trailer {line:?}"))),
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line = self.buffer.drain(..end + 2).collect::<Vec<_>>();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.fill()? == 0 {
                return Err(closed("within a line"));
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 65536];
        loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(length) => {
                    self.buffer.extend_from_slice(&piece[..length]);
                    return Ok(length);
                }
            }
        }
    }
}

fn closed(place: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("closed {place}"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid {what}"))
}
