use std::path::PathBuf;

use clap::Args;
use evener_control::config::{Config, Errors, Probe, Protocol};
use serde_json::json;

use crate::output::{self, Status};

/// Checks a configuration without serving it.
///
/// All that is wrong is told at once, with file, line, column, and what was expected. Files in conf.d/ beside
/// FILE belong to it. Names of nodes are resolved, but nothing is connected to.
///
/// Exit status 2 if anything is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener check /etc/evener/evener.toml
  evener check evener.toml --json | jq '.errors[]'
  evener check evener.toml && systemctl reload evener")]
pub(crate) struct Check {
    /// The configuration
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        match Config::load(&self.file) {
            Ok(config) if self.json => output::json(&describe(&config))?,
            Ok(config) => output::print(&format!("{}: OK\n{}", self.file.display(), summary(&config)))?,
            Err(errors) => {
                if self.json {
                    output::json(&json!({ "ok": false, "errors": list(&errors) }))?;
                } else {
                    eprint!("{}", errors.render(output::colour_on_stderr()));
                }
                return Ok(Status::Wrong);
            }
        }
        Ok(Status::Done)
    }
}

fn list(errors: &Errors) -> Vec<serde_json::Value> {
    let each = errors.iter().map(|error| {
        let (line, column) = error.position();
        json!({
            "file": error.file(),
            "line": line,
            "column": column,
            "key": error.key(),
            "message": error.message(),
            "help": error.help(),
        })
    });
    each.collect()
}

/// For people: what would be served.
fn summary(config: &Config) -> String {
    let mut out = String::new();
    for listener in &config.listeners {
        let binds: Vec<_> = listener.binds.iter().map(|bind| bind.text.as_str()).collect();
        let (protocol, pools) = protocol_and_pools(&listener.protocol);
        out.push_str(&format!(
            "  listener {}: {protocol} on {}, to {}\n",
            listener.name,
            binds.join(", "),
            pools.join(", ")
        ));
    }
    for pool in &config.pools {
        let nodes = match pool.nodes.len() {
            1 => "1 node".to_string(),
            count => format!("{count} nodes"),
        };
        let check = match pool.check.as_ref().map(|check| &check.probe) {
            None => "not checked",
            Some(Probe::Http { .. }) => "checked by HTTP",
            Some(Probe::Tcp) => "checked by connecting",
            Some(Probe::Exec(_)) => "checked by a program",
        };
        out.push_str(&format!("  pool {}: {nodes}, {}, {check}\n", pool.name, pool.scheduler.policy.name()));
    }
    for warning in &config.warnings {
        out.push_str(&format!("  warning: {warning}\n"));
    }
    out
}

/// For machines: the same.
fn describe(config: &Config) -> serde_json::Value {
    let listeners = config.listeners.iter().map(|listener| {
        let binds: Vec<_> = listener.binds.iter().map(|bind| bind.text.as_str()).collect();
        let (protocol, pools) = protocol_and_pools(&listener.protocol);
        json!({ "name": listener.name, "protocol": protocol, "bind": binds, "pools": pools })
    });
    let pools = config.pools.iter().map(|pool| {
        let nodes = pool.nodes.iter().map(|node| {
            json!({ "name": node.name, "address": node.address.to_string(), "weight": node.weight.value() })
        });
        json!({
            "name": pool.name,
            "scheduler": pool.scheduler.policy.name(),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    });
    json!({
        "ok": true,
        "listeners": listeners.collect::<Vec<_>>(),
        "pools": pools.collect::<Vec<_>>(),
        "warnings": config.warnings,
    })
}

/// What a listener speaks, and the pools it sends jobs to.
fn protocol_and_pools(protocol: &Protocol) -> (&'static str, Vec<&str>) {
    match protocol {
        Protocol::Tcp { pool, .. } => ("tcp", vec![pool]),
        Protocol::Http(http) => {
            let mut pools: Vec<&str> = Vec::new();
            let routed = http.routes.iter().map(|route| route.pool.as_str());
            for pool in routed.chain(http.pool.as_deref()) {
                if !pools.contains(&pool) {
                    pools.push(pool);
                }
            }
            ("http", pools)
        }
    }
}
