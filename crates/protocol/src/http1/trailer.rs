//! Trailers of chunked bodies, for those who look into them.

use super::head::Name;

/// Takes fields out of a trailer: those for which `keep` says no, given the name and the value. Returns the new
/// length; the bytes beyond mean nothing then.
///
/// `trailer` is what [`Parts::trailer`](super::Parts::trailer) says: whole, valid lines and the empty one.
pub fn retain_trailer(trailer: &mut [u8], mut keep: impl FnMut(Name, &[u8]) -> bool) -> usize {
    let mut kept = 0;
    let mut at = 0;
    while let Some(length) = line_length(&trailer[at..]) {
        let line = &trailer[at..at + length];
        let stays = match memchr::memchr(b':', line) {
            Some(colon) if colon > 0 => keep(Name::recognise(&line[..colon]), line[colon + 1..].trim_ascii()),
            // The empty line.
            _ => true,
        };
        if stays {
            if kept < at {
                trailer.copy_within(at..at + length, kept);
            }
            kept += length;
        }
        at += length;
    }
    kept
}

/// Bytes of the first line, its end included.
fn line_length(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes).map(|end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(trailer: &str) -> (String, Vec<(Name, String)>) {
        let mut bytes = trailer.as_bytes().to_vec();
        let mut seen = Vec::new();
        let length = retain_trailer(&mut bytes, |name, value| {
            seen.push((name, String::from_utf8(value.to_vec()).unwrap()));
            !name.is_load_metrics()
        });
        (String::from_utf8(bytes[..length].to_vec()).unwrap(), seen)
    }

    #[test]
    fn what_a_node_says_of_itself_is_taken_out_wherever_it_stands() {
        for trailer in [
            "X-A: 1\r\nEndpoint-Load-Metrics: TEXT rps=1\r\nX-B: 2\r\n\r\n",
            "endpoint-load-metrics-bin:CZqZmZmZmbk/\r\nX-A: 1\r\nX-B: 2\r\n\r\n",
            "X-A: 1\r\nX-B: 2\r\nENDPOINT-LOAD-METRICS-BIN: \t \r\n\r\n",
        ] {
            assert_eq!(stripped(trailer).0, "X-A: 1\r\nX-B: 2\r\n\r\n", "{trailer:?}");
        }
        let (rest, seen) = stripped("endpoint-load-metrics: \t JSON {} \r\n\r\n");
        assert_eq!(rest, "\r\n");
        assert_eq!(seen, [(Name::EndpointLoadMetrics, "JSON {}".to_owned())]);
    }

    #[test]
    fn names_that_are_nearly_the_same_stay() {
        let trailer =
            "endpoint-load-metric: 1\r\nendpoint-load-metrics-bim: 2\r\nx: endpoint-load-metrics: 3\r\n\r\n";
        assert_eq!(stripped(trailer).0, trailer);
        assert_eq!(stripped("\r\n"), ("\r\n".into(), Vec::new()));
    }
}
