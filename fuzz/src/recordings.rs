//! What must hold of a recording, whatever its bytes: checked by the fuzzer on bytes that it invents, and by
//! the tests of `evener-record` on the corpus that the fuzzer found.

use evener_record::{Encoder, End, EndReason, Head, Piece, Reader, Replay, end_frame, head_frame};

/// Longer inputs say nothing that shorter ones do not.
const BYTES_MAX: usize = 8 * 1024;

/// Entries of a block: all that is accepted can be replayed, and is written back as it was.
pub fn recording(bytes: &[u8]) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    // A file that is nothing but these bytes, however it is cut into pieces.
    replay(bytes, 7);

    // A whole file of which they are the entries.
    let mut file = head_frame(&Head { program: "fuzz".into(), started_unix_ms: 0, workers: 1 });
    let payload = [&[1, 0, 0, 0], bytes].concat();
    file.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    file.extend_from_slice(&crc32(&payload).to_le_bytes());
    file.extend_from_slice(&payload);
    file.extend_from_slice(&end_frame(&End { reason: EndReason::Complete, blocks: 1 }));
    replay(&file, file.len());
    if let Some((shown, written)) = rewrite(&file) {
        let again = rewrite(&written).expect("what was written is a recording");
        assert_eq!(shown, again.0, "what was read once reads the same again");
        assert!(written == again.1, "what was written once is written the same again");
    }
}

/// Reads and replays as far as that goes.
fn replay(bytes: &[u8], step: usize) {
    let (mut reader, mut replay) = (Reader::new(), Replay::new());
    for piece in bytes.chunks(step.max(1)) {
        reader.feed(piece);
        loop {
            match reader.next() {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(Piece::Head(_) | Piece::End(_))) => {}
                Ok(Some(Piece::Block(block))) => {
                    let worker = block.worker;
                    let mut entries = block.entries();
                    while let Ok(Some(entry)) = entries.next() {
                        if replay.take(worker, &entry).is_err() {
                            return;
                        }
                    }
                }
            }
        }
    }
    let _ = reader.finish();
    for tally in replay.tallies() {
        assert!(tally.equal <= tally.picks);
        assert_eq!(tally.equal < tally.picks, tally.first_difference.is_some());
    }
}

/// The entries of a recording as text, and the recording written anew; `None` if it cannot be read.
fn rewrite(bytes: &[u8]) -> Option<(Vec<String>, Vec<u8>)> {
    let mut reader = Reader::new();
    reader.feed(bytes);
    let (mut shown, mut written) = (Vec::new(), Vec::new());
    let (mut encoder, mut blocks) = (Encoder::new(0), 0);
    while let Some(piece) = reader.next().ok()? {
        match piece {
            Piece::Head(head) => written.extend(head_frame(&head)),
            Piece::End(_) => {}
            Piece::Block(block) => {
                let mut entries = block.entries();
                while let Some(entry) = entries.next().ok()? {
                    shown.push(format!("{entry:?}"));
                    encoder.put(&entry);
                }
                if let Some(block) = encoder.take(Vec::new()) {
                    written.extend(block);
                    blocks += 1;
                }
            }
        }
    }
    reader.finish().ok()?;
    written.extend(end_frame(&End { reason: EndReason::Complete, blocks }));
    Some((shown, written))
}

/// CRC-32 as in IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), |sum, _| step(sum)))
}
