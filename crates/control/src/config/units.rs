//! Durations, sizes and addresses as people write them.

use std::time::Duration;

/// `"250ms"`, `"1.5s"`, `"5m"`, `"1h"`, `"2d"`; `"0"` needs no unit.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "" if number == "0" => 0.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * seconds;
    // Beyond a century a timeout is a mistake.
    (seconds <= 3.2e9).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

/// `"64KiB"`, `"1MB"`, `"100"` (bytes).
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let bytes: f64 = match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * bytes;
    (value.is_finite() && (0.0..9e15).contains(&value)).then_some(value as u64)
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_nonsense_is_not() {
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("250 ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        for wrong in ["", "5", "s", "-1s", "1e9h", "5 parsecs", "1.2.3s"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("1.5MB"), Some(1_500_000));
        for wrong in ["", "x", "1TB2", "-1", "64Kib"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}
