//! What servers say of themselves: Redis and memcached in their protocols, nginx on a page.

use super::Malformed;
use super::text::{integer, lines, words};

/// A reply of Redis, of the kinds that its answers to us can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `+OK`, and what stands behind the sign.
    Simple(&'a [u8]),
    /// `-ERR …`
    Error(&'a [u8]),
    /// Bytes of a length that was given.
    Bulk(&'a [u8]),
}

/// Reads one reply and says how long it was; `None` while more has to come.
///
/// # Errors
/// [`Malformed`] if it is another kind, or longer than `bytes_max`.
pub fn redis_reply(bytes: &[u8], bytes_max: usize) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    const WRONG: Malformed = Malformed("a reply of Redis");
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() > bytes_max { Err(WRONG) } else { Ok(None) };
    };
    let line = &bytes[..end];
    let after = end + 2;
    let (kind, rest) = line.split_first().ok_or(WRONG)?;
    match kind {
        b'+' => Ok(Some((Reply::Simple(rest), after))),
        b'-' => Ok(Some((Reply::Error(rest), after))),
        b'$' => {
            let length = integer(rest).and_then(|length| usize::try_from(length).ok()).ok_or(WRONG)?;
            if length > bytes_max {
                return Err(WRONG);
            }
            if bytes.len() < after + length + 2 {
                return Ok(None);
            }
            let whole = after + length + 2;
            if &bytes[after + length..whole] != b"\r\n" {
                return Err(WRONG);
            }
            Ok(Some((Reply::Bulk(&bytes[after..after + length]), whole)))
        }
        _ => Err(WRONG),
    }
}

/// What `INFO` says of Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedisInfo {
    /// Connections of clients, the one that asks included, those of replicas not.
    pub clients: u64,
    /// Commands that it ran since it came up.
    pub commands: u64,
}

impl RedisInfo {
    /// Reads the sections `clients` and `stats` of `INFO`.
    ///
    /// # Errors
    /// [`Malformed`] if one of the two is missing.
    pub fn parse(text: &[u8]) -> Result<RedisInfo, Malformed> {
        let value =
            |key: &[u8]| lines(text).find_map(|line| integer(line.strip_prefix(key)?.strip_prefix(b":")?));
        match (value(b"connected_clients"), value(b"total_commands_processed")) {
            (Some(clients), Some(commands)) => Ok(RedisInfo { clients, commands }),
            _ => Err(Malformed("INFO of Redis")),
        }
    }
}

/// What `stats` says of memcached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemcachedStats {
    /// Open connections, the one that asks included.
    pub connections: u64,
    /// Commands on keys that it ran since it came up.
    pub commands: u64,
}

impl MemcachedStats {
    /// Reads lines of `STAT key value` up to `END`; `None` while more has to come.
    ///
    /// # Errors
    /// [`Malformed`] if it is something else, or says nothing of connections.
    pub fn parse(text: &[u8]) -> Result<Option<MemcachedStats>, Malformed> {
        const WRONG: Malformed = Malformed("stats of memcached");
        const COMMANDS: [&[u8]; 9] = [
            b"cmd_get",
            b"cmd_set",
            b"cmd_touch",
            b"delete_misses",
            b"delete_hits",
            b"incr_misses",
            b"incr_hits",
            b"decr_misses",
            b"decr_hits",
        ];
        let (mut connections, mut commands) = (None, 0u64);
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(None);
        };
        for line in lines(&text[..end]) {
            let mut words = words(line);
            match words.next() {
                Some(b"STAT") => {}
                Some(b"END") => {
                    let connections = connections.ok_or(WRONG)?;
                    return Ok(Some(MemcachedStats { connections, commands }));
                }
                _ => return Err(WRONG),
            }
            let (key, value) = (words.next().ok_or(WRONG)?, words.next());
            if key == b"curr_connections" {
                connections = Some(value.and_then(integer).ok_or(WRONG)?);
            } else if COMMANDS.contains(&key) {
                commands = commands.saturating_add(value.and_then(integer).ok_or(WRONG)?);
            }
        }
        Ok(None)
    }
}

/// The page of nginx's `stub_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StubStatus {
    /// Open connections, the one that asks included.
    pub connections: u64,
    /// Of these, those that wait for a next request.
    pub waiting: u64,
    /// Requests since it came up.
    pub requests: u64,
}

impl StubStatus {
    /// Reads the page.
    ///
    /// # Errors
    /// [`Malformed`] if it is another page.
    pub fn parse(text: &[u8]) -> Result<StubStatus, Malformed> {
        let read = || {
            let mut lines = lines(text);
            let connections = integer(lines.next()?.strip_prefix(b"Active connections:")?.trim_ascii())?;
            lines.next()?.starts_with(b"server accepts handled requests").then_some(())?;
            let requests = words(lines.next()?).nth(2).and_then(integer)?;
            let mut states = words(lines.next()?);
            let waiting = states.nth(5).and_then(integer)?;
            Some(StubStatus { connections, waiting, requests })
        };
        read().ok_or(Malformed("nginx's stub_status"))
    }

    /// Requests that are under way, without that for this page.
    pub fn jobs(&self) -> u64 {
        self.connections.saturating_sub(self.waiting).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_redis_are_awaited_whole() {
        let whole = b"$5\r\nhello\r\n+OK\r\n";
        for cut in 0..11 {
            assert_eq!(redis_reply(&whole[..cut], 100), Ok(None), "{cut}");
        }
        assert_eq!(redis_reply(whole, 100), Ok(Some((Reply::Bulk(b"hello"), 11))));
        assert_eq!(redis_reply(&whole[11..], 100), Ok(Some((Reply::Simple(b"OK"), 5))));
        let refused = b"-NOAUTH Authentication required.\r\n";
        assert!(matches!(redis_reply(refused, 100), Ok(Some((Reply::Error(_), 34)))));
        for wrong in ["$-1\r\n", "$101\r\n", "*1\r\n", "\r\n", "$5\r\nhelloxx", "HTTP/1.1 400 Bad\r\n"] {
            assert!(redis_reply(wrong.as_bytes(), 100).is_err(), "{wrong:?}");
        }
        assert!(redis_reply(&[b'+'; 200], 100).is_err());
    }

    #[test]
    fn info_of_redis_is_read() {
        let text = b"# Clients\r\nconnected_clients:3\r\ncluster_connections:0\r\n\r\n# Stats\r\ntotal_commands_processed:17\r\n";
        assert_eq!(RedisInfo::parse(text), Ok(RedisInfo { clients: 3, commands: 17 }));
        assert!(RedisInfo::parse(b"connected_clients:3\r\n").is_err());
    }

    #[test]
    fn stats_of_memcached_are_awaited_whole() {
        let text = b"STAT pid 1\r\nSTAT curr_connections 4\r\nSTAT cmd_get 10\r\nSTAT incr_hits 2\r\nEND\r\n";
        for cut in 0..text.len() {
            assert_eq!(MemcachedStats::parse(&text[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(MemcachedStats::parse(text), Ok(Some(MemcachedStats { connections: 4, commands: 12 })));
        for wrong in ["ERROR\r\n", "END\r\n", "STAT curr_connections x\r\n", "STAT\r\n"] {
            assert!(MemcachedStats::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_page_of_nginx_is_read() {
        let page = b"Active connections: 7 \nserver accepts handled requests\n 10 10 43 \nReading: 1 Writing: 3 Waiting: 3 \n";
        let status = StubStatus::parse(page).expect("it comes from nginx");
        assert_eq!(status, StubStatus { connections: 7, waiting: 3, requests: 43 });
        assert_eq!(status.jobs(), 3);
        for wrong in ["", "Active connections: x\n", "<html>404</html>", "Active connections: 1\n\n\n\n"] {
            assert!(StubStatus::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }
}
