//! Points in time as session files write them.

use std::fmt;

use serde::{Serialize, Serializer};

/// Milliseconds since the Unix epoch; shown as ISO 8601 in UTC with exactly three
/// fractional digits: `2024-12-03T14:00:00.000Z`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_millisecond())
    }

    /// Reads any RFC 3339 form; digits below a millisecond are cut.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }

    /// The present, or one millisecond after `last` where the clock has not passed it.
    pub(crate) fn after(last: Option<Self>) -> Self {
        let now = Self::now();
        match last {
            // The end of the representable range (a damaged file) cannot be passed.
            Some(last) if last >= now && jiff::Timestamp::from_millisecond(last.0 + 1).is_ok() => {
                Self(last.0 + 1)
            }
            _ => now,
        }
    }

    pub(crate) const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// As messages carry it; times before 1970 give 0.
    pub fn unix_millis(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every value comes from a `jiff::Timestamp` or a file's time, so it is in range.
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        write!(f, "{time:.3}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn shows_three_fractional_digits() {
        for (text, shown) in [
            ("2024-12-03T14:00:00.000Z", "2024-12-03T14:00:00.000Z"),
            ("2024-12-03T14:00:00Z", "2024-12-03T14:00:00.000Z"),
            ("2024-12-03T14:00:00.1239Z", "2024-12-03T14:00:00.123Z"),
            ("2024-12-03T14:00:00.120+02:00", "2024-12-03T12:00:00.120Z"),
        ] {
            assert_eq!(Timestamp::parse(text).unwrap().to_string(), shown);
        }
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn never_repeats() {
        let mut last = None;
        for _ in 0..1000 {
            let next = Timestamp::after(last);
            assert!(Some(next) > last);
            last = Some(next);
        }
        let future = Timestamp::parse("2100-01-01T00:00:00.999Z").unwrap();
        assert_eq!(Timestamp::after(Some(future)).to_string(), "2100-01-01T00:00:01.000Z");
        let end = Timestamp(jiff::Timestamp::MAX.as_millisecond());
        assert!(Timestamp::after(Some(end)) < end);
    }
}
