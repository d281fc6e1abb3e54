//! What both sides have: bytes that wait, sequence numbers, faults.

use crate::necp::frame::{self, Flags, Frame, MESSAGE_BYTES_MAX, Malformed, Opcode, Unit, Units};
use crate::necp::key::Key;

/// How far above the last sequence number the next may be.
const SEQ_AHEAD_MAX: u64 = 1 << 16;
/// Messages in a row that could not be acted upon before the connection is given up.
const BAD_IN_A_ROW_MAX: u32 = 16;
/// Bytes that may wait for a peer that does not read.
const OUTPUT_BYTES_MAX: usize = 8 * MESSAGE_BYTES_MAX;

#[derive(Debug, Default)]
pub(super) struct Link {
    /// What of a message has come so far.
    input: Vec<u8>,
    pub(super) output: Vec<u8>,
    auth: Option<Auth>,
    last_id: u16,
    /// Messages that could not be acted upon: in all, and since the last that could.
    bad_messages: u32,
    bad_in_a_row: u32,
}

#[derive(Debug)]
struct Auth {
    key: Key,
    /// The number of the next message that goes out.
    next: u64,
    /// The number of the last message that came in and was accepted.
    last: u64,
}

impl Link {
    /// What waited and `bytes`, together.
    pub(super) fn gather(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        input
    }

    /// Keeps what of `input` has not been consumed, which is less than a message.
    pub(super) fn keep(&mut self, mut input: Vec<u8>, consumed: usize) {
        input.drain(..consumed);
        self.input = input;
    }

    /// From here on messages are signed: the next that goes out has the number `next`, the next that comes in is
    /// above `last`.
    pub(super) fn authenticate(&mut self, key: Key, next: u64, last: u64) {
        self.auth = Some(Auth { key, next, last });
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.bad_in_a_row > BAD_IN_A_ROW_MAX
    }

    pub(super) fn bad_messages(&self) -> u32 {
        self.bad_messages
    }

    /// A message was acted upon, unless more than `bad_before` were bad by now.
    pub(super) fn count_good(&mut self, bad_before: u32) {
        if self.bad_messages == bad_before {
            self.bad_in_a_row = 0;
        }
    }

    pub(super) fn count_bad(&mut self) {
        self.bad_messages = self.bad_messages.saturating_add(1);
        self.bad_in_a_row += 1;
    }

    pub(super) fn is_choked(&self) -> bool {
        self.output.len() > OUTPUT_BYTES_MAX
    }

    /// Checks a message of an open connection: version, credential, sequence number, form, in this order. One
    /// that cannot be acted upon is answered so, and counted.
    pub(super) fn admit<'a>(&mut self, frame: &Frame<'a>) -> Option<(Opcode, Units<'a>)> {
        let message = frame.message();
        if message.as_ref().err() == Some(&Malformed::Version) {
            self.count_bad();
            if !frame.header.flags.has(Flags::ERROR) {
                let sign = Self::sign(&mut self.auth);
                frame::write_version_mismatch(&mut self.output, &frame.header, sign);
            }
            return None;
        }
        let refusal = match &mut self.auth {
            Some(auth) if !frame.is_signed_by(&auth.key) => Flags::AUTH_REQUIRED,
            Some(auth) => {
                // Numbers wrap as the draft's do: it lets a peer begin anywhere.
                let ahead = frame.header.seq_num.wrapping_sub(auth.last);
                if (1..=SEQ_AHEAD_MAX).contains(&ahead) {
                    auth.last = frame.header.seq_num;
                    Flags::NONE
                } else {
                    Flags::BAD_SEQUENCE_NUMBER
                }
            }
            None => Flags::NONE,
        };
        match message {
            Ok(message) if refusal == Flags::NONE => Some(message),
            _ => {
                self.refuse(frame, refusal);
                None
            }
        }
    }

    /// Answers a request that is not acted upon, and counts it. Answers and errors get no answer: two peers
    /// would go on for ever.
    pub(super) fn refuse(&mut self, frame: &Frame<'_>, flags: Flags) {
        self.count_bad();
        let answer = Opcode::from_code(frame.header.opcode).and_then(Opcode::answer);
        if let Some(answer) = answer.filter(|_| !frame.header.flags.has(Flags::ERROR)) {
            self.answer(answer, frame.header.request_id, Flags::ERROR.with(flags), []);
        }
    }

    /// Sends an answer.
    pub(super) fn answer(
        &mut self,
        opcode: Opcode,
        request_id: u16,
        flags: Flags,
        units: impl IntoIterator<Item = Unit>,
    ) {
        frame::write(&mut self.output, opcode, flags, request_id, Self::sign(&mut self.auth), units);
    }

    /// Sends a request; gives its id.
    pub(super) fn request(&mut self, opcode: Opcode, units: impl IntoIterator<Item = Unit>) -> u16 {
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        self.answer(opcode, id, Flags::NONE, units);
        id
    }

    fn sign(auth: &mut Option<Auth>) -> Option<(&Key, u64)> {
        auth.as_mut().map(|auth| {
            let number = auth.next;
            auth.next = number.wrapping_add(1);
            (&auth.key, number)
        })
    }
}
