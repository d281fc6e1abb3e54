//! The time, read once a turn of the worker's loop.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evener_model::Time;

/// A monotonic clock and, beside it, wall time in the forms that logs want.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Time,
    /// Wall time minus monotonic time, in nanoseconds.
    wall_offset: i128,
    wall_checked: Time,
    second: u64,
    /// `10/Oct/2000:13:55:36 +0000`, for `second`.
    common: [u8; 26],
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let mut clock = Clock {
            now: monotonic(),
            wall_offset: 0,
            wall_checked: Time::ZERO,
            second: u64::MAX,
            common: *b"01/Jan/1970:00:00:00 +0000",
        };
        clock.update();
        clock
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Reads the time.
    #[inline]
    pub(crate) fn update(&mut self) {
        self.now = monotonic();
        if self.now.since(self.wall_checked) >= Duration::from_secs(1) || self.wall_checked == Time::ZERO {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.wall_offset = wall.as_nanos() as i128 - i128::from(self.now.as_nanos());
            self.wall_checked = self.now;
        }
        let second = self.unix_millis(self.now) / 1000;
        if second != self.second {
            self.second = second;
            self.common = common_format(second);
        }
    }

    /// Milliseconds since 1970 at `time`.
    pub(crate) fn unix_millis(&self, time: Time) -> u64 {
        ((i128::from(time.as_nanos()) + self.wall_offset) / 1_000_000) as u64
    }

    /// Now, as the common log format writes it, without brackets.
    pub(crate) fn common(&self) -> &[u8] {
        &self.common
    }
}

#[inline]
fn monotonic() -> Time {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to where the pointer points, which is one.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(status, 0, "CLOCK_MONOTONIC is always there");
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Year, month and day of a day since 1970-01-01.
///
/// Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", days to civil.
pub(crate) fn civil(days: u64) -> (u64, usize, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month as usize, day)
}

fn common_format(second: u64) -> [u8; 26] {
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (year, month, day) = civil(second / 86_400);
    let mut text = *b"00/xxx/0000:00:00:00 +0000";
    let mut put = |at: usize, value: u64| {
        text[at] = b'0' + (value / 10 % 10) as u8;
        text[at + 1] = b'0' + (value % 10) as u8;
    };
    put(0, day);
    put(7, year / 100);
    put(9, year % 100);
    put(12, second / 3600 % 24);
    put(15, second / 60 % 60);
    put(18, second % 60);
    text[3..6].copy_from_slice(MONTHS[month - 1]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(&common_format(951_782_400), b"29/Feb/2000:00:00:00 +0000");
        assert_eq!(&common_format(951_868_799), b"29/Feb/2000:23:59:59 +0000");
        assert_eq!(&common_format(4_107_542_400), b"01/Mar/2100:00:00:00 +0000");
        assert_eq!(&common_format(0), b"01/Jan/1970:00:00:00 +0000");
    }
}
