//! The agent as a whole: what is opened first, and what runs then.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use evener_feedback::datagram::{self, Sender};
use evener_feedback::necp::session::{Agent as Session, AgentSettings, Backoff, Rhythm};
use evener_feedback::necp::{self as feedback_necp};
use evener_feedback::signature::Signer;
use evener_load::{Sample, Sampler};
use evener_trust::Keys;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::datagrams::{self, Heard, Sockets};
use crate::error::AgentError;
use crate::failures::Failures;
use crate::latest::{Clock, Latest, Taken, Told};
use crate::necp::{self, Link};
use crate::net::{self, Target};
use crate::push::{self, Due, Push};
use crate::settings::{self, Director, Settings, Speaks, Tell, Update};
use crate::{check, http};

/// An agent that has read its files and opened its sockets.
pub struct Agent {
    measure: evener_load::Settings,
    tell: Tell,
    node: String,
    links: Vec<Link>,
    pushes: Vec<Push>,
    http: Option<TcpListener>,
    checks: Vec<(TcpListener, Option<String>)>,
    datagrams: Option<(Sockets, Keys)>,
}

impl Agent {
    /// Reads keys and certificates, and opens what is to be listened to.
    ///
    /// # Errors
    /// An [`AgentError`] that says what is wrong, and with which setting or file.
    pub fn prepare(settings: Settings) -> Result<Agent, AgentError> {
        let Settings { measure, tell } = settings;
        let node = tell.node.clone().map_or_else(host_name, Ok)?;
        agree(&measure, &tell)?;
        let keys = tell.keys.as_deref().map(Keys::read).transpose()?;
        let (mut links, mut pushes) = (Vec::new(), Vec::new());
        for director in &tell.directors {
            let Director { url, .. } = director;
            let own_keys = director.keys.as_deref().map(Keys::read).transpose()?;
            let keys = own_keys.as_ref().or(keys.as_ref());
            let target = target(director, &tell)?;
            match url.speaks {
                Speaks::Necp => links.push(Link {
                    url: url.to_string(),
                    target,
                    settings: session(&tell, keys),
                    exceptions: tell.exceptions.iter().map(|except| except.0).collect(),
                }),
                Speaks::Http => {
                    let signer =
                        keys.map(|keys| Signer::new(datagram::Key::new(keys.signing().secret()), &node));
                    let signer = signer.map(|signer| signer.expect("the name has been checked"));
                    pushes.push(Push { url: url.clone(), target, signer });
                }
            }
        }
        let datagrams = match (&tell.datagrams, keys) {
            (None, _) => None,
            (Some(settings), Some(keys)) => Some((Sockets::open(settings)?, keys)),
            (Some(_), None) => {
                return Err(AgentError::Settings(
                    "datagrams: expected keys = FILE: anybody could send them".into(),
                ));
            }
        };
        let http = tell.listen.as_ref().map(|listen| net::listen(listen, "reports over HTTP")).transpose()?;
        let checks = tell.agent_checks.iter().map(|check| {
            Ok::<_, AgentError>((net::listen(&check.listen, "agent-check")?, check.service.clone()))
        });
        let checks = checks.collect::<Result<_, _>>()?;
        Ok(Agent { measure, tell, node, links, pushes, http, checks, datagrams })
    }

    /// What the node is called.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Where reports are answered over HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Where agent-check is answered, in the order of the settings.
    pub fn agent_check_addresses(&self) -> Vec<SocketAddr> {
        self.checks.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// Where datagrams of other nodes are heard.
    pub fn datagram_address(&self) -> Option<SocketAddr> {
        self.datagrams.as_ref().and_then(|(sockets, _)| sockets.heard_at())
    }

    /// Measures and tells, until `stop` comes or `on_sample`, which sees each sample, breaks. Directors that
    /// speak NECP are told then that all services stop.
    ///
    /// # Errors
    /// If sockets cannot be waited for: the runtime has no I/O, or the system no more of it.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        mut on_sample: impl FnMut(&Sample) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let clock = Clock::start();
        let told = Told {
            clock,
            node: self.node.clone(),
            age_max: self.tell.age_max.unwrap_or(3 * self.measure.interval + Duration::from_secs(1)),
            services: self.tell.services.clone(),
        };
        let (samples, latest) = Latest::new(told);
        let (stopping, stopped) = watch::channel(false);
        let mut sampler = Sampler::start(&self.measure, clock.now());
        let stop_timeout = self.tell.stop_timeout;
        let (mut sessions, _others) = self.start(&latest, &stopped)?;

        let mut failures = Failures::default();
        let mut rounds = interval(sampler.interval());
        // A machine that was asleep needs no samples of that time.
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rounds.tick().await;
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = rounds.tick() => {}
            }
            let at = clock.now();
            let sample = tokio::select! {
                () = &mut stop => break,
                sample = sampler.sample(at) => sample,
            };
            failures.note(&sample.failed);
            let flow = on_sample(&sample);
            samples.send_replace(Some(Arc::new(Taken { at, sample })));
            if flow.is_break() {
                break;
            }
        }
        stopping.send_replace(true);
        // Sessions end themselves in this time; beyond it only a machine that stands still.
        let ends = async { while sessions.join_next().await.is_some() {} };
        let _ = timeout(stop_timeout + Duration::from_secs(2), ends).await;
        Ok(())
    }

    /// Starts a task for each who is told: those that have last words, and the others. They end with the sets.
    fn start(
        self,
        latest: &Latest,
        stopped: &watch::Receiver<bool>,
    ) -> io::Result<(JoinSet<()>, JoinSet<()>)> {
        let (mut sessions, mut others) = (JoinSet::new(), JoinSet::new());
        let due = || Due::new(self.tell.update, self.tell.period, latest.told.clock);
        for link in self.links {
            sessions.spawn(necp::report(link, latest.clone(), stopped.clone()));
        }
        for push in self.pushes {
            let due = due().expect("settings agree");
            others.spawn(push::report(push, latest.clone(), due));
        }
        for (listener, service) in self.checks {
            others.spawn(check::answer(
                tokio::net::TcpListener::from_std(listener)?,
                service,
                latest.clone(),
            ));
        }
        let mut heard = None;
        if let (Some((sockets, keys)), Some(settings)) = (self.datagrams, &self.tell.datagrams) {
            let (out, socket) = sockets.registered()?;
            let key = datagram::Key::new(keys.signing().secret());
            let sender = Sender::new(key, &self.node).expect("the name has been checked");
            if let (false, Some(due)) = (out.is_empty(), due()) {
                others.spawn(datagrams::send(out, sender, latest.clone(), due));
            }
            if let Some(socket) = socket {
                let keys = keys.iter().map(|key| datagram::Key::new(key.secret())).collect();
                let all = Heard::new(settings, keys);
                others.spawn(datagrams::hear(socket, all.clone(), latest.clone()));
                heard = Some(all);
            }
        }
        if let Some(listener) = self.http {
            others.spawn(http::answer(tokio::net::TcpListener::from_std(listener)?, latest.clone(), heard));
        }
        Ok((sessions, others))
    }
}

/// The settings that concern each other.
fn agree(measure: &evener_load::Settings, tell: &Tell) -> Result<(), AgentError> {
    let wrong = |what: String| Err(AgentError::Settings(what));
    let known = |name: &str| measure.sources.iter().any(|source| source.service.as_deref() == Some(name));
    let named = tell.services.iter().filter_map(|service| service.name.as_deref());
    let asked = tell.agent_checks.iter().filter_map(|check| check.service.as_deref());
    if let Some(name) = named.chain(asked).find(|name| !known(name)) {
        return wrong(format!("no source has service = \"{name}\""));
    }
    for (index, service) in tell.services.iter().enumerate() {
        if tell.services[..index].iter().any(|other| other.port == service.port) {
            return wrong(format!("there is another service {}", service.port));
        }
    }
    if tell.services.len().max(tell.exceptions.len()) > Session::WANTED_MAX {
        return wrong(format!("at most {0} services and {0} exceptions can be had", Session::WANTED_MAX));
    }
    let pushed = tell.directors.iter().find(|director| director.url.speaks == Speaks::Http);
    if let (Update::OnAccess, Some(director)) = (tell.update, pushed) {
        return wrong(format!(
            "{} does not ask: expected update = \"continuous\" or \"periodic\"",
            director.url
        ));
    }
    let sends = tell.datagrams.as_ref().is_some_and(|datagrams| !datagrams.to.is_empty());
    if tell.update == Update::OnAccess && sends {
        return wrong("nobody asks for datagrams: expected update = \"continuous\" or \"periodic\"".into());
    }
    let offers = tell.directors.iter().any(|director| director.url.speaks == Speaks::Necp);
    if offers && tell.services.is_empty() {
        return wrong(
            "a director that speaks NECP asks about services: expected at least one, such as 80".into(),
        );
    }
    Ok(())
}

fn target(director: &Director, tell: &Tell) -> Result<Target, AgentError> {
    let Director { url, tls, .. } = director;
    let tls = match (url.is_secure, tls.as_ref().or(tell.tls.as_ref())) {
        (false, _) => None,
        (true, Some(tls)) => Some(tls.config()?),
        (true, None) => {
            let expected =
                "expected tls = { ca = FILE }, with certificate and key where the director asks for them";
            return Err(AgentError::Settings(format!("{url}: {expected}")));
        }
    };
    Ok(Target { host: url.host.clone(), port: url.port, tls })
}

fn session(tell: &Tell, keys: Option<&Keys>) -> AgentSettings {
    let settings::Reconnect { min, max } = tell.reconnect;
    AgentSettings {
        key: keys.map(|keys| feedback_necp::Key::new(keys.signing().secret())),
        rhythm: Rhythm { interval: tell.keepalive, jitter: tell.keepalive / 5, ..Rhythm::default() },
        backoff: Backoff { min, max },
        stop_timeout: tell.stop_timeout,
        ..AgentSettings::default()
    }
}

fn host_name() -> Result<String, AgentError> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if settings::is_name(&name) {
        Ok(name)
    } else {
        Err(AgentError::Settings(format!(
            "the host is called \"{name}\": expected node = NAME, of visible ASCII characters"
        )))
    }
}
