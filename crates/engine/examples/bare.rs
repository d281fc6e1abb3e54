//! The data plane alone, without a control plane: for profiling it.
//!
//! `bare http|tcp LISTEN NODE…` serves with one worker until it is killed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use evener_engine::snapshot::*;
use evener_engine::stats::PerWorker;
use evener_engine::{Command, log_channel, start};
use evener_model::{JobCounts, NodeId, Weight};
use socket2::{Domain, Protocol, Socket, Type};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, listen, nodes @ ..] = &arguments[..] else { panic!("bare http|tcp LISTEN NODE…") };
    let address: std::net::SocketAddr = listen.parse().expect("an address to listen on");
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_tcp_nodelay(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(4096).unwrap();
    let (sinks, drain) = log_channel(1);
    let workers = start(1, 1, sinks, Vec::new()).unwrap();
    let pool = PoolId(0);
    let second = Duration::from_secs(1);
    let service = match protocol.as_str() {
        "http" => Service::Http(HttpSpec {
            routes: Vec::new(),
            pool: Some(pool),
            limits: HttpLimits {
                head_bytes_max: 65536,
                headers_max: 128,
                requests_max: 0,
                body_bytes_max: 0,
            },
            timeouts: HttpTimeouts {
                head: 10 * second,
                idle: 60 * second,
                body: 30 * second,
                tunnel: 3600 * second,
            },
            headers: HeaderSpec {
                x_forwarded_for: true,
                x_forwarded_proto: true,
                x_forwarded_host: true,
                forwarded: false,
                via: Some("evener".into()),
                request_id: Some("X-Request-Id".into()),
            },
            trusted: Vec::new(),
            access_log: Some(LogFormat::Combined),
        }),
        _ => Service::Tcp(TcpSpec { pool, idle_timeout: 3600 * second, access_log: None }),
    };
    let snapshot = Snapshot {
        version: 1,
        listeners: vec![Bound {
            spec: Arc::new(ListenerSpec {
                id: ListenerId(0),
                name: "bare".into(),
                accept_proxy: false,
                clients_max: 100_000,
                service,
                stats: Arc::new(PerWorker::new(1)),
            }),
            sockets: vec![Arc::new(OwnedFd::from(socket))],
        }],
        pools: vec![Arc::new(PoolSpec {
            id: pool,
            name: "nodes".into(),
            scheduler: Default::default(),
            hash_key: HashKey::Source,
            nodes: nodes
                .iter()
                .enumerate()
                .map(|(index, node)| {
                    Arc::new(NodeSpec {
                        id: NodeId(index as u32),
                        name: node.clone(),
                        address: node.parse().expect("an address of a node"),
                        weight: Weight::DEFAULT,
                        jobs_max: None,
                        draining: false,
                        up: true,
                        stats: Arc::new(PerWorker::new(1)),
                    })
                })
                .collect(),
            counts: Arc::new(JobCounts::new(JobCounts::POOL_NODES_MAX)),
            queue_max: 1000,
            queue_timeout: 5 * second,
            retry: Retry { attempts_max: 2, budget_percent: 20, on_unavailable: false },
            timeouts: NodeTimeouts {
                connect: 2 * second,
                response: 60 * second,
                body: 60 * second,
                idle: 30 * second,
            },
            idle_connections_max: 1024,
            send_proxy: None,
            exceptions: Vec::new(),
            orca: Orca::Use,
            waiting: Arc::new(Waiting::new(1)),
            stats: Arc::new(PerWorker::new(1)),
        })],
    };
    workers[0].send(Command::Apply(Arc::new(snapshot)));
    while drain.next(second, |_| ()) {}
}
