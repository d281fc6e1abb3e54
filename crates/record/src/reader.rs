//! Reads a recording from pieces of any size.

use evener_model::Time;

use crate::block::{BLOCK, END, End, FRAME_PREFIX, HEAD, Head, read_end, read_head};
use crate::checksum::checksum;
use crate::entry::{self, Entry, Lists};
use crate::wire::{Input, Wrong};
use crate::{FRAME_BYTES_MAX, MAGIC, ReadError, VERSION};

/// Takes the bytes of a recording as they come, and gives what they say.
///
/// It does no I/O: [`feed`](Reader::feed) it bytes, ask for [`next`](Reader::next) until there is none, and
/// [`finish`](Reader::finish) where the file ends. After an error there is nothing more to come.
#[derive(Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    /// Of `bytes`, what has been given out.
    used: usize,
    /// Where `bytes[used]` is in the file.
    offset: u64,
    place: Place,
    /// Blocks seen of each worker.
    blocks: Vec<u64>,
    /// When the last entry of each worker was, as far as blocks say.
    last: Vec<Time>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Magic,
    Head,
    Blocks,
    Ended,
}

/// A part of a recording.
#[derive(Debug)]
pub enum Piece<'a> {
    /// What it says of itself; comes first.
    Head(Head),
    /// What happened on a worker.
    Block(Block<'a>),
    /// How it ended; comes last.
    End(End),
}

/// Entries of one worker, of one after the other.
#[derive(Debug)]
pub struct Block<'a> {
    /// Which worker.
    pub worker: u16,
    /// Where its frame begins in the file.
    pub offset: u64,
    start: Time,
    last: &'a mut Time,
    payload: &'a [u8],
}

/// The entries of a block, one by one: they lend what they name.
#[derive(Debug)]
pub struct Entries<'a> {
    offset: u64,
    last: Time,
    last_of_worker: &'a mut Time,
    input: Input<'a>,
    lists: Lists,
}

impl Reader {
    /// A reader at the beginning of a recording.
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next part that is there whole; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the bytes are not those of a recording.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend, nor fail and go on")]
    pub fn next(&mut self) -> Result<Option<Piece<'_>>, ReadError> {
        if self.place == Place::Magic && !self.read_magic()? {
            return Ok(None);
        }
        let rest = &self.bytes[self.used..];
        if self.place == Place::Ended {
            let offset = self.offset;
            return if rest.is_empty() { Ok(None) } else { Err(ReadError::Trailing { offset }) };
        }
        let damaged = |offset, Wrong(what)| ReadError::Damaged { offset, what: what.into() };
        let Some((prefix, rest)) = rest.split_first_chunk::<FRAME_PREFIX>() else { return Ok(None) };
        let (length, sum) = prefix.split_at(4);
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |number: u32, &byte| number << 8 | u32::from(byte));
        let length = number(length) as usize;
        let at = self.offset;
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(damaged(at, Wrong("the length of a frame is impossible")));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        if checksum(payload) != number(sum) {
            return Err(damaged(at, Wrong("its checksum does not match")));
        }
        self.used += FRAME_PREFIX + length;
        self.offset += (FRAME_PREFIX + length) as u64;
        let mut input = Input { rest: &payload[1..] };
        let is_whole = |input: &Input<'_>| {
            if input.rest.is_empty() {
                Ok(())
            } else {
                Err(damaged(at, Wrong("a frame is longer than what it says")))
            }
        };
        match (payload[0], &self.place) {
            (HEAD, Place::Head) => {
                let head = read_head(&mut input).map_err(|wrong| damaged(at, wrong))?;
                is_whole(&input)?;
                self.place = Place::Blocks;
                self.blocks.resize(usize::from(head.workers), 0);
                self.last.resize(usize::from(head.workers), Time::ZERO);
                Ok(Some(Piece::Head(head)))
            }
            (BLOCK, Place::Blocks) => {
                let block = read_block(&mut self.blocks, &mut self.last, at, input);
                block.map(Piece::Block).map(Some).map_err(|wrong| damaged(at, wrong))
            }
            (END, Place::Blocks) => {
                let end = read_end(&mut input).map_err(|wrong| damaged(at, wrong))?;
                is_whole(&input)?;
                if end.blocks != self.blocks.iter().sum::<u64>() {
                    return Err(damaged(at, Wrong("blocks are missing")));
                }
                self.place = Place::Ended;
                Ok(Some(Piece::End(end)))
            }
            _ => Err(damaged(at, Wrong("a frame is not where it belongs, or of no known kind"))),
        }
    }

    /// Whether the file may end here.
    ///
    /// # Errors
    /// If it was cut off.
    pub fn finish(&self) -> Result<(), ReadError> {
        match self.place {
            Place::Ended => Ok(()),
            Place::Magic if self.bytes.len() < MAGIC.len() && !MAGIC.starts_with(&self.bytes) => {
                Err(ReadError::NotARecording)
            }
            Place::Magic if self.bytes.is_empty() => Err(ReadError::NotARecording),
            _ => Err(ReadError::Cut { offset: self.offset }),
        }
    }

    /// Passes what every recording begins with; `false` if it is not all there yet.
    fn read_magic(&mut self) -> Result<bool, ReadError> {
        let Some((magic, rest)) = self.bytes.split_first_chunk() else { return Ok(false) };
        if *magic != MAGIC {
            return Err(ReadError::NotARecording);
        }
        let Some(version) = rest.first_chunk() else { return Ok(false) };
        let found = u16::from_le_bytes(*version);
        if found != VERSION {
            return Err(ReadError::Version { found });
        }
        self.used = MAGIC.len() + 2;
        self.offset = self.used as u64;
        self.place = Place::Head;
        Ok(true)
    }
}

fn read_block<'a>(
    blocks: &mut [u64],
    last: &'a mut [Time],
    offset: u64,
    mut input: Input<'a>,
) -> Result<Block<'a>, Wrong> {
    let worker: u16 = input.small()?;
    let number = input.number()?;
    let start = input.time()?;
    let (Some(seen), Some(last)) = (blocks.get_mut(usize::from(worker)), last.get_mut(usize::from(worker)))
    else {
        return Err(Wrong("there is no such worker"));
    };
    if number != *seen {
        return Err(Wrong("a block is missing before it"));
    }
    if start < *last {
        return Err(Wrong("time runs backwards"));
    }
    *seen += 1;
    Ok(Block { worker, offset, start, last, payload: input.rest })
}

impl<'a> Block<'a> {
    /// What it says.
    pub fn entries(self) -> Entries<'a> {
        Entries {
            offset: self.offset,
            last: self.start,
            last_of_worker: self.last,
            input: Input { rest: self.payload },
            lists: Lists::default(),
        }
    }
}

impl Entries<'_> {
    /// The next entry; `None` at the end of the block.
    ///
    /// # Errors
    /// If the bytes say nothing that can be recorded. Nothing comes after that.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        if self.input.rest.is_empty() {
            return Ok(None);
        }
        let offset = self.offset;
        match entry::read(&mut self.input, self.last, &mut self.lists) {
            Ok(entry) => {
                self.last = entry.now;
                *self.last_of_worker = entry.now;
                Ok(Some(entry))
            }
            Err(Wrong(what)) => {
                self.input.rest = &[];
                Err(ReadError::Damaged { offset, what: what.into() })
            }
        }
    }
}
