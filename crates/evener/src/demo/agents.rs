//! The nodes' agents: the same that `evener agent` runs, one a node, in this process.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use evener_agent::{Agent, Settings};
use evener_control::{Director, Hearing};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::NODES;

/// What hears reports, and what sends them, until dropped.
pub(crate) struct Agents {
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agents {
    /// `director` hears reports at `reports` from now on; an agent a node tells how it is.
    pub(crate) fn start(
        director: &Arc<Director>,
        reports: SocketAddr,
        nodes: &[SocketAddr],
    ) -> anyhow::Result<Agents> {
        let agents = NODES.iter().zip(nodes).map(|(node, address)| {
            let settings = settings(node.name, reports, *address).context("the agent's own configuration")?;
            Ok(Agent::prepare(settings)?)
        });
        let agents: Vec<Agent> = agents.collect::<anyhow::Result<_>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let hearing = {
            let _entered = runtime.enter();
            Hearing::start(director)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async {
                let mut all = JoinSet::new();
                for agent in agents {
                    all.spawn(agent.run(std::future::pending(), |_| ControlFlow::Continue(())));
                }
                // Nobody says anything: the sender is dropped.
                let _ = stopped.await;
                all.shutdown().await;
                drop(hearing);
            });
        };
        let thread = std::thread::Builder::new().name("agents".to_string()).spawn(run)?;
        Ok(Agents { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been shown.
            let _ = thread.join();
        }
    }
}

/// The CPUs of this machine are of no interest: a node knows itself how much it has to do.
fn settings(name: &str, reports: SocketAddr, node: SocketAddr) -> io::Result<Settings> {
    #[derive(Deserialize)]
    struct File {
        agent: Settings,
    }
    let text = format!(
        "[agent]\nnode = \"{name}\"\ndirector = \"http://{reports}/report\"\nperiod = \"250ms\"\n\
         interval = \"200ms\"\npatience = \"100ms\"\ncpu = {{ factor = 0 }}\nnetwork = {{ factor = 0 }}\n\
         [[agent.source]]\nname = \"load\"\njson = {{ url = \"http://{node}/load\", pointer = \"/load\", says = \"load\" }}\n\
         [[agent.source]]\nname = \"jobs\"\njson = {{ url = \"http://{node}/load\", pointer = \"/jobs\" }}\n"
    );
    toml::from_str::<File>(&text).map(|file| file.agent).map_err(io::Error::other)
}
