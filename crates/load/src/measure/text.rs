use thiserror::Error;

/// A text that is not what its source writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not in the form of {0}")]
pub struct Malformed(pub &'static str);

/// The lines of a text, without their ends.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A number in decimal digits and nothing else; `None` if it is none or does not fit.
pub(crate) fn integer(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A finite number, with a fraction or without.
pub(crate) fn number(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_digits_alone() {
        assert_eq!(integer(b"18446744073709551615"), Some(u64::MAX));
        for wrong in ["", "-1", "+1", "1.0", "18446744073709551616", "0x1", "1 "] {
            assert_eq!(integer(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_number_is_finite() {
        assert_eq!(number(b"0.25"), Some(0.25));
        for wrong in ["", "NaN", "inf", "1e999", "1,5"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
