//! What must hold for any bytes that claim to be reports: checked by the fuzzers on bytes they invent, and by
//! the tests of `evener-feedback` on the corpus that the fuzzers found.

use evener_feedback::necp::{Exception, Frame, Key, Query, Service, frame};

/// A NECP message is parsed or refused, never read beyond its end; what is understood is written the same
/// way again.
pub fn necp(bytes: &[u8]) {
    let key = Key::new(b"key");
    let mut rest = bytes;
    while let Ok(Some(parsed)) = Frame::parse(rest) {
        let length = parsed.len();
        assert!(length <= rest.len() && length <= frame::MESSAGE_BYTES_MAX);
        for cut in [0, 1, frame::HEADER_BYTES, length - 1] {
            assert_eq!(Frame::parse(&rest[..cut.min(length - 1)]), Ok(None), "a part of a message waits");
        }
        let signed = parsed.is_signed_by(&key);
        if let Ok((opcode, units)) = parsed.message() {
            assert!(units.count() <= frame::UNITS_MAX);
            for unit in units {
                if let Some(query) = Query::from_unit(unit) {
                    assert_eq!(Query::from_unit(query.unit()), Some(query));
                }
                if let Some(service) = Service::from_unit(unit) {
                    assert_eq!(Service::from_unit(service.unit()), Some(service));
                }
                if let Some(exception) = Exception::from_unit(unit) {
                    assert_eq!(Exception::from_unit(exception.unit()), Some(exception));
                }
            }
            let mut out = Vec::new();
            let header = parsed.header;
            let sign = signed.then_some((&key, header.seq_num));
            frame::write(&mut out, opcode, header.flags, header.request_id, sign, units);
            if signed && units.count() > 0 {
                assert_eq!(out, &rest[..length], "what is signed is as we write it");
            }
            let again = Frame::parse(&out).expect("what is written").expect("whole");
            let (opcode_again, units_again) = again.message().expect("what is written is understood");
            assert_eq!(opcode, opcode_again);
            assert!(units.eq(units_again));
        }
        rest = &rest[length..];
    }
}
