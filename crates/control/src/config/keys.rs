//! Every key there is, once: its type, its default and what it means. Reading a file, unknown keys,
//! defaults and the reference in docs/configuration.md all come from here.

/// A table of the configuration.
#[derive(Debug)]
pub(crate) struct Table {
    /// Where it stands: `pool.NAME.timeouts`.
    pub(crate) path: &'static str,
    /// What it is for.
    pub(crate) doc: &'static str,
    /// Its keys, in the order of the reference.
    pub(crate) keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What may stand there, as an error message says it after "expected".
    pub(crate) expects: &'static str,
    /// What holds if nothing stands there, in the form in which it would; `None`: nothing.
    pub(crate) default: Option<&'static str>,
    pub(crate) doc: &'static str,
}

impl Table {
    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

pub(crate) const STRING: &str = "a string";
pub(crate) const BOOLEAN: &str = "true or false";
pub(crate) const DURATION: &str = "a duration such as \"250ms\", \"1.5s\", \"5m\" or \"1h\"";
pub(crate) const SIZE: &str = "a size such as \"64KiB\", \"1MB\" or 4096";
pub(crate) const COUNT: &str = "an integer from 0 to 4294967295";
pub(crate) const TABLE: &str = "a table";
pub(crate) const TABLES: &str = "an array of tables";
pub(crate) const STRINGS: &str = "an array of strings";
const PERCENT: &str = "an integer from 0 to 100";
const POOL: &str = "the name of a pool";
const NAME: &str = "a string, or false for none";

macro_rules! table {
    ($id:ident, $path:literal, $doc:literal, { $($name:literal: $expects:expr, $default:expr, $text:literal;)* }) => {
        pub(crate) static $id: Table = Table {
            path: $path,
            doc: $doc,
            keys: &[$(Key { name: $name, expects: $expects, default: $default, doc: $text }),*],
        };
    };
}

table!(ROOT, "", "The top of a file.", {
    "process": TABLE, None, "the process as a whole";
    "admin": TABLE, None, "the admin API";
    "access_log": TABLE, None, "a line for each job";
    "listener": TABLE, None, "sockets that accept work, by name";
    "pool": TABLE, None, "nodes that do it, by name";
});

table!(PROCESS, "process", "The process as a whole.", {
    "workers": "an integer from 1 to 1024", None,
        "threads that carry jobs; without it, as many as there are cores to run on";
    "drain_timeout": DURATION, Some("30s"), "how long open jobs may take when the process ends or is replaced";
    "log_level": "\"error\", \"warn\", \"info\", \"debug\" or \"trace\"", Some("info"),
        "how much the program's own log, on standard error, tells";
    "log_format": "\"text\" or \"json\"", Some("text"), "how it tells it";
});

table!(ADMIN, "admin", "The admin API. Without this table there is none.", {
    "listen": "an address such as \"127.0.0.1:9900\", or \"unix:PATH\"", Some("127.0.0.1:9900"),
        "where it listens";
    "allow_remote": BOOLEAN, Some("false"),
        "whether `listen` may be an address that other machines can reach: whoever reaches it steers the director";
    "hosts": STRINGS, Some("[]"),
        "names that clients may use in the Host header, beside addresses and `localhost`";
});

table!(ACCESS_LOG, "access_log", "A line for each request of an HTTP listener and each connection of a TCP one.", {
    "path": "a path, \"stdout\" or \"off\"", Some("off"), "where the lines go; SIGHUP opens the file anew";
    "format": "\"common\", \"combined\" or \"json\"", Some("combined"), "how they look";
});

table!(LISTENER, "listener.NAME", "Sockets that accept work, and what is done with it.", {
    "bind": "an address such as \":8080\" or \"10.0.0.1:80\", or an array of them", None,
        "where it listens; `:8080` is all addresses of the machine, IPv4 and IPv6";
    "protocol": "\"http\" or \"tcp\"", Some("http"), "what it speaks";
    "pool": POOL, None,
        "where jobs go; for HTTP, those that no route takes (without it they are answered with 404)";
    "route": TABLES, None, "HTTP only: requests that go elsewhere, the first match wins";
    "clients_max": "an integer from 1 to 4294967295", Some("10000"),
        "client connections open at once, over all workers; further ones wait to be accepted";
    "accept_proxy": BOOLEAN, Some("false"),
        "whether each connection must begin with a PROXY protocol header (version 1 or 2)";
    "trusted": "an array of address blocks such as \"10.0.0.0/8\"", Some("[]"),
        "HTTP only: clients whose X-Forwarded-*, Forwarded and request id are believed and extended";
    "limits": TABLE, None, "HTTP only: sizes above which a client is refused";
    "timeouts": TABLE, None, "times after which a client is let go";
    "headers": TABLE, None, "HTTP only: what is added to forwarded messages";
});

table!(ROUTE, "listener.NAME.route[]", "Requests that go to a pool of their own. `prefix` and `path` exclude each other.", {
    "host": "a host name without port, \"*.\" before it for all names below", None, "the host asked for; without it, any";
    "prefix": "a path that begins with \"/\"", None, "how the path begins, in whole segments: `/api` takes `/api/x`, not `/apix`";
    "path": "a path that begins with \"/\"", None, "the path exactly";
    "pool": POOL, None, "where they go";
});

table!(LIMITS, "listener.NAME.limits", "Sizes above which an HTTP client is refused.", {
    "head": "a size from \"256B\" to \"1MiB\"", Some("64KiB"), "of a request's or response's head";
    "headers": "an integer from 1 to 10000", Some("128"), "header fields in a head";
    "requests": COUNT, Some("0"), "requests on one connection; 0: no limit";
    "body": SIZE, Some("0"), "of a request's body; 0: no limit";
});

table!(HTTP_TIMEOUTS, "listener.NAME.timeouts", "Times after which an HTTP client is let go.", {
    "head": DURATION, Some("10s"), "for a complete request head";
    "idle": DURATION, Some("60s"), "between requests";
    "body": DURATION, Some("30s"), "without progress in a request's body, or in a response that is not read";
    "tunnel": DURATION, Some("1h"), "without a byte either way after an upgrade (WebSocket)";
});

table!(TCP_TIMEOUTS, "listener.NAME.timeouts (tcp)", "Times after which a TCP client is let go.", {
    "idle": DURATION, Some("1h"), "without a byte either way";
});

table!(HEADERS, "listener.NAME.headers", "What is added to forwarded messages.", {
    "x_forwarded_for": BOOLEAN, Some("true"), "X-Forwarded-For: the client's address";
    "x_forwarded_proto": BOOLEAN, Some("true"), "X-Forwarded-Proto: http or https";
    "x_forwarded_host": BOOLEAN, Some("true"), "X-Forwarded-Host: the Host that the client sent";
    "forwarded": BOOLEAN, Some("false"), "Forwarded (RFC 7239): all of these in one";
    "via": NAME, Some("evener"), "the name that Via gives this director";
    "request_id": NAME, Some("X-Request-Id"), "the header that carries the request's id";
});

table!(POOL_TABLE, "pool.NAME", "The nodes behind listeners, and how one is chosen.", {
    "scheduler": "the name of a scheduler", Some("weighted-least-jobs"), "how a node is chosen";
    "order": "\"smooth\" or \"tokens\"", Some("smooth"),
        "for `weighted-round-robin`: a node's jobs spread over the round, or one after the other";
    "choices": "an integer from 1 to 16", Some("2"), "for `two-choices` and `peak-ewma`: nodes compared for each job";
    "phase": DURATION, Some("1s"), "for `job-informed`: the time between two looks at the counts";
    "load_bound": "a number from 1 to 100", Some("1.25"),
        "for `bounded-hash`: how far above its share of the jobs a node may be";
    "hash": "\"source\", \"host\", \"path\", \"uri\", \"header:NAME\" or \"cookie:NAME\"", Some("source"),
        "what of a job the hashing schedulers hash";
    "slow_start": DURATION, Some("0s"), "how long a node that is new or back takes to get its full share";
    "panic_threshold": PERCENT, Some("50"),
        "if less than this percentage of the nodes is well, all get jobs; 0: never";
    "max_jobs": COUNT, Some("0"), "jobs in flight on a node at the most, where the node says nothing; 0: no limit";
    "queue": TABLE, None, "jobs that wait when all nodes are at `max_jobs`";
    "retry": TABLE, None, "further tries on other nodes";
    "eject": "a table, or \"off\"", None, "nodes that fail get no jobs for a while";
    "timeouts": TABLE, None, "times after which a node has failed";
    "idle_connections": COUNT, Some("64"), "connections kept open for later jobs, for each node and worker";
    "send_proxy": "\"v1\", \"v2\" or false", Some("false"),
        "each connection to a node begins with this PROXY protocol header";
    "check": TABLE, None, "how nodes are asked whether they are well";
    "node": TABLES, None, "the nodes";
});

table!(QUEUE, "pool.NAME.queue", "Jobs that wait when all nodes are at `max_jobs`.", {
    "limit": COUNT, Some("1000"), "how many may wait, over all workers; 0: none";
    "timeout": DURATION, Some("5s"), "how long they may wait before they are refused (503)";
});

table!(RETRY, "pool.NAME.retry", "Further tries on other nodes, where nothing of the job was sent or it may be sent twice.", {
    "attempts": "an integer from 0 to 16", Some("2"), "further tries of a job; 0: none";
    "budget": "an integer from 0 to 1000", Some("20"), "retries at the most, as a percentage of the jobs of the last ten seconds";
    "on_unavailable": BOOLEAN, Some("false"), "whether a response of 502, 503 or 504 is tried again too";
});

table!(EJECT, "pool.NAME.eject", "When a node that fails gets no jobs, and for how long. `eject = \"off\"`: never.", {
    "failures": COUNT, Some("5"), "failures in a row that eject; 0: they do not";
    "error_share": PERCENT, Some("50"), "percentage of failures within an interval that ejects; 0: it does not";
    "requests": COUNT, Some("20"), "jobs in the interval from which the percentage counts";
    "interval": DURATION, Some("10s"), "the time over which it is taken";
    "base": DURATION, Some("5s"), "the first ejection; each further one is twice as long";
    "max": DURATION, Some("300s"), "the longest";
});

table!(NODE_TIMEOUTS, "pool.NAME.timeouts", "Times after which a node has failed.", {
    "connect": DURATION, Some("2s"), "to accept a connection";
    "response": DURATION, Some("60s"), "from the end of the request to the end of the response's head";
    "body": DURATION, Some("60s"), "without a byte in a response's body";
    "idle": DURATION, Some("30s"), "a connection without a job is closed after this";
});

table!(CHECK, "pool.NAME.check", "How nodes are asked whether they are well: one of `http`, `tcp` and `exec`.", {
    "http": "a request such as \"GET /health\"", None, "asks by HTTP";
    "tcp": "true", None, "asks for a connection";
    "exec": "an array of strings, the first of them a program", None,
        "runs a program: exit status 0 is good; EVENER_NODE and EVENER_ADDRESS tell it which node";
    "host": STRING, None, "HTTP only: the Host header; without it, the node's address";
    "expect": "statuses such as \"200-399\" or \"200,204\"", Some("200-399"), "HTTP only: the statuses that are good";
    "body": STRING, None, "HTTP only: text that must appear in the first 64 KiB of the body";
    "interval": DURATION, Some("2s"), "from one check to the next, give or take 10 %";
    "timeout": DURATION, Some("1s"), "a check that takes longer has failed";
    "rise": "an integer from 1 to 1000", Some("2"), "good results in a row that bring a node up";
    "fall": "an integer from 1 to 1000", Some("3"), "bad results in a row that bring a node down";
    "port": "an integer from 1 to 65535", None, "the port that is asked; without it, the node's";
});

table!(NODE, "pool.NAME.node[]", "A node.", {
    "name": STRING, None, "unique in the pool; without it, the address";
    "address": "an address such as \"10.0.0.1:80\", \"[::1]:80\" or \"name:80\"", None,
        "where it listens; a name is resolved when the configuration is read";
    "weight": "an integer from 0 to 256", Some("1"), "its capacity beside the others'; 0: no new jobs";
    "max_jobs": COUNT, None, "jobs in flight at the most, 0: no limit; without it, what the pool says";
});

/// All tables, in the order of the reference.
pub(crate) static TABLES_ALL: [&Table; 16] = [
    &PROCESS,
    &ADMIN,
    &ACCESS_LOG,
    &LISTENER,
    &ROUTE,
    &LIMITS,
    &HTTP_TIMEOUTS,
    &TCP_TIMEOUTS,
    &HEADERS,
    &POOL_TABLE,
    &QUEUE,
    &RETRY,
    &EJECT,
    &NODE_TIMEOUTS,
    &CHECK,
    &NODE,
];
