//! Metrics in the Prometheus text format, version 0.0.4.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use evener_engine::stats::{Histogram, PoolStats};
use evener_model::{Outcome, Report};

use crate::config;
use crate::director::{Director, State};
use crate::feedback::{Dialect, Refusal};
use crate::output::OutputStats;

/// Upper bounds of exported latency buckets, in microseconds; each is a bound of [`Histogram`] too.
const BOUNDS_US: [u64; 11] =
    [512, 1024, 2048, 4096, 8192, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];

/// All metrics of a director.
pub(crate) fn render(director: &Director) -> String {
    let mut out = Text(String::with_capacity(16 * 1024));
    let state = director.state();
    out.family("evener_build_info", "gauge", "Which program this is.");
    out.sample("evener_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    out.family("evener_uptime_seconds", "gauge", "Time since the director started.");
    out.sample("evener_uptime_seconds", &[], director.started.elapsed().as_secs_f64());
    out.family("evener_workers", "gauge", "Worker threads.");
    out.sample("evener_workers", &[], director.workers().len() as f64);
    process(&mut out);
    out.family("evener_access_log_dropped_total", "counter", "Lines dropped because the writer was behind.");
    out.sample("evener_access_log_dropped_total", &[], director.log.dropped.load(Ordering::Relaxed) as f64);
    out.family("evener_access_log_errors_total", "counter", "Batches of lines that could not be written.");
    out.sample("evener_access_log_errors_total", &[], director.log.failed.load(Ordering::Relaxed) as f64);

    type Read<T> = fn(&T) -> u64;
    let listener_metrics: [(&str, &str, &str, Read<evener_engine::stats::ListenerStats>); 9] = [
        ("connections_total", "counter", "Client connections accepted.", |s| s.accepted.load()),
        ("connections_open", "gauge", "Client connections open now.", |s| s.open.load()),
        ("limited_total", "counter", "Times that a limit held clients back or off.", |s| s.limited.load()),
        ("jobs_total", "counter", "Valid requests, or connections placed.", |s| s.jobs.load()),
        ("refused_total", "counter", "Requests refused as malformed or ambiguous.", |s| s.refused.load()),
        ("client_timeouts_total", "counter", "Clients that ran into a timeout.", |s| {
            s.client_timeouts.load()
        }),
        ("aborted_total", "counter", "Clients that left before their answer was complete.", |s| {
            s.aborted.load()
        }),
        ("received_bytes_total", "counter", "Bytes from clients.", |s| s.bytes_in.load()),
        ("sent_bytes_total", "counter", "Bytes to clients.", |s| s.bytes_out.load()),
    ];
    for (name, kind, help, read) in listener_metrics {
        let name = format!("evener_listener_{name}");
        out.family(&name, kind, help);
        for (listener, state) in &state.listeners {
            out.sample(&name, &[("listener", listener)], state.stats.sum(read) as f64);
        }
    }
    out.family("evener_listener_requests_total", "counter", "Responses by class of status.");
    for (listener, state) in &state.listeners {
        for (index, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
            let count = state.stats.sum(|stats| stats.responses[index].load());
            out.sample(
                "evener_listener_requests_total",
                &[("listener", listener), ("class", class)],
                count as f64,
            );
        }
    }
    out.family(
        "evener_listener_duration_seconds",
        "histogram",
        "From the end of a request's head to the end of its response.",
    );
    for (listener, state) in &state.listeners {
        out.histogram("evener_listener_duration_seconds", &[("listener", listener)], |read| {
            state.stats.sum(|stats| read(&stats.duration))
        });
    }

    let pool_metrics: [(&str, &str, &str, Read<evener_engine::stats::PoolStats>); 7] = [
        ("queued", "gauge", "Jobs that wait for a node now.", |s| s.queued.load()),
        ("queued_total", "counter", "Jobs that ever waited.", |s| s.queued_total.load()),
        ("queue_full_total", "counter", "Jobs refused because the queue was full.", |s| s.queue_full.load()),
        ("queue_timeouts_total", "counter", "Jobs refused because they waited too long.", |s| {
            s.queue_timeouts.load()
        }),
        ("no_node_total", "counter", "Jobs refused because no node could take one.", |s| s.no_node.load()),
        ("retries_total", "counter", "Tries beyond the first.", |s| s.retries.load()),
        ("retries_denied_total", "counter", "Retries not made because the budget was spent.", |s| {
            s.retries_denied.load()
        }),
    ];
    for (name, kind, help, read) in pool_metrics {
        let name = format!("evener_pool_{name}");
        out.family(&name, kind, help);
        for (pool, state) in &state.pools {
            out.sample(&name, &[("pool", pool)], state.stats.sum(read) as f64);
        }
    }

    let nodes = || {
        state.pools.iter().flat_map(|(pool, state)| state.nodes.iter().map(move |node| (pool, state, node)))
    };
    out.family("evener_node_jobs", "gauge", "Jobs in flight.");
    for (pool, pool_state, node) in nodes() {
        let jobs = f64::from(pool_state.counts.jobs(node.id));
        out.sample("evener_node_jobs", &[("pool", pool), ("node", &node.node.name)], jobs);
    }
    out.family("evener_node_weight", "gauge", "Weight by which jobs are placed.");
    for (pool, _, node) in nodes() {
        let weight = f64::from(node.weight().value());
        out.sample("evener_node_weight", &[("pool", pool), ("node", &node.node.name)], weight);
    }
    out.family(
        "evener_node_weight_configured",
        "gauge",
        "Weight that was configured, or set by an operator.",
    );
    for (pool, _, node) in nodes() {
        let weight = f64::from(node.base_weight().value());
        out.sample("evener_node_weight_configured", &[("pool", pool), ("node", &node.node.name)], weight);
    }
    reports(&mut out, director, &state);
    outputs(&mut out, &state);
    out.family("evener_node_up", "gauge", "Whether the health check lets the node have jobs.");
    for (pool, _, node) in nodes() {
        out.sample(
            "evener_node_up",
            &[("pool", pool), ("node", &node.node.name)],
            f64::from(u8::from(node.up)),
        );
    }
    let node_metrics: [(&str, &str, &str, Read<evener_engine::stats::NodeStats>); 7] = [
        ("picks_total", "counter", "Jobs placed.", |s| s.picks.load()),
        ("connects_total", "counter", "Connections opened.", |s| s.connects.load()),
        ("reused_total", "counter", "Jobs that used a connection again.", |s| s.reused.load()),
        ("connections", "gauge", "Connections open now.", |s| s.connections.load()),
        ("connections_idle", "gauge", "Connections without a job.", |s| s.idle.load()),
        ("sent_bytes_total", "counter", "Bytes to the node.", |s| s.bytes_out.load()),
        ("received_bytes_total", "counter", "Bytes from the node.", |s| s.bytes_in.load()),
    ];
    for (name, kind, help, read) in node_metrics {
        let name = format!("evener_node_{name}");
        out.family(&name, kind, help);
        for (pool, _, node) in nodes() {
            out.sample(&name, &[("pool", pool), ("node", &node.node.name)], node.stats.sum(read) as f64);
        }
    }
    out.family("evener_node_outcomes_total", "counter", "How jobs ended.");
    for (pool, _, node) in nodes() {
        for outcome in Outcome::ALL {
            let count = node.stats.sum(|stats| stats.outcomes[outcome.index()].load());
            let labels = [("pool", pool.as_str()), ("node", &node.node.name), ("outcome", outcome.name())];
            out.sample("evener_node_outcomes_total", &labels, count as f64);
        }
    }
    out.family("evener_node_latency_seconds", "histogram", "From the pick to the first byte of the answer.");
    for (pool, _, node) in nodes() {
        out.histogram("evener_node_latency_seconds", &[("pool", pool), ("node", &node.node.name)], |read| {
            node.stats.sum(|stats| read(&stats.latency))
        });
    }
    out.0
}

/// What nodes say of themselves.
fn reports(out: &mut Text, director: &Director, state: &State) {
    out.family("evener_reports_total", "counter", "Reports of nodes that were taken, by the way they came.");
    // Workers count what comes in responses.
    let orca =
        |read: fn(&PoolStats) -> u64| -> u64 { state.pools.values().map(|pool| pool.stats.sum(read)).sum() };
    for dialect in Dialect::ALL {
        let taken = match dialect {
            Dialect::Orca => orca(|stats| stats.orca_reports.load()) + director.reports.taken(dialect),
            _ => director.reports.taken(dialect),
        };
        out.sample("evener_reports_total", &[("source", dialect.name())], taken as f64);
    }
    out.family(
        "evener_reports_refused_total",
        "counter",
        "Reports that were not believed, or did not come when they were asked for, by the way and by the reason.",
    );
    for dialect in Dialect::ALL {
        let malformed = match dialect {
            Dialect::Orca => orca(|stats| stats.orca_malformed.load()),
            _ => 0,
        };
        for (why, refused) in director.reports.refused(dialect) {
            let refused = if why == Refusal::Form { refused + malformed } else { refused };
            let labels = [("source", dialect.name()), ("reason", why.name())];
            out.sample("evener_reports_refused_total", &labels, refused as f64);
        }
    }
    out.family("evener_agents", "gauge", "Agents that are connected by NECP.");
    out.sample("evener_agents", &[], director.reports.agents() as f64);
    out.family("evener_pool_phase_seconds", "gauge", "Time between two reports of a node.");
    for (pool, pool_state) in &state.pools {
        out.sample("evener_pool_phase_seconds", &[("pool", pool)], pool_state.phase.as_secs_f64());
    }
    let now = director.now();
    type Read = fn(&Report) -> Option<f64>;
    let families: [(&str, &str, Read); 3] = [
        ("health", "How well the node says it is, 0-100.", |said| said.health.map(|it| it.value().into())),
        ("load", "How much of its capacity is in use, as the node says.", |said| said.load.map(f64::from)),
        ("jobs", "Jobs on the node, whoever sent them, as the node says.", |said| said.jobs.map(f64::from)),
    ];
    let believed: Vec<_> = state
        .pools
        .iter()
        .flat_map(|(pool, pool_state)| pool_state.nodes.iter().map(move |node| (pool, pool_state, node)))
        .filter_map(|(pool, pool_state, node)| {
            Some((pool, &node.node.name, node.told.merged(now, pool_state.expiry)?))
        })
        .collect();
    for (name, help, read) in families {
        let name = format!("evener_node_reported_{name}");
        out.family(&name, "gauge", help);
        for (pool, node, report) in &believed {
            if let Some(value) = read(report) {
                out.sample(&name, &[("pool", pool), ("node", node)], value);
            }
        }
    }
    out.family(
        "evener_node_report_age_seconds",
        "gauge",
        "Since the newest report of the node was measured.",
    );
    for (pool, node, report) in &believed {
        let age = now.since(report.measured_at).as_secs_f64();
        out.sample("evener_node_report_age_seconds", &[("pool", pool), ("node", node)], age);
    }
}

/// Balancers that carry out what pools come to.
fn outputs(out: &mut Text, state: &State) {
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
    type Read<'a> = &'a dyn Fn(&OutputStats) -> f64;
    let families: [(&str, &str, &str, Read<'_>); 6] = [
        ("up", "gauge", "Whether the balancer did what it was told last.", &|stats| {
            f64::from(u8::from(stats.is_up.load(Ordering::Relaxed)))
        }),
        ("changes_total", "counter", "Changes that were made in the balancer.", &|stats| {
            count(&stats.changes)
        }),
        ("refused_total", "counter", "Changes that the balancer refused.", &|stats| count(&stats.refused)),
        ("failures_total", "counter", "Times that the balancer could not be told.", &|stats| {
            count(&stats.failures)
        }),
        ("restarts_total", "counter", "Times that the balancer was found started anew.", &|stats| {
            count(&stats.restarts)
        }),
        (
            "leaving_nodes",
            "gauge",
            "Nodes that have left and have connections in the balancer yet.",
            &|stats| count(&stats.leaving),
        ),
    ];
    let with_output = |pool: &&config::Pool| pool.output.is_some();
    let pools: Vec<_> = state.config.pools.iter().filter(with_output).collect();
    for (name, kind, help, read) in families {
        let name = format!("evener_output_{name}");
        out.family(&name, kind, help);
        for pool in &pools {
            out.sample(&name, &[("pool", &pool.name)], read(&state.pools[&pool.name].output));
        }
    }
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to memory does not fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.0, " {value}");
    }

    fn labels(&mut self, labels: &[(&str, &str)], bound: Option<&str>) {
        let all = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        for (index, (name, value)) in all.enumerate() {
            let _ = write!(self.0, "{}{name}=\"", if index == 0 { '{' } else { ',' });
            for c in value.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() || bound.is_some() {
            self.0.push('}');
        }
    }

    /// `sum` adds up, over all workers, what it is given to read of a histogram.
    fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        sum: impl Fn(&dyn Fn(&Histogram) -> u64) -> u64,
    ) {
        let counts: Vec<u64> = (0..Histogram::BUCKETS)
            .map(|bucket| sum(&|histogram: &Histogram| histogram.count(bucket)))
            .collect();
        let mut below = 0;
        let mut bucket = 0;
        for bound in BOUNDS_US {
            while bucket < counts.len() && Histogram::upper_us(bucket) <= bound {
                below += counts[bucket];
                bucket += 1;
            }
            let _ = write!(self.0, "{name}_bucket");
            self.labels(labels, Some(&format!("{}", bound as f64 / 1e6)));
            let _ = writeln!(self.0, " {below}");
        }
        let total: u64 = counts.iter().sum();
        let _ = write!(self.0, "{name}_bucket");
        self.labels(labels, Some("+Inf"));
        let _ = writeln!(self.0, " {total}");
        let _ = write!(self.0, "{name}_sum");
        self.labels(labels, None);
        let _ = writeln!(self.0, " {}", sum(&|histogram: &Histogram| histogram.sum_us()) as f64 / 1e6);
        let _ = write!(self.0, "{name}_count");
        self.labels(labels, None);
        let _ = writeln!(self.0, " {total}");
    }
}

/// The metrics that every exporter has.
fn process(out: &mut Text) {
    // SAFETY: plain queries of constants.
    let (ticks, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    // The program's name, in parentheses, may hold anything; what follows it does not.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return };
    let field = |number: usize| fields.split(' ').nth(number - 3).and_then(|text| text.parse::<f64>().ok());
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        out.family("process_cpu_seconds_total", "counter", "CPU time used.");
        out.sample("process_cpu_seconds_total", &[], (user + system) / ticks as f64);
    }
    if let Some(pages) = field(24) {
        out.family("process_resident_memory_bytes", "gauge", "Resident memory.");
        out.sample("process_resident_memory_bytes", &[], pages * page as f64);
    }
    if let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") {
        out.family("process_open_fds", "gauge", "Open descriptors.");
        out.sample("process_open_fds", &[], descriptors.count() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut out = Text(String::new());
        out.sample("x", &[("pool", "a\"b\\c\nd")], 1.5);
        assert_eq!(out.0, "x{pool=\"a\\\"b\\\\c\\nd\"} 1.5\n");
    }

    #[test]
    fn exported_bounds_are_bounds_of_the_histogram() {
        for bound in BOUNDS_US {
            assert!((0..Histogram::BUCKETS).any(|bucket| Histogram::upper_us(bucket) == bound), "{bound}");
        }
    }
}
