//! Which pool a request goes to, and what of it is hashed.

use std::net::IpAddr;

use evener_protocol::http1::Request;
use evener_scheduler::hash_bytes;

use crate::listener::Listener;
use crate::snapshot::{HashKey, HttpSpec, PathMatch, Route};

/// The place of the pool for a request, or `None` if no route takes it.
#[inline]
pub(super) fn pool(listener: &Listener, http: &HttpSpec, request: &Request, bytes: &[u8]) -> Option<usize> {
    if http.routes.is_empty() {
        return listener.pool;
    }
    let host = request.host.map_or(&b""[..], |host| without_port(host.of(bytes)));
    let path = request.path.of(bytes);
    http.routes
        .iter()
        .zip(&listener.routes)
        .find(|(route, _)| matches(route, host, path))
        .map_or(listener.pool, |(_, &pool)| Some(pool))
}

fn matches(route: &Route, host: &[u8], path: &[u8]) -> bool {
    let host_matches = match route.host.as_deref() {
        None => true,
        Some(pattern) => match pattern.strip_prefix('*') {
            Some(suffix) => {
                host.len() > suffix.len()
                    && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
            }
            None => host.eq_ignore_ascii_case(pattern.as_bytes()),
        },
    };
    host_matches
        && match &route.path {
            PathMatch::Any => true,
            PathMatch::Exact(exact) => path == exact.as_bytes(),
            PathMatch::Prefix(prefix) => {
                let prefix = prefix.as_bytes();
                path.starts_with(prefix)
                    && (prefix.ends_with(b"/") || matches!(path.get(prefix.len()), None | Some(b'/')))
            }
        }
}

fn without_port(host: &[u8]) -> &[u8] {
    // An IPv6 address in brackets has colons of its own.
    let name_end = host.iter().rposition(|&byte| byte == b']').map_or(0, |bracket| bracket + 1);
    match host[name_end..].iter().position(|&byte| byte == b':') {
        Some(colon) => &host[..name_end + colon],
        None => host,
    }
}

/// What hashing policies hash of a request.
pub(super) fn key(hash_key: &HashKey, request: &Request, bytes: &[u8], client: IpAddr) -> u64 {
    let part = match hash_key {
        HashKey::Source => None,
        HashKey::Host => request.host.map(|host| host.of(bytes)),
        HashKey::Path => Some(request.path.of(bytes)),
        HashKey::Uri => Some(request.target.of(bytes)),
        HashKey::Header(name) => request.header(bytes, name),
        HashKey::Cookie(name) => {
            request.header(bytes, "cookie").and_then(|cookies| cookie(cookies, name.as_bytes()))
        }
    };
    part.map_or_else(|| source_key(client), hash_bytes)
}

/// The key of a client's address, without its port.
pub(crate) fn source_key(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => hash_bytes(&address.octets()),
        IpAddr::V6(address) => hash_bytes(&address.octets()),
    }
}

fn cookie<'a>(cookies: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    cookies.split(|&byte| byte == b';').find_map(|pair| {
        pair.trim_ascii_start().strip_prefix(name)?.strip_prefix(b"=").map(<[u8]>::trim_ascii_end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::PoolId;

    fn route(host: Option<&str>, path: PathMatch) -> Route {
        Route { host: host.map(str::to_owned), path, pool: PoolId(0) }
    }

    #[test]
    fn a_prefix_takes_whole_segments() {
        let api = route(None, PathMatch::Prefix("/api".into()));
        assert!(matches(&api, b"", b"/api"));
        assert!(matches(&api, b"", b"/api/x"));
        assert!(!matches(&api, b"", b"/apix"));
        let below = route(None, PathMatch::Prefix("/api/".into()));
        assert!(matches(&below, b"", b"/api/x"));
        assert!(!matches(&below, b"", b"/api"));
        assert!(matches(&route(None, PathMatch::Prefix("/".into())), b"", b"/x"));
    }

    #[test]
    fn a_star_takes_any_name_below_but_not_the_name_itself() {
        let below = route(Some("*.example.com"), PathMatch::Any);
        assert!(matches(&below, b"a.EXAMPLE.com", b"/"));
        assert!(!matches(&below, b"example.com", b"/"));
        assert!(!matches(&below, b"badexample.com", b"/"));
    }

    #[test]
    fn ports_do_not_count() {
        assert_eq!(without_port(b"example.com:8080"), b"example.com");
        assert_eq!(without_port(b"[::1]:8080"), b"[::1]");
        assert_eq!(without_port(b"[::1]"), b"[::1]");
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        assert_eq!(cookie(b"a=1; sid=xyz ; b=2", b"sid"), Some(&b"xyz"[..]));
        assert_eq!(cookie(b"xsid=1", b"sid"), None);
    }
}
