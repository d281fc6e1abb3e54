//! Answers of the director's own.

use evener_protocol::http1::Version;

/// Why the director answers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// What a person reads who looks at the body.
    pub(super) reason: &'static str,
}

impl Reply {
    pub(super) const NO_ROUTE: Reply = Reply { status: 404, reason: "no route takes this host and path" };
    pub(super) const HEAD_TIMEOUT: Reply =
        Reply { status: 408, reason: "the request did not arrive in time" };
    pub(super) const BODY_TOO_LARGE: Reply = Reply { status: 413, reason: "the request's body is too large" };
    pub(super) const BAD_BODY: Reply =
        Reply { status: 400, reason: "the request's chunked body is malformed" };
    pub(super) const NODE_FAILED: Reply =
        Reply { status: 502, reason: "the node did not give a valid response" };
    pub(super) const NO_NODE: Reply = Reply { status: 503, reason: "no node can take the request" };
    pub(super) const NOT_WANTED: Reply =
        Reply { status: 503, reason: "no node takes requests of this client" };
    pub(super) const NO_DESCRIPTOR: Reply =
        Reply { status: 503, reason: "the director has no descriptor or memory left" };
    pub(super) const QUEUE_FULL: Reply =
        Reply { status: 503, reason: "all nodes are busy and the queue is full" };
    pub(super) const QUEUE_TIMEOUT: Reply = Reply { status: 503, reason: "all nodes were busy for too long" };
    pub(super) const NODE_TIMEOUT: Reply = Reply { status: 504, reason: "the node did not answer in time" };

    /// Appends the whole response, and returns the length of its body.
    pub(super) fn write(
        self,
        version: Version,
        keep_alive: bool,
        head_only: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        use std::io::Write;
        let phrase = phrase(self.status);
        let body_length = self.status.to_string().len() + phrase.len() + self.reason.len() + 4;
        let retry = if self.status == 503 { "Retry-After: 1\r\n" } else { "" };
        let connection = match (version, keep_alive) {
            (_, false) => "Connection: close\r\n",
            (Version::Http10, true) => "Connection: keep-alive\r\n",
            (Version::Http11, true) => "",
        };
        write!(
            out,
            "HTTP/1.1 {} {phrase}\r\nContent-Type: text/plain\r\nContent-Length: {body_length}\r\n\
             Cache-Control: no-store\r\n{retry}{connection}\r\n",
            self.status,
        )
        .expect("writing to memory does not fail");
        if head_only {
            return 0;
        }
        let body_start = out.len();
        writeln!(out, "{} {phrase}: {}", self.status, self.reason).expect("writing to memory does not fail");
        debug_assert_eq!(out.len() - body_start, body_length);
        body_length
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_the_body() {
        let mut out = Vec::new();
        let length = Reply::NO_NODE.write(Version::Http11, true, false, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_at(text.find("\r\n\r\n").unwrap() + 4);
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert!(head.contains("\r\nRetry-After: 1\r\n"));
        assert_eq!(body, "503 Service Unavailable: no node can take the request\n");
        assert_eq!(length, body.len());
    }
}
