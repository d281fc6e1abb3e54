//! Nodes that are asked how they are: which, how often, and what an answer does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use evener_model::{Report, Time};
use tokio::task::JoinHandle;

use crate::config::{self, Config};
use crate::director::Director;
use crate::feedback::agent_check::{self, Allowance, Standing};
use crate::feedback::orca_stream::{self, Patience};
use crate::feedback::refusal::Refusal;
use crate::feedback::{Dialect, NodeRef, pull};

/// The time between questions changes within this, when it follows the phase of the pool.
const LOOK: Duration = Duration::from_secs(1);
/// No node is asked more often.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// How a node is asked.
#[derive(Clone, Debug, PartialEq)]
enum Question {
    AgentCheck(config::AgentCheck),
    Pull(config::Pull),
    OrcaStream(config::OrcaStream),
}

/// The nodes that are asked.
#[derive(Debug, Default)]
pub(super) struct Asking {
    running: BTreeMap<(String, String, Dialect), Running>,
}

#[derive(Debug)]
struct Running {
    question: Question,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Asking {
    /// Asks the nodes that the configuration has asked. A node whose question did not change keeps its own task.
    pub(super) fn follow(&mut self, director: &Arc<Director>, config: &Config) {
        let mut running = std::mem::take(&mut self.running);
        for pool in &config.pools {
            for question in questions(&pool.feedback) {
                for node in &pool.nodes {
                    let key = (pool.name.clone(), node.name.clone(), question.dialect());
                    let is_same = |old: &Running| old.question == question && old.address == node.address;
                    let kept = match running.remove(&key) {
                        Some(old) if is_same(&old) => Some(old),
                        Some(old) => {
                            old.task.abort();
                            None
                        }
                        None => None,
                    };
                    let entry = kept.unwrap_or_else(|| {
                        let asked = Asked {
                            director: Arc::clone(director),
                            pool: pool.name.clone(),
                            node: node.name.clone(),
                            address: node.address,
                            question: question.clone(),
                        };
                        Running {
                            question: question.clone(),
                            address: node.address,
                            task: tokio::spawn(asked.run()),
                        }
                    });
                    self.running.insert(key, entry);
                }
            }
        }
        for ((pool, node, dialect), old) in running {
            old.task.abort();
            if dialect == Dialect::AgentCheck {
                director.allow(&pool, &node, Allowance::default());
            }
        }
    }

    /// Asks nobody any more.
    pub(super) fn stop(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.task.abort();
        }
    }
}

fn questions(feedback: &config::PoolFeedback) -> impl Iterator<Item = Question> {
    let agent_check = feedback.agent_check.clone().map(Question::AgentCheck);
    let pull = feedback.pull.clone().map(Question::Pull);
    let hears = |question: &Question| feedback.from.contains(&question.dialect());
    let orca_stream = feedback.orca_stream.clone().map(Question::OrcaStream);
    [agent_check, pull, orca_stream].into_iter().flatten().filter(hears)
}

impl Question {
    fn dialect(&self) -> Dialect {
        match self {
            Question::AgentCheck(_) => Dialect::AgentCheck,
            Question::Pull(_) => Dialect::Pull,
            Question::OrcaStream(_) => Dialect::Orca,
        }
    }

    fn interval(&self) -> Option<Duration> {
        match self {
            Question::AgentCheck(check) => check.interval,
            Question::Pull(pull) => pull.interval,
            Question::OrcaStream(stream) => stream.interval,
        }
    }

    fn timeout(&self) -> Duration {
        match self {
            Question::AgentCheck(check) => check.timeout,
            Question::Pull(pull) => pull.timeout,
            Question::OrcaStream(_) => orca_stream::BEGIN_MAX,
        }
    }
}

/// One node, and how it is asked.
struct Asked {
    director: Arc<Director>,
    pool: String,
    node: String,
    address: SocketAddr,
    question: Question,
}

/// An answer that was of no use.
#[derive(Debug)]
pub(super) struct Useless {
    pub(super) reason: Refusal,
    pub(super) error: String,
}

impl Useless {
    pub(super) fn new(reason: Refusal, error: impl ToString) -> Useless {
        Useless { reason, error: error.to_string() }
    }
}

impl Asked {
    /// Asks for ever.
    async fn run(self) {
        let mut jitter =
            Jitter(evener_scheduler::hash_bytes(format!("{} {}", self.address, self.node).as_bytes()));
        if let Question::OrcaStream(stream) = &self.question {
            return self.listen(stream.port, jitter).await;
        }
        let mut standing = Standing::default();
        let mut is_answering = None;
        let mut answered_at = self.director.now();
        // The first question comes at any time within an interval: nodes must not be asked in step.
        tokio::time::sleep(self.interval().mul_f64(jitter.next())).await;
        loop {
            let asked_at = self.director.now();
            let answer = match tokio::time::timeout(
                self.question.timeout(),
                self.ask(asked_at, &mut standing),
            )
            .await
            {
                Ok(answer) => answer,
                Err(_) => {
                    let error = format!("no answer within {:?}", self.question.timeout());
                    Err(Useless::new(Refusal::Silence, error))
                }
            };
            match &answer {
                Ok(report) => {
                    answered_at = asked_at;
                    self.tell(*report, &standing);
                }
                Err(useless) => {
                    self.director.refuse(self.question.dialect(), useless.reason);
                    // What it said is believed no longer than a report is.
                    if self.director.now().since(answered_at) >= self.director.expiry_of(&self.pool) {
                        standing = Standing::default();
                        self.director.allow(&self.pool, &self.node, Allowance::default());
                    }
                }
            }
            if is_answering != Some(answer.is_ok()) {
                is_answering = Some(answer.is_ok());
                let (pool, node, source) = (&self.pool, &self.node, self.question.dialect());
                match answer {
                    Ok(_) => tracing::info!(pool, node, %source, "the node says how it is"),
                    Err(Useless { error, .. }) => {
                        tracing::warn!(pool, node, %source, error, "the node does not say how it is");
                    }
                }
            }
            self.rest(asked_at, 0.9 + 0.2 * jitter.next()).await;
        }
    }

    /// Listens to what the node says in a stream, for ever.
    async fn listen(&self, port: Option<u16>, mut jitter: Jitter) {
        let target = port.map_or(self.address, |port| SocketAddr::new(self.address.ip(), port));
        let mut patience = Patience::default();
        let mut is_speaking = None;
        // Not all nodes at once.
        tokio::time::sleep(self.interval().min(LOOK).mul_f64(jitter.next())).await;
        loop {
            let mut reports = 0_u64;
            let mut told_at = Time::ZERO;
            let (pool, node) = (&self.pool, &self.node);
            let now = || self.director.now();
            let ended = orca_stream::listen(target, self.interval(), now, |report| {
                if report.measured_at.since(told_at) < INTERVAL_MIN {
                    return;
                }
                (told_at, reports) = (report.measured_at, reports + 1);
                if is_speaking != Some(true) {
                    is_speaking = Some(true);
                    tracing::info!(pool, node, "the node says in a stream how it is");
                }
                self.tell(report, &Standing::default());
            });
            let Useless { reason, error } = ended.await;
            self.director.refuse(Dialect::Orca, reason);
            if is_speaking != Some(false) {
                is_speaking = Some(false);
                tracing::warn!(pool, node, error, "the node does not say in a stream how it is");
            }
            tokio::time::sleep(patience.ended(reports > 0).mul_f64(0.9 + 0.2 * jitter.next())).await;
        }
    }

    async fn ask(&self, asked_at: Time, standing: &mut Standing) -> Result<Report, Useless> {
        match &self.question {
            Question::AgentCheck(check) => agent_check::ask(check, self.address, asked_at, standing).await,
            Question::Pull(page) => pull::ask(page, &self.node, self.address, asked_at).await,
            Question::OrcaStream(_) => unreachable!("a stream is listened to"),
        }
    }

    fn tell(&self, report: Report, standing: &Standing) {
        if let Some(node) = self.reference() {
            self.director.reported(node, self.question.dialect(), report);
        }
        if let Question::AgentCheck(_) = self.question {
            self.director.allow(&self.pool, &self.node, standing.allowance());
        }
    }

    fn reference(&self) -> Option<NodeRef> {
        let nodes = self.director.nodes_named(self.question.dialect(), Some(&self.pool), &self.node);
        nodes.into_iter().find(|node| self.director.address_of(*node) == Some(self.address))
    }

    fn interval(&self) -> Duration {
        let interval = self.question.interval().unwrap_or_else(|| self.director.phase_of(&self.pool));
        interval.max(INTERVAL_MIN)
    }

    /// Waits until it is time to ask again, also when that changes meanwhile.
    async fn rest(&self, asked_at: Time, share: f64) {
        loop {
            let due = asked_at + self.interval().mul_f64(share);
            let left = due.since(self.director.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

/// Numbers from 0 to 1 by which nodes are kept from being asked in step.
struct Jitter(u64);

impl Jitter {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1 << 24)
    }
}
