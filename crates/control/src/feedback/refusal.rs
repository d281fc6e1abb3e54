//! Why something was not believed.

/// Why something that came, or did not come, was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many connections, or senders.
    Crowded,
    /// No TLS, or not with a certificate that is believed.
    Tls,
    /// Not what the protocol allows.
    Form,
    /// No key, or a wrong one.
    Key,
    /// Sent at another time, or a clock is wrong.
    Time,
    /// Heard before.
    Replay,
    /// Of a node that there is not, or that does not listen to this way.
    Unknown,
    /// Of another node than the sender may speak of.
    Foreign,
    /// Older than what is known, or than what is believed.
    Stale,
    /// Asked, and no answer in time.
    Silence,
}

impl Refusal {
    /// All, in the order of [`Refusal::index`].
    pub(crate) const ALL: [Refusal; 10] = [
        Refusal::Crowded,
        Refusal::Tls,
        Refusal::Form,
        Refusal::Key,
        Refusal::Time,
        Refusal::Replay,
        Refusal::Unknown,
        Refusal::Foreign,
        Refusal::Stale,
        Refusal::Silence,
    ];

    /// The place in tables of refusals.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Refusal::Crowded => "crowded",
            Refusal::Tls => "tls",
            Refusal::Form => "form",
            Refusal::Key => "key",
            Refusal::Time => "time",
            Refusal::Replay => "replay",
            Refusal::Unknown => "unknown",
            Refusal::Foreign => "foreign",
            Refusal::Stale => "stale",
            Refusal::Silence => "silence",
        }
    }
}
