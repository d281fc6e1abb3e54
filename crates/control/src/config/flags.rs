//! A configuration from the command line alone.

use std::sync::Arc;

use super::error::{ConfigError, Errors, Source};
use super::{Config, parse};

/// What `evener run` may be told instead of a file.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `http://ADDR` or `tcp://ADDR`, each a listener.
    pub listen: Vec<String>,
    /// `ADDR[,weight=N][,max_jobs=N][,name=X]`, each a node.
    pub to: Vec<String>,
    /// Name of the scheduler.
    pub scheduler: Option<String>,
    /// Worker threads.
    pub workers: Option<usize>,
    /// `ADDR` or `unix:PATH`.
    pub admin: Option<String>,
    /// Path, `stdout` or `off`.
    pub access_log: Option<String>,
}

impl Flags {
    /// The configuration that the flags stand for.
    ///
    /// # Errors
    /// All that is wrong, by flag.
    pub fn config(&self) -> Result<Config, Errors> {
        let mut errors = Vec::new();
        let mut wrong = |flag: &str, value: &str, message: String| {
            errors.push(ConfigError {
                source: Arc::new(Source { name: format!("{flag} {value}"), text: String::new() }),
                span: 0..0,
                key: String::new(),
                message,
                help: None,
            });
        };
        let mut text = String::from("[process]\n");
        if let Some(workers) = self.workers {
            text += &format!("workers = {workers}\n");
        }
        if let Some(admin) = &self.admin {
            text += &format!("[admin]\nlisten = {}\n", quote(admin));
        }
        if let Some(path) = &self.access_log {
            text += &format!("[access_log]\npath = {}\n", quote(path));
        }
        if self.listen.is_empty() {
            wrong("--listen", "", "expected at least one, such as --listen http://:8080".into());
        }
        for (index, listen) in self.listen.iter().enumerate() {
            let (protocol, address) = match listen.split_once("://") {
                Some((protocol @ ("http" | "tcp"), address)) => (protocol, address.trim_end_matches('/')),
                _ => {
                    wrong("--listen", listen, "expected http://ADDRESS or tcp://ADDRESS".into());
                    continue;
                }
            };
            let name =
                if self.listen.len() == 1 { protocol.into() } else { format!("{protocol}-{}", index + 1) };
            text += &format!(
                "[listener.{name}]\nbind = {}\nprotocol = \"{protocol}\"\npool = \"nodes\"\n",
                quote(address)
            );
        }
        text += "[pool.nodes]\n";
        if let Some(scheduler) = &self.scheduler {
            text += &format!("scheduler = {}\n", quote(scheduler));
        }
        if self.to.is_empty() {
            wrong("--to", "", "expected at least one node, such as --to 10.0.0.1:80".into());
        }
        text += "node = [\n";
        for to in &self.to {
            let mut parts = to.split(',');
            text += &format!("  {{ address = {}", quote(parts.next().unwrap_or_default()));
            for part in parts {
                match part.split_once('=') {
                    Some((key @ ("weight" | "max_jobs"), number)) if number.parse::<u32>().is_ok() => {
                        text += &format!(", {key} = {number}");
                    }
                    Some(("name", name)) => text += &format!(", name = {}", quote(name)),
                    _ => wrong(
                        "--to",
                        to,
                        format!("expected weight=N, max_jobs=N or name=X, found \"{part}\""),
                    ),
                }
            }
            text += " },\n";
        }
        text += "]\n";
        if !errors.is_empty() {
            return Err(Errors(errors));
        }
        parse::parse(vec![Source { name: "command line".into(), text: text.clone() }]).map_err(
            |mut errors| {
                // Lines of a text that nobody wrote would only confuse.
                for error in &mut errors.0 {
                    error.source = Arc::new(Source { name: "command line".into(), text: String::new() });
                }
                errors
            },
        )
    }
}

fn quote(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}
