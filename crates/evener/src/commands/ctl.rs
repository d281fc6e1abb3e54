use clap::{Args, Subcommand};
use serde_json::json;

use super::explain::Question;
use super::pools::{self, Pool, Pools};
use crate::admin::{Address, Admin, Answer, segment};
use crate::output::{self, Status};

/// Steers a running director, and shows its state.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener ctl pools
  evener ctl drain app rat                    no new jobs; those there are finished
  evener ctl weight app rat 3
  evener ctl explain app -n 3                 why the last three jobs went where they went
  evener ctl reload                           read the configuration again
  evener ctl --admin unix:/run/evener/admin.sock health

Exit status 1 if the director cannot be reached, or refuses, or is not healthy.")]
pub(crate) struct Ctl {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    action: Action,
}

/// Where the director listens, and how to answer.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Admin address of the director: HOST:PORT or unix:PATH
    #[arg(long, env = "EVENER_ADMIN", default_value = "127.0.0.1:9900", global = true, value_name = "ADDR")]
    admin: Address,
    /// Print the director's answer as it is
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Place {
    pub(crate) fn admin(&self) -> Admin {
        Admin::new(self.admin.clone())
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Pools and nodes: state, weight, jobs, picks, failures, latency, connections, signals
    Pools {
        /// Only this pool
        pool: Option<String>,
    },
    /// Changes the weight of a node until it is configured otherwise; 0 drains
    Weight {
        /// The pool
        pool: String,
        /// The node
        node: String,
        /// 0 to 256
        #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
        weight: u32,
    },
    /// Gives a node no new jobs; those it has are finished
    Drain {
        /// The pool
        pool: String,
        /// The node
        node: String,
    },
    /// Takes a drained node back
    Ready {
        /// The pool
        pool: String,
        /// The node
        node: String,
    },
    /// Shows the last placements of a pool, and why
    Explain(Question),
    /// Makes the director read its configuration again; open connections stay
    Reload,
    /// Hands over to the program that now lies where the running one came from; nothing is refused meanwhile
    Upgrade,
    /// Whether the director is well, and each pool has a node that takes jobs
    Health,
    /// The director's metrics, in the text format of Prometheus
    Metrics,
}

impl Ctl {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        let admin = self.place.admin();
        let json = self.place.json;
        match self.action {
            Action::Pools { pool } => show_pools(&admin, pool.as_deref(), json),
            Action::Weight { pool, node, weight } => {
                let path = format!("{}/weight", path_of(&pool, &node));
                let answer = admin.change(&path, Some(&json!({ "weight": weight })))?;
                done(&answer, json, &format!("{pool}/{node} has weight {weight}"))
            }
            Action::Drain { pool, node } => {
                let answer = admin.change(&format!("{}/drain", path_of(&pool, &node)), None)?;
                done(&answer, json, &format!("{pool}/{node} drains"))
            }
            Action::Ready { pool, node } => {
                let answer = admin.change(&format!("{}/ready", path_of(&pool, &node)), None)?;
                done(&answer, json, &format!("{pool}/{node} is back"))
            }
            Action::Explain(question) => question.ask(&admin, json),
            Action::Reload => done(&admin.change("/reload", None)?, json, "reloaded"),
            Action::Upgrade => done(&admin.change("/upgrade", None)?, json, "a new process has taken over"),
            Action::Health => health(&admin, json),
            Action::Metrics => {
                output::print(&admin.read("/metrics")?.text())?;
                Ok(Status::Done)
            }
        }
    }
}

fn show_pools(admin: &Admin, pool: Option<&str>, json: bool) -> anyhow::Result<Status> {
    let answer = match pool {
        Some(pool) => admin.read(&format!("/pools/{}", segment(pool)))?,
        None => admin.read("/pools")?,
    };
    if json {
        return pass(&answer);
    }
    let pools = match pool {
        Some(_) => vec![answer.parse()?],
        None => answer.parse::<Pools>()?.pools,
    };
    output::print(&pools::render(&pools, output::colour()))?;
    Ok(Status::Done)
}

fn health(admin: &Admin, json: bool) -> anyhow::Result<Status> {
    admin.read("/healthz")?;
    let pools = admin.read("/pools")?.parse::<Pools>()?.pools;
    let healthy = pools.iter().all(|pool| pool.nodes_up() > 0);
    if json {
        let pools: Vec<_> = pools.iter().map(Pool::health).collect();
        output::json(&json!({ "healthy": healthy, "pools": pools }))?;
    } else {
        let lines: String = pools.iter().map(|pool| format!("{}\n", pool.health_line())).collect();
        output::print(&format!("the director is well\n{lines}"))?;
    }
    Ok(if healthy { Status::Done } else { Status::Failed })
}

fn path_of(pool: &str, node: &str) -> String {
    format!("/pools/{}/nodes/{}", segment(pool), segment(node))
}

fn done(answer: &Answer, json: bool, what: &str) -> anyhow::Result<Status> {
    if json {
        return pass(answer);
    }
    output::print(&format!("{what}\n"))?;
    Ok(Status::Done)
}

/// The director's JSON as it is.
pub(crate) fn pass(answer: &Answer) -> anyhow::Result<Status> {
    output::print(&with_newline(answer.text()))?;
    Ok(Status::Done)
}

fn with_newline(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
