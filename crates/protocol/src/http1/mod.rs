//! HTTP/1.1 as an intermediary speaks it (RFC 9110, RFC 9112).
//!
//! Strict where two readers could disagree about where a message ends: what is
//! ambiguous is refused, so nothing ambiguous is ever forwarded. Heads are parsed
//! into spans of the bytes they were read into, bodies pass through untouched.
//!
//! What was decided where the standard leaves a choice:
//! - One empty line (CRLF) before a request line is skipped and counted in
//!   [`Request::head_len`]; a second one is refused. Before a status line none is.
//! - A `Content-Length` list is refused even if its members agree.
//! - Chunk extensions pass if they are strictly valid (no whitespace) and short.
//! - A field nominated by `Connection` is dropped, unless it is one that carries
//!   framing, routing or identity: such a nomination is ignored, for otherwise a
//!   client could make the proxy remove what nodes rely on.
//! - A request without `Host` (HTTP/1.0 only) is forwarded as HTTP/1.0, because as
//!   HTTP/1.1 it would be invalid. Everything else is forwarded as HTTP/1.1.

mod chunks;
mod forward;
mod head;
mod request;
mod response;
mod tokens;
mod trailer;

pub use chunks::{Chunks, Parts, Scan};
pub use forward::{RequestEdits, ResponseEdits, forward_request, forward_response};
pub use head::{Framing, Header, Limits, Malformed, Name, Span, Version, find_head_end};
pub use request::{Method, Refusal, Request};
pub use response::{Fault, Response};
pub use trailer::retain_trailer;
