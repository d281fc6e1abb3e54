//! Names for what a worker owns: one word holds the kind and the place in that kind's slab.

/// What a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The worker's own business: commands, the log's flush.
    Worker,
    /// A listening socket.
    Listener,
    /// The client side of HTTP.
    HttpClient,
    /// The node side of HTTP.
    HttpNode,
    /// The client side of a relayed connection.
    RelayClient,
    /// The node side of a relayed connection.
    RelayNode,
    /// A pool with jobs that wait.
    Pool,
}

impl Kind {
    pub(crate) const COUNT: usize = 7;

    const ALL: [Kind; Kind::COUNT] = [
        Kind::Worker,
        Kind::Listener,
        Kind::HttpClient,
        Kind::HttpNode,
        Kind::RelayClient,
        Kind::RelayNode,
        Kind::Pool,
    ];
}

/// A kind and an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Token {
    pub(crate) fn new(kind: Kind, index: usize) -> Token {
        Token((kind as u64) << 56 | index as u64)
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> 56) as usize]
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        (self.0 & 0x00ff_ffff_ffff_ffff) as usize
    }
}

impl From<Token> for mio::Token {
    fn from(token: Token) -> mio::Token {
        mio::Token(token.0 as usize)
    }
}

impl From<mio::Token> for Token {
    fn from(token: mio::Token) -> Token {
        Token(token.0 as u64)
    }
}
