//! From tables to a [`Config`]: every key with its default and its limits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use evener_engine::snapshot::{
    HashKey, HeaderSpec, HttpLimits, HttpTimeouts, LogFormat, Network, NodeTimeouts, PathMatch, ProxyVersion,
    Retry,
};
use evener_model::{JobCounts, Weight};
use evener_scheduler::Policy;
use toml::de::DeTable;

use super::error::{ConfigError, Errors, Source};
use super::reader::{Problems, Table, Value, nearest};
use super::{
    AccessLog, AdminAddress, Bind, Check, Config, Http, Listener, LogOutput, Node, Pool, Probe, Process,
    Protocol, Route,
};
use super::{feedback, scheduler};

const WORKERS_MAX: u64 = 256;
/// The engine reads a head in one buffer.
const HEAD_BYTES_MAX: u64 = 64 * 1024;

/// Reads the texts of all files into one configuration.
pub(super) fn parse(sources: Vec<Source>) -> Result<Config, Errors> {
    let sources: Vec<Arc<Source>> = sources.into_iter().map(Arc::new).collect();
    let mut problems = Problems::default();
    let mut tables = Vec::new();
    for source in &sources {
        match DeTable::parse(&source.text) {
            Ok(table) => tables.push((Arc::clone(source), table)),
            Err(error) => problems.errors.push(ConfigError {
                source: Arc::clone(source),
                span: error.span().unwrap_or(0..0),
                key: String::new(),
                message: error.message().trim_end().replace('\n', ", "),
                help: None,
            }),
        }
    }
    if !problems.errors.is_empty() {
        return Err(Errors(problems.errors));
    }
    let mut roots: Vec<Table<'_>> =
        tables.iter().map(|(source, table)| Table::new(source, "", table.span(), table.get_ref())).collect();
    let p = &mut problems;
    let process_table = single(p, &mut roots, "process");
    let process = process(p, process_table);
    let admin = single(p, &mut roots, "admin").and_then(|table| admin(p, table));
    let log_table = single(p, &mut roots, "access_log");
    let access_log = access_log(p, log_table);
    let feedback_table = single(p, &mut roots, "feedback");
    let feedback = feedback::feedback(p, feedback_table);
    let pool_tables = named(p, &mut roots, "pool");
    let names: Vec<&str> = pool_tables.iter().map(|(name, _)| *name).collect();
    let listeners: Vec<Listener> = named(p, &mut roots, "listener")
        .into_iter()
        .filter_map(|(name, value)| listener(p, name, &value, &names))
        .collect();
    let pools: Vec<Pool> = pool_tables.iter().filter_map(|(name, value)| pool(p, name, value)).collect();
    check_outputs(p, &pool_tables, &pools);
    // What another balancer carries out needs no listener of ours.
    let is_idle = listeners.is_empty() && pools.iter().all(|pool| pool.output.is_none());
    if is_idle && p.errors.is_empty() {
        p.missing(&roots[0], "expected at least one listener, such as [listener.web] with bind and pool");
    }
    check_binds(p, &sources[0], &listeners);
    for root in roots {
        root.finish(p);
    }
    if !problems.errors.is_empty() {
        let place = |error: &ConfigError| {
            let file = sources.iter().position(|source| Arc::ptr_eq(source, &error.source));
            (file, error.span.start)
        };
        problems.errors.sort_by_key(place);
        return Err(Errors(problems.errors));
    }
    let warnings = warnings(&listeners, &pools);
    Ok(Config { process, admin, access_log, feedback, listeners, pools, warnings })
}

/// A section that may be in one file only.
fn single<'a>(p: &mut Problems, roots: &mut [Table<'a>], key: &'static str) -> Option<Table<'a>> {
    let mut found: Vec<Value<'a>> = roots.iter_mut().filter_map(|root| root.take(key)).collect();
    let first = found.first().map(|value| value.source.name.clone()).unwrap_or_default();
    for second in found.drain(1.min(found.len())..) {
        p.add(&second, format!("[{key}] is in {first} already: a section belongs in one file"));
    }
    found.pop()?.table(p)
}

/// Sections by name, of all files; each name once.
fn named<'a>(p: &mut Problems, roots: &mut [Table<'a>], key: &'static str) -> Vec<(&'a str, Value<'a>)> {
    let mut all: Vec<(&str, Value<'_>)> = Vec::new();
    for root in roots {
        let Some(table) = root.take(key).and_then(|value| value.table(p)) else { continue };
        for (name, value) in table.named() {
            if let Some((_, first)) = all.iter().find(|(other, _)| *other == name) {
                let message = format!("{key} \"{name}\" is defined already, in {}", first.source.name);
                p.add(&value, message);
            } else {
                all.push((name, value));
            }
        }
    }
    all
}

fn process(p: &mut Problems, table: Option<Table<'_>>) -> Process {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut process = Process {
        workers: cores,
        drain_timeout: Duration::from_secs(30),
        log_level: "info".into(),
        log_json: false,
    };
    let Some(mut table) = table else { return process };
    process.workers =
        table.or(p, "workers", process.workers as u64, |v, p| v.integer(p, 1..=WORKERS_MAX)) as usize;
    process.drain_timeout = table.or(p, "drain_timeout", process.drain_timeout, Value::duration);
    let levels = ["error", "warn", "info", "debug", "trace"].map(|level| (level, level));
    process.log_level = table.or(p, "log_level", "info", |v, p| v.choice(p, &levels)).into();
    process.log_json =
        table.or(p, "log_format", false, |v, p| v.choice(p, &[("text", false), ("json", true)]));
    table.finish(p);
    process
}

fn admin(p: &mut Problems, mut table: Table<'_>) -> Option<AdminAddress> {
    let allow_remote = table.or(p, "allow_remote", false, Value::boolean);
    let listen = table.take("listen");
    let address = match &listen {
        None => {
            p.missing(&table, "expected a key listen, such as listen = \"127.0.0.1:9900\"");
            None
        }
        Some(value) => value.string(p).and_then(|text| match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Some(AdminAddress::Unix(path.into())),
            _ => {
                let bind = bind_address(text)?;
                Some(AdminAddress::Tcp(bind.address))
            }
        }),
    };
    if let Some(value) = &listen {
        match &address {
            None => p.add(value, "expected HOST:PORT or unix:PATH"),
            Some(AdminAddress::Tcp(address)) if !address.ip().is_loopback() && !allow_remote => p
                .add_with_help(
                    value,
                    format!(
                        "expected a loopback address, found {address}: whoever reaches it steers the director"
                    ),
                    Some("use 127.0.0.1 or a UNIX socket, or set allow_remote = true".into()),
                ),
            Some(_) => {}
        }
    }
    table.finish(p);
    address
}

fn access_log(p: &mut Problems, table: Option<Table<'_>>) -> AccessLog {
    let mut log = AccessLog { output: None, format: LogFormat::Combined };
    let Some(mut table) = table else { return log };
    let formats =
        [("common", LogFormat::Common), ("combined", LogFormat::Combined), ("json", LogFormat::Json)];
    log.format = table.or(p, "format", LogFormat::Combined, |v, p| v.choice(p, &formats));
    log.output = table.take("path").and_then(|value| match value.string(p)? {
        "off" => None,
        "stdout" => Some(LogOutput::Stdout),
        path => Some(LogOutput::File(path.into())),
    });
    table.finish(p);
    log
}

fn listener(p: &mut Problems, name: &str, value: &Value<'_>, pools: &[&str]) -> Option<Listener> {
    let mut table = value.table(p)?;
    name_is_plain(p, value, name);
    let mut binds = Vec::new();
    match table.take("bind") {
        None => p.missing(&table, "expected a key bind, such as bind = \":8080\""),
        Some(value) => {
            for item in value.one_or_more(p) {
                let Some(text) = item.string(p) else { continue };
                match bind_address(text) {
                    Some(bind) => binds.push(bind),
                    None => p.add(&item, format!("expected ADDRESS:PORT or :PORT, found \"{text}\"")),
                }
            }
        }
    }
    let is_http = table.or(p, "protocol", true, |v, p| v.choice(p, &[("http", true), ("tcp", false)]));
    let pool = table.take("pool").and_then(|value| pool_name(p, &value, pools));
    let clients_max = table.or(p, "clients_max", 10_000, |v, p| v.integer(p, 1..=10_000_000)) as u32;
    let accept_proxy = table.or(p, "accept_proxy", false, Value::boolean);
    let protocol = if is_http {
        Protocol::Http(http(p, &mut table, pool, pools))
    } else {
        let idle = table.take("timeouts").and_then(|value| value.table(p)).map(|mut timeouts| {
            let idle = timeouts.or(p, "idle", Duration::from_secs(3600), Value::duration);
            timeouts.finish(p);
            idle
        });
        if pool.is_none() {
            p.missing(&table, "expected a key pool: where connections go");
        }
        Protocol::Tcp {
            pool: pool.unwrap_or_default(),
            idle_timeout: idle.unwrap_or(Duration::from_secs(3600)),
        }
    };
    table.finish(p);
    Some(Listener { name: name.into(), binds, protocol, clients_max, accept_proxy })
}

fn http(p: &mut Problems, table: &mut Table<'_>, pool: Option<String>, pools: &[&str]) -> Http {
    let mut limits =
        HttpLimits { head_bytes_max: 65_536, headers_max: 128, requests_max: 0, body_bytes_max: 0 };
    if let Some(mut t) = table.take("limits").and_then(|value| value.table(p)) {
        limits.head_bytes_max = t.or(p, "head", 65_536, |v, p| {
            let size = v.size(p)?;
            if (256..=HEAD_BYTES_MAX).contains(&size) {
                return Some(size as u32);
            }
            p.add(v, format!("expected a size from 256 to 64KiB, found {}", v.found()));
            None
        });
        limits.headers_max = t.or(p, "headers", 128, |v, p| v.integer(p, 1..=1000)) as u16;
        limits.requests_max = t.or(p, "requests", 0, |v, p| v.integer(p, 0..=u64::from(u32::MAX))) as u32;
        limits.body_bytes_max = t.or(p, "body", 0, Value::size);
        t.finish(p);
    }
    let second = Duration::from_secs(1);
    let mut timeouts =
        HttpTimeouts { head: 10 * second, idle: 60 * second, body: 30 * second, tunnel: 3600 * second };
    if let Some(mut t) = table.take("timeouts").and_then(|value| value.table(p)) {
        timeouts.head = t.or(p, "head", timeouts.head, Value::duration);
        timeouts.idle = t.or(p, "idle", timeouts.idle, Value::duration);
        timeouts.body = t.or(p, "body", timeouts.body, Value::duration);
        timeouts.tunnel = t.or(p, "tunnel", timeouts.tunnel, Value::duration);
        t.finish(p);
    }
    let mut headers = HeaderSpec {
        x_forwarded_for: true,
        x_forwarded_proto: true,
        x_forwarded_host: true,
        forwarded: false,
        via: Some("evener".into()),
        request_id: Some("X-Request-Id".into()),
    };
    if let Some(mut t) = table.take("headers").and_then(|value| value.table(p)) {
        headers.x_forwarded_for = t.or(p, "x_forwarded_for", true, Value::boolean);
        headers.x_forwarded_proto = t.or(p, "x_forwarded_proto", true, Value::boolean);
        headers.x_forwarded_host = t.or(p, "x_forwarded_host", true, Value::boolean);
        headers.forwarded = t.or(p, "forwarded", false, Value::boolean);
        headers.via = t.or(p, "via", headers.via, token_or_false);
        headers.request_id = t.or(p, "request_id", headers.request_id, token_or_false);
        t.finish(p);
    }
    let mut trusted = Vec::new();
    for item in table.take("trusted").map(|value| value.list(p)).unwrap_or_default() {
        trusted.extend(network(p, &item));
    }
    let mut routes = Vec::new();
    for item in table.take("route").map(|value| value.list(p)).unwrap_or_default() {
        let Some(mut t) = item.table(p) else { continue };
        let host = t.take("host").and_then(|value| host_pattern(p, &value));
        let exact = t.take("path").and_then(|value| path(p, &value));
        let prefix_value = t.take("prefix");
        let prefix = prefix_value.as_ref().and_then(|value| path(p, value));
        if let (Some(_), Some(value)) = (&exact, &prefix_value) {
            p.add(value, "expected either path or prefix, found both");
        }
        let pool = match t.take("pool") {
            Some(value) => pool_name(p, &value, pools),
            None => {
                p.missing(&t, "expected a key pool: where matching requests go");
                None
            }
        };
        t.finish(p);
        let path = match (exact, prefix) {
            (Some(exact), _) => PathMatch::Exact(exact),
            (None, Some(prefix)) => PathMatch::Prefix(prefix),
            (None, None) => PathMatch::Any,
        };
        routes.push(Route { host, path, pool: pool.unwrap_or_default() });
    }
    if pool.is_none() && routes.is_empty() {
        p.missing(table, "expected a key pool or route: where requests go");
    }
    Http { routes, pool, limits, timeouts, headers, trusted }
}

fn pool(p: &mut Problems, name: &str, value: &Value<'_>) -> Option<Pool> {
    let mut t = value.table(p)?;
    name_is_plain(p, value, name);
    let (scheduler, auto_phase) = scheduler::settings(p, &mut t);
    let feedback_value = t.take("feedback");
    let feedback = feedback::pool_feedback(p, feedback_value, &scheduler, auto_phase);
    let join = t.take("join").and_then(|value| feedback::join(p, &value));
    let output = t.take("output").and_then(|value| feedback::output(p, &value));
    let hash_by_default =
        if scheduler.policy == Policy::DestinationHash { HashKey::Host } else { HashKey::Source };
    let hash = t.or(p, "hash", hash_by_default, hash_key);
    let jobs_max = t.or(p, "max_jobs", None, limit);
    let (mut queue_max, mut queue_timeout) = (1000, Duration::from_secs(5));
    if let Some(mut queue) = t.take("queue").and_then(|value| value.table(p)) {
        queue_max = queue.or(p, "limit", queue_max, |v, p| v.integer(p, 0..=1_000_000));
        queue_timeout = queue.or(p, "timeout", queue_timeout, Value::duration);
        queue.finish(p);
    }
    let mut retry = Retry { attempts_max: 2, budget_percent: 20, on_unavailable: false };
    if let Some(mut r) = t.take("retry").and_then(|value| value.table(p)) {
        retry.attempts_max = r.or(p, "attempts", 2, |v, p| v.integer(p, 0..=7)) as u8;
        retry.budget_percent = r.or(p, "budget", 20, |v, p| v.integer(p, 0..=100)) as u32;
        retry.on_unavailable = r.or(p, "on_unavailable", false, Value::boolean);
        r.finish(p);
    }
    let second = Duration::from_secs(1);
    let mut timeouts =
        NodeTimeouts { connect: 2 * second, response: 60 * second, body: 60 * second, idle: 30 * second };
    if let Some(mut times) = t.take("timeouts").and_then(|value| value.table(p)) {
        timeouts.connect = times.or(p, "connect", timeouts.connect, Value::duration);
        timeouts.response = times.or(p, "response", timeouts.response, Value::duration);
        timeouts.body = times.or(p, "body", timeouts.body, Value::duration);
        timeouts.idle = times.or(p, "idle", timeouts.idle, Value::duration);
        times.finish(p);
    }
    let idle_connections = t.or(p, "idle_connections", 1024, |v, p| v.integer(p, 0..=1_000_000)) as u32;
    let versions = [("v1", ProxyVersion::V1), ("v2", ProxyVersion::V2)];
    let send_proxy = t.take("send_proxy").and_then(|value| value.choice(p, &versions));
    let check = t.take("check").and_then(|value| check(p, &value));
    let nodes = nodes(p, &mut t, jobs_max, join.is_some());
    t.finish(p);
    Some(Pool {
        name: name.into(),
        scheduler,
        hash,
        queue_max: queue_max as u32,
        queue_timeout,
        retry,
        timeouts,
        idle_connections,
        send_proxy,
        check,
        feedback,
        join,
        output,
        jobs_max,
        nodes,
    })
}

fn nodes(p: &mut Problems, t: &mut Table<'_>, pool_jobs_max: Option<u32>, others_join: bool) -> Vec<Node> {
    let Some(list) = t.take("node") else {
        if !others_join {
            p.missing(t, "expected a key node: a list such as [ { address = \"10.0.0.1:80\" } ]");
        }
        return Vec::new();
    };
    let items = list.list(p);
    if items.is_empty() && !others_join {
        p.add(&list, "expected at least one node");
    }
    if items.len() > JobCounts::POOL_NODES_MAX {
        p.add(&list, format!("expected at most {} nodes, found {}", JobCounts::POOL_NODES_MAX, items.len()));
    }
    let mut places: HashMap<String, String> = HashMap::new();
    let mut nodes = Vec::new();
    for item in items {
        let Some(mut node) = item.table(p) else { continue };
        let address = node.take("address");
        let name = node.take("name").and_then(|value| value.string(p));
        let weight = node.or(p, "weight", Weight::DEFAULT, |v, p| {
            v.integer(p, 0..=u64::from(Weight::MAX.value())).and_then(|weight| Weight::new(weight).ok())
        });
        let jobs_max = node.or(p, "max_jobs", pool_jobs_max, limit);
        let Some(address) = address else {
            p.missing(&node, "expected a key address, such as address = \"10.0.0.1:80\"");
            continue;
        };
        node.finish(p);
        let Some(text) = address.string(p) else { continue };
        let resolved = match node_address(text) {
            Ok(resolved) => resolved,
            Err(message) => {
                p.add(&address, message);
                continue;
            }
        };
        let name = name.unwrap_or(text);
        if let Some(other) = places.insert(name.to_owned(), item.path.clone()) {
            p.add(&item, format!("expected a name of its own, found \"{name}\" of {other} again"));
        }
        nodes.push(Node { name: name.into(), text: text.into(), address: resolved, weight, jobs_max });
    }
    nodes
}

fn check(p: &mut Problems, value: &Value<'_>) -> Option<Check> {
    let mut t = value.table(p)?;
    let http = t.take("http");
    let tcp = t.take("tcp");
    let exec = t.take("exec");
    let host = t.take("host").and_then(|value| value.string(p)).map(str::to_owned);
    let expect = t.or(p, "expect", vec![(200, 399)], statuses);
    let body = t.take("body").and_then(|value| value.string(p)).map(str::to_owned);
    let interval = t.or(p, "interval", Duration::from_secs(2), Value::duration);
    let timeout = t.or(p, "timeout", Duration::from_secs(1), Value::duration);
    let rise = t.or(p, "rise", 2, |v, p| v.integer(p, 1..=1000)) as u32;
    let fall = t.or(p, "fall", 3, |v, p| v.integer(p, 1..=1000)) as u32;
    let port = t.take("port").and_then(|value| value.integer(p, 1..=65_535)).map(|port| port as u16);
    t.finish(p);
    if interval < Duration::from_millis(10) {
        p.add(value, "expected an interval of at least 10ms");
    }
    let probe = match (http, tcp, exec) {
        (Some(value), None, None) => {
            let text = value.string(p)?;
            match text.split_once(' ') {
                Some((method @ ("GET" | "HEAD" | "OPTIONS"), path))
                    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) =>
                {
                    Probe::Http { method: method.into(), path: path.into(), host, expect, body }
                }
                _ => {
                    p.add(
                        &value,
                        format!("expected a method and a path, such as \"GET /health\", found \"{text}\""),
                    );
                    return None;
                }
            }
        }
        (None, Some(value), None) => match value.boolean(p)? {
            true => Probe::Tcp,
            false => return None,
        },
        (None, None, Some(value)) => {
            let words: Vec<String> =
                value.one_or_more(p).iter().filter_map(|word| word.string(p)).map(str::to_owned).collect();
            if words.is_empty() {
                p.add(&value, "expected a program and its arguments");
                return None;
            }
            Probe::Exec(words)
        }
        _ => {
            p.add(value, "expected exactly one of http, tcp and exec");
            return None;
        }
    };
    Some(Check { probe, interval, timeout, rise, fall, port })
}

fn statuses(value: &Value<'_>, p: &mut Problems) -> Option<Vec<(u16, u16)>> {
    let mut ranges = Vec::new();
    for item in value.one_or_more(p) {
        let range = match item.value {
            toml::de::DeValue::Integer(number) => number.as_str().parse().ok().map(|status| (status, status)),
            toml::de::DeValue::String(text) => match text.split_once('-') {
                Some((from, to)) => from.parse().ok().zip(to.parse().ok()),
                None => text.parse().ok().map(|status: u16| (status, status)),
            },
            _ => None,
        };
        match range {
            Some((from, to)) if (100..=599).contains(&from) && (from..=599).contains(&to) => {
                ranges.push((from, to))
            }
            _ => {
                p.add(&item, format!("expected statuses such as 200 or \"200-399\", found {}", item.found()))
            }
        }
    }
    (!ranges.is_empty()).then_some(ranges)
}

fn hash_key(value: &Value<'_>, p: &mut Problems) -> Option<HashKey> {
    let text = value.string(p)?;
    let key = match text.split_once(':') {
        Some(("header", name)) if is_token(name) => HashKey::Header(name.to_ascii_lowercase()),
        Some(("cookie", name)) if is_token(name) => HashKey::Cookie(name.into()),
        None => match text {
            "source" => HashKey::Source,
            "host" => HashKey::Host,
            "path" => HashKey::Path,
            "uri" => HashKey::Uri,
            _ => return hash_key_is_wrong(value, p),
        },
        _ => return hash_key_is_wrong(value, p),
    };
    Some(key)
}

fn hash_key_is_wrong(value: &Value<'_>, p: &mut Problems) -> Option<HashKey> {
    p.add(
        value,
        format!("expected source, host, path, uri, header:NAME or cookie:NAME, found {}", value.found()),
    );
    None
}

/// A limit, of which 0 means none.
fn limit(value: &Value<'_>, p: &mut Problems) -> Option<Option<u32>> {
    let number = value.integer(p, 0..=u64::from(u32::MAX))?;
    Some((number > 0).then_some(number as u32))
}

/// The name of a header or of a proxy; `false` for none.
fn token_or_false(value: &Value<'_>, p: &mut Problems) -> Option<Option<String>> {
    match value.value {
        toml::de::DeValue::Boolean(false) => Some(None),
        toml::de::DeValue::String(text) if is_token(text) => Some(Some(text.to_string())),
        _ => {
            p.add(value, format!("expected a name or false, found {}", value.found()));
            None
        }
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Names appear in metrics, paths and logs.
fn name_is_plain(p: &mut Problems, value: &Value<'_>, name: &str) {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        p.add(value, format!("expected a name of letters, digits, - _ and ., found \"{name}\""));
    }
}

fn pool_name(p: &mut Problems, value: &Value<'_>, pools: &[&str]) -> Option<String> {
    let name = value.string(p)?;
    if pools.contains(&name) {
        return Some(name.into());
    }
    let help = nearest(name, pools.iter().copied()).unwrap_or_else(|| format!("pools: {}", pools.join(", ")));
    p.add_with_help(value, format!("there is no pool \"{name}\""), Some(help));
    // Wrong, but there: that is complaint enough.
    Some(name.into())
}

fn host_pattern(p: &mut Problems, value: &Value<'_>) -> Option<String> {
    let text = value.string(p)?;
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte));
    if !is_name || (name.contains(':') && !name.starts_with('[')) {
        p.add(
            value,
            format!(
                "expected a host without port, such as \"example.com\" or \"*.example.com\", found \"{text}\""
            ),
        );
    }
    Some(text.to_ascii_lowercase())
}

fn path(p: &mut Problems, value: &Value<'_>) -> Option<String> {
    let text = value.string(p)?;
    if !text.starts_with('/') || text.contains(['?', '#', ' ']) {
        p.add(value, format!("expected a path that begins with /, without query, found \"{text}\""));
    }
    Some(text.into())
}

pub(super) fn network(p: &mut Problems, value: &Value<'_>) -> Option<Network> {
    let text = value.string(p)?;
    match text.parse::<ipnet::IpNet>().or_else(|_| text.parse::<IpAddr>().map(Into::into)) {
        Ok(net) => Some(Network { address: net.network(), prefix: net.prefix_len() }),
        Err(_) => {
            p.add(value, format!("expected an address block such as \"10.0.0.0/8\", found \"{text}\""));
            None
        }
    }
}

pub(super) fn bind_address(text: &str) -> Option<Bind> {
    let bind = |address, dual_stack| Some(Bind { text: text.into(), address, dual_stack });
    if let Some(port) = text.strip_prefix(':').or_else(|| text.strip_prefix("*:")) {
        let port = port.parse().ok()?;
        return if has_ipv6() {
            bind((Ipv6Addr::UNSPECIFIED, port).into(), true)
        } else {
            bind((Ipv4Addr::UNSPECIFIED, port).into(), false)
        };
    }
    match text.parse::<SocketAddr>() {
        Ok(address) => bind(address, false),
        Err(_) => bind(text.to_socket_addrs().ok()?.next()?, false),
    }
}

fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}

fn node_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let expected = "expected HOST:PORT, such as \"10.0.0.1:80\"";
    if !text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        return Err(format!("{expected}, found \"{text}\""));
    }
    match text.to_socket_addrs() {
        Ok(mut addresses) => addresses.next().ok_or_else(|| format!("\"{text}\" has no address")),
        Err(error) => Err(format!("\"{text}\" cannot be resolved: {error}")),
    }
}

/// Two listeners cannot have one address.
fn check_binds(p: &mut Problems, source: &Arc<Source>, listeners: &[Listener]) {
    let mut seen: HashMap<SocketAddr, &str> = HashMap::new();
    for listener in listeners {
        for bind in &listener.binds {
            if bind.address.port() == 0 {
                continue;
            }
            if let Some(other) = seen.insert(bind.address, &listener.name) {
                p.errors.push(ConfigError {
                    source: Arc::clone(source),
                    span: 0..0,
                    key: format!("listener.{}.bind", listener.name),
                    message: format!("{} is taken by listener \"{other}\" already", bind.text),
                    help: None,
                });
            }
        }
    }
}

/// Two pools cannot steer the same: each would correct what the other wants.
fn check_outputs(p: &mut Problems, tables: &[(&str, Value<'_>)], pools: &[Pool]) {
    for (place, pool) in pools.iter().enumerate() {
        let Some(output) = &pool.output else { continue };
        let same = |other: &&Pool| other.output.as_ref().is_some_and(|other| other.is_same_place(output));
        let table = tables.iter().find(|(name, _)| *name == pool.name);
        if let (Some(first), Some((_, value))) = (pools[..place].iter().find(same), table) {
            p.add(value, format!("output: pool \"{}\" steers {output} already", first.name));
        }
        let Some((_, value)) = table else { continue };
        for (place, node) in pool.nodes.iter().enumerate() {
            let is_twice = pool.nodes[..place].iter().any(|other| other.address == node.address);
            if let Some(problem) = output.problem_of(node.address) {
                p.add(value, format!("node \"{}\": {problem}", node.name));
            } else if is_twice && matches!(output, super::Output::Ipvs { .. }) {
                p.add(value, format!("node \"{}\": {output} cannot have {} twice", node.name, node.address));
            }
        }
        // Of which family those are that join, their agents say.
        let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let problem = |ip, port| output.problem_of(SocketAddr::new(ip, port));
        let joined = pool.join.as_ref().map(|join| families.map(|ip| problem(ip, join.port)));
        if let Some([Some(problem), Some(_)]) = joined {
            p.add(value, format!("join: {problem}"));
        }
    }
}

fn warnings(listeners: &[Listener], pools: &[Pool]) -> Vec<String> {
    let mut warnings = Vec::new();
    for pool in pools {
        if !pool.nodes.is_empty() && pool.nodes.iter().all(|node| node.weight == Weight::DRAIN) {
            warnings.push(format!("pool.{}: all nodes have weight 0, so no job can be placed", pool.name));
        }
        let is_used = listeners.iter().any(|listener| match &listener.protocol {
            Protocol::Tcp { pool: name, .. } => *name == pool.name,
            Protocol::Http(http) => {
                http.pool.as_ref() == Some(&pool.name)
                    || http.routes.iter().any(|route| route.pool == pool.name)
            }
        });
        if !is_used && pool.output.is_none() {
            warnings.push(format!("pool.{}: no listener sends jobs here", pool.name));
        }
        if let Some(check) = &pool.check
            && check.timeout > check.interval
        {
            warnings.push(format!("pool.{}.check: the timeout is longer than the interval", pool.name));
        }
    }
    warnings
}
