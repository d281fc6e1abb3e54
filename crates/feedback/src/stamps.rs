//! Time stamps that let each message in once.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::datagram::Dropped;

/// The last stamp of each node.
#[derive(Debug)]
pub(crate) struct Stamps {
    window: Duration,
    nodes_max: usize,
    first_micros: u64,
    last: BTreeMap<String, u64>,
}

impl Stamps {
    /// Of at most `nodes_max` nodes, whose stamps differ from the clock by at most `window`.
    pub(crate) fn new(window: Duration, nodes_max: usize) -> Stamps {
        Stamps { window, nodes_max, first_micros: 0, last: BTreeMap::new() }
    }

    /// Lets nothing in that was sent before `unix`.
    pub(crate) fn not_before(&mut self, unix: Duration) {
        self.first_micros = micros(unix);
    }

    /// Takes the stamp of a message that came at `unix`, if it is within the window and above those before. Only what
    /// has the right signature may come here: it is remembered.
    pub(crate) fn admit(&mut self, unix: Duration, node: &str, stamp_micros: u64) -> Result<(), Dropped> {
        let (now, window) = (micros(unix), micros(self.window));
        if now.abs_diff(stamp_micros) > window || stamp_micros < self.first_micros {
            return Err(Dropped::Time);
        }
        if let Some(last) = self.last.get_mut(node) {
            if stamp_micros <= *last {
                return Err(Dropped::Replay);
            }
            *last = stamp_micros;
            return Ok(());
        }
        if self.last.len() >= self.nodes_max {
            // What the window no longer lets in needs not be remembered. What it does is never forgotten: a
            // recording would pass.
            self.last.retain(|_, &mut last| now.saturating_sub(last) <= window);
            if self.last.len() >= self.nodes_max {
                return Err(Dropped::Crowded);
            }
        }
        self.last.insert(node.to_owned(), stamp_micros);
        Ok(())
    }
}

/// The stamp of a message that is sent at `unix`: above the one before, though two be sent in the same microsecond or the
/// clock was set back a little.
pub(crate) fn next(unix: Duration, last_micros: &mut u64) -> u64 {
    *last_micros = micros(unix).max(last_micros.saturating_add(1));
    *last_micros
}

fn micros(unix: Duration) -> u64 {
    u64::try_from(unix.as_micros()).unwrap_or(u64::MAX)
}
