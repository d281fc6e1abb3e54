//! The access log's lines.

use std::io::Write;

use evener_model::Time;

use crate::clock::{Clock, civil};
use crate::snapshot::LogFormat;

/// What is known of a job when it has ended.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    /// Address without port.
    pub(crate) client: &'a str,
    /// The head as it was sent to the node (empty if there was none): the request line and what
    /// else a format wants is read from it.
    pub(crate) head: &'a [u8],
    /// What the client spoke, where the head does not say.
    pub(crate) protocol: &'a str,
    pub(crate) status: u16,
    /// Of the body, to the client.
    pub(crate) bytes_out: u64,
    pub(crate) started: Time,
    pub(crate) now: Time,
    pub(crate) listener: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) node: &'a str,
    pub(crate) latency: Option<std::time::Duration>,
    pub(crate) retries: u8,
    /// How it ended, if not well.
    pub(crate) failure: &'a str,
    /// Name of the header that holds the request's id.
    pub(crate) request_id: Option<&'a str>,
}

impl Entry<'_> {
    /// Writes the line, with its line feed.
    pub(crate) fn write(&self, format: LogFormat, clock: &Clock, out: &mut Vec<u8>) {
        match format {
            LogFormat::Common => self.write_common(clock, out),
            LogFormat::Combined => {
                self.write_common(clock, out);
                for name in [&b"referer"[..], b"user-agent"] {
                    out.extend_from_slice(b" \"");
                    escape(header(self.head, name).unwrap_or(b"-"), out);
                    out.push(b'"');
                }
            }
            LogFormat::Json => self.write_json(clock, out),
        }
        out.push(b'\n');
    }

    fn write_common(&self, clock: &Clock, out: &mut Vec<u8>) {
        out.extend_from_slice(self.client.as_bytes());
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(clock.common());
        out.extend_from_slice(b"] \"");
        match request_target(self.head) {
            Some((method, target)) => {
                out.extend_from_slice(method);
                out.push(b' ');
                escape(target, out);
                out.push(b' ');
                out.extend_from_slice(self.protocol.as_bytes());
            }
            None => out.push(b'-'),
        }
        out.extend_from_slice(b"\" ");
        decimal(u64::from(self.status), out);
        out.push(b' ');
        if self.bytes_out == 0 { out.push(b'-') } else { decimal(self.bytes_out, out) }
    }

    fn write_json(&self, clock: &Clock, out: &mut Vec<u8>) {
        let millis = clock.unix_millis(self.started);
        let (year, month, day) = civil(millis / 86_400_000);
        let (hour, minute) = (millis / 3_600_000 % 24, millis / 60_000 % 60);
        let (second, fraction) = (millis / 1000 % 60, millis % 1000);
        write!(
            out,
            "{{\"time\":\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z\",\
             \"client\":\"{}\",\"listener\":\"{}\",\"pool\":\"{}\",\"node\":\"{}\"",
            self.client, self.listener, self.pool, self.node
        )
        .expect("writing to memory does not fail");
        let text = |name: &str, value: Option<&[u8]>, out: &mut Vec<u8>| {
            let Some(value) = value else { return };
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":\"");
            escape_json(value, out);
            out.push(b'"');
        };
        let (method, target) = request_target(self.head).unzip();
        text("method", method, out);
        text("target", target, out);
        text("protocol", Some(self.protocol.as_bytes()), out);
        text("host", header(self.head, b"host"), out);
        text("referer", header(self.head, b"referer"), out);
        text("user_agent", header(self.head, b"user-agent"), out);
        text("request_id", self.request_id.and_then(|name| header(self.head, name.as_bytes())), out);
        write!(
            out,
            ",\"status\":{},\"bytes\":{},\"duration_us\":{},\"retries\":{}",
            self.status,
            self.bytes_out,
            self.now.since(self.started).as_micros(),
            self.retries
        )
        .expect("writing to memory does not fail");
        if let Some(latency) = self.latency {
            write!(out, ",\"latency_us\":{}", latency.as_micros()).expect("writing to memory does not fail");
        }
        if !self.failure.is_empty() {
            write!(out, ",\"failure\":\"{}\"", self.failure).expect("writing to memory does not fail");
        }
        out.push(b'}');
    }
}

fn request_target(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let method_end = head.iter().position(|&byte| byte == b' ')?;
    let rest = &head[method_end + 1..];
    let target_end = rest.iter().position(|&byte| byte == b' ')?;
    Some((&head[..method_end], &rest[..target_end]))
}

/// The value of the first header called `name`, of a head that this director wrote.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut from = memchr::memchr(b'\n', head)? + 1;
    loop {
        let line_end = from + memchr::memchr(b'\n', &head[from..])?;
        let line = &head[from..line_end];
        if line.len() < 2 {
            return None;
        }
        if line.len() > name.len()
            && line[name.len()] == b':'
            && line[..name.len()].eq_ignore_ascii_case(name)
        {
            return Some(line[name.len() + 1..].trim_ascii());
        }
        from = line_end + 1;
    }
}

/// Quotes, backslashes and whatever is not printable ASCII become `\xHH`, so that a line cannot be forged.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    if text.iter().all(|&byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text);
        return;
    }
    for &byte in text {
        match byte {
            b'"' | b'\\' => push_hex(b"\\x", byte, out),
            b' '..=b'~' => out.push(byte),
            _ => push_hex(b"\\x", byte, out),
        }
    }
}

fn escape_json(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => push_hex(b"\\u00", byte, out),
        }
    }
}

fn push_hex(prefix: &[u8], byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(prefix);
    out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LogFormat, head: &[u8]) -> String {
        let entry = Entry {
            client: "192.0.2.1",
            head,
            protocol: "HTTP/1.1",
            status: 200,
            bytes_out: 1234,
            started: Time::ZERO,
            now: Time::from_nanos(1_500_000),
            listener: "web",
            pool: "app",
            node: "rat",
            latency: None,
            retries: 0,
            failure: "",
            request_id: None,
        };
        let mut out = Vec::new();
        entry.write(format, &Clock::new(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let (before, after) = text.split_once('[').unwrap_or((&text, ""));
        let after = after.split_once(']').map_or("", |(_, after)| after);
        format!("{before}{after}")
    }

    #[test]
    fn a_client_cannot_forge_a_line() {
        let head = b"GET /\"x HTTP/1.1\r\nHost: a\r\nUser-Agent: a\"\\\x1b[31m\r\n\r\n";
        assert_eq!(
            line(LogFormat::Combined, head),
            "192.0.2.1 - -  \"GET /\\x22x HTTP/1.1\" 200 1234 \"-\" \"a\\x22\\x5c\\x1b[31m\"\n"
        );
    }

    #[test]
    fn a_request_that_was_not_understood_is_a_dash() {
        assert_eq!(line(LogFormat::Common, b""), "192.0.2.1 - -  \"-\" 200 1234\n");
    }

    #[test]
    fn json_names_pool_and_node() {
        let text = line(LogFormat::Json, b"GET /a?b HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(
            text.contains("\"pool\":\"app\",\"node\":\"rat\",\"method\":\"GET\",\"target\":\"/a?b\""),
            "{text}"
        );
        assert!(
            text.ends_with("\"status\":200,\"bytes\":1234,\"duration_us\":1500,\"retries\":0}\n"),
            "{text}"
        );
    }
}
