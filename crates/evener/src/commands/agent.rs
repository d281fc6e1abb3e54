use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use evener_agent::settings::{AgentCheck, Datagrams, Director, Listen, Service, Tls, Update};
use evener_agent::{AgentError, Settings};
use evener_load::settings::Source;
use evener_load::{Sample, Sampler};
use evener_model::Time;
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::output::Status;
use crate::{Wrong, logging};

mod print;

/// Measures this node, and tells directors how it is.
///
/// Reads what the kernel says of CPUs, network, disks, memory and open files, or of the control group that limits
/// them, and asks the servers, programs and metrics that --source or the configuration names for jobs.
///
/// With --director, --listen, --agent-check or --datagrams, it reports until it is ended, and logs to standard error
/// whom it is connected to. SIGTERM and SIGINT take services back and end it. Without, it prints what it finds once a
/// second.
///
/// With --once, exit status 1 if something could not be measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener agent
  evener agent --once --json --source 'connections = { port = 80 }'
  evener agent --source 'mysql = { address = \"127.0.0.1:3306\", user = \"evener\" }'
  evener agent --director necp://10.0.0.9 --service 80 --keys /etc/evener/feedback.keys
  evener agent --director https://10.0.0.9:9901/report -c /etc/evener/agent.toml --user evener
  evener agent --agent-check :9999 --listen 127.0.0.1:9998
  evener agent -c /etc/evener/agent.toml --once --json | jq .report.jobs")]
pub(crate) struct Agent {
    /// A file with a table `[agent]` that says what to measure, and whom to tell
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask this too, as in a table [[agent.source]]: connections, mysql, redis, memcached, nginx, json, prometheus
    /// or program; can be repeated
    #[arg(long = "source", value_name = "TOML", value_parser = source)]
    sources: Vec<Source>,
    /// Report to this director: necp://HOST, necps://HOST (in TLS), http:// or https://HOST/PATH; can be repeated
    #[arg(long = "director", value_name = "URL")]
    directors: Vec<Director>,
    #[arg(
        long = "service",
        value_name = "SERVICE",
        help = "Offer this to directors that speak NECP: PORT, tcp/PORT or udp/PORT [,forwarding=nat|tunnel|direct]\n\
                [,name=SERVICE of sources][,start=healthy|always]; can be repeated"
    )]
    services: Vec<Service>,
    /// Sign with the first key of this file of lines ID SECRET, which others must not be able to read
    #[arg(long, value_name = "FILE", alias = "key")]
    keys: Option<PathBuf>,
    /// Believe and show these certificates, as the table `tls` has it: '{ ca = "FILE" }', or with certificate and key
    #[arg(long, value_name = "TOML", value_parser = tls)]
    tls: Option<Tls>,
    /// Answer GET /load here: PORT (of this machine alone), :PORT or ADDRESS:PORT
    #[arg(long, value_name = "ADDR")]
    listen: Option<Listen>,
    #[arg(
        long = "agent-check",
        value_name = "ADDR",
        help = "Answer HAProxy's agent-check here: ADDR[,service=SERVICE of sources]; can be repeated"
    )]
    agent_checks: Vec<AgentCheck>,
    /// Send signed datagrams there: a multicast group, a broadcast address or a node, with a port; can be repeated
    #[arg(long = "datagrams", value_name = "ADDR")]
    datagrams: Vec<std::net::SocketAddr>,
    /// Gather the datagrams of other nodes that come here, for GET /nodes
    #[arg(long, value_name = "ADDR")]
    gather: Option<Listen>,
    /// What the node is called [default: as its host]
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: Option<String>,
    /// Time between reports to those who do not ask [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = period)]
    period: Option<std::time::Duration>,
    /// When those are told who do not ask: periodic (all nodes in step), continuous (no two in step) or on_access
    /// (never)
    #[arg(long, value_name = "HOW", value_parser = update)]
    update: Option<Update>,
    /// Become this user when all is open
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print what is measured also when it is reported
    #[arg(long)]
    print: bool,
    /// Measure once, over one interval, and tell nobody
    #[arg(long)]
    once: bool,
    /// Print JSON; without --once, a line each time; log in JSON, too
    #[arg(long)]
    json: bool,
}

/// A file for an agent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    agent: Settings,
}

impl Agent {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        let settings = self.settings()?;
        if self.once {
            return runtime()?.block_on(self.measure(&settings.measure));
        }
        let is_told = settings.tell.is_told();
        if is_told {
            logging::start("info", self.json)?;
        }
        let user = settings.tell.user.clone();
        let agent = evener_agent::Agent::prepare(settings).map_err(told)?;
        // All that takes root's rights is open now, and nothing has been heard of anybody yet.
        match &user {
            Some(user) => evener_agent::become_user(user).map_err(told)?,
            None if is_told && evener_agent::is_root() => {
                warn!("this agent runs as root, which it does not need: say user = \"evener\"");
            }
            None => {}
        }
        if is_told {
            describe(&agent);
        }
        runtime()?.block_on(self.report(agent, !is_told || self.print))
    }

    /// What the file says, and the flags, which go before it.
    fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = match &self.config {
            None => Settings::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
                let file = toml::from_str::<File>(&text);
                file.map_err(|error| Wrong(format!("{}: {}", path.display(), error.to_string().trim_end())))?
                    .agent
            }
        };
        settings.measure.sources.extend(self.sources.iter().cloned());
        let tell = &mut settings.tell;
        tell.directors.extend(self.directors.iter().cloned());
        tell.services.extend(self.services.iter().cloned());
        tell.agent_checks.extend(self.agent_checks.iter().cloned());
        if !self.datagrams.is_empty() || self.gather.is_some() {
            let datagrams = tell.datagrams.get_or_insert_with(Datagrams::new);
            datagrams.to.extend(&self.datagrams);
            datagrams.listen = self.gather.or(datagrams.listen);
        }
        tell.keys = self.keys.clone().or(tell.keys.take());
        tell.tls = self.tls.clone().or(tell.tls.take());
        tell.listen = self.listen.or(tell.listen);
        tell.node = self.node.clone().or(tell.node.take());
        tell.period = self.period.unwrap_or(tell.period);
        tell.update = self.update.unwrap_or(tell.update);
        tell.user = self.user.clone().or(tell.user.take());
        Ok(settings)
    }

    async fn measure(&self, settings: &evener_load::Settings) -> anyhow::Result<Status> {
        let start = Instant::now();
        let mut sampler = Sampler::start(settings, Time::ZERO);
        tokio::time::sleep(sampler.interval()).await;
        let sample = sampler.sample_patiently(Time::ZERO + start.elapsed()).await;
        self.print(&sample)?;
        Ok(if sample.failed.is_empty() { Status::Done } else { Status::Failed })
    }

    async fn report(&self, agent: evener_agent::Agent, prints: bool) -> anyhow::Result<Status> {
        let (mut interrupted, mut ended) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = async {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = ended.recv() => {}
            }
        };
        let mut result = Ok(());
        let on_sample = |sample: &Sample| {
            if prints {
                result = self.print(sample);
            }
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        agent.run(stop, on_sample).await?;
        match result {
            // Nobody reads any more: `evener agent | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Status::Done),
            result => Ok(result.map(|()| Status::Done)?),
        }
    }

    fn print(&self, sample: &Sample) -> io::Result<()> {
        let text = match (self.json, self.once) {
            (true, true) => format!("{:#}\n", print::describe(sample)),
            (true, false) => format!("{}\n", print::describe(sample)),
            (false, _) => print::summary(sample),
        };
        io::stdout().lock().write_all(text.as_bytes())
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What the operator must mend is wrong usage.
fn told(error: AgentError) -> anyhow::Error {
    match error {
        AgentError::Listen { .. } => error.into(),
        _ => Wrong(error.to_string()).into(),
    }
}

fn describe(agent: &evener_agent::Agent) {
    let node = agent.node();
    info!(node, "measures this node");
    if let Some(address) = agent.http_address() {
        info!(%address, "answers over HTTP");
    }
    for address in agent.agent_check_addresses() {
        info!(%address, "answers agent-check");
    }
    if let Some(address) = agent.datagram_address() {
        info!(%address, "gathers datagrams");
    }
}

fn source(text: &str) -> Result<Source, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
}

fn tls(text: &str) -> Result<Tls, String> {
    let tls = toml::from_str::<Settings>(&format!("tls = {text}")).map(|settings| settings.tell.tls);
    tls.map_err(|error| error.message().to_owned())?.ok_or_else(|| "expected a table".into())
}

/// A value as the configuration has it under that key.
fn as_configured<T>(key: &str, text: &str, pick: impl FnOnce(Settings) -> T) -> Result<T, String> {
    let value = toml::Value::String(text.to_owned());
    let settings: Result<Settings, _> = toml::from_str(&format!("{key} = {value}"));
    settings.map(pick).map_err(|error| error.message().to_owned())
}

fn node_name(text: &str) -> Result<String, String> {
    as_configured("node", text, |settings| settings.tell.node.unwrap_or_default())
}

fn period(text: &str) -> Result<std::time::Duration, String> {
    as_configured("period", text, |settings| settings.tell.period)
}

fn update(text: &str) -> Result<Update, String> {
    as_configured("update", text, |settings| settings.tell.update)
}
