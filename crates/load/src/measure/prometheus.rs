//! Metrics in Prometheus's text format: the sum of the samples that a selector names.

use std::borrow::Cow;
use std::str::FromStr;

use thiserror::Error;

/// A metric's name, and labels that a sample must have: `requests_running{model="m"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    name: String,
    labels: Vec<(String, String)>,
}

/// Not a selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected a metric such as requests_running{{model=\"m\"}}, found \"{0}\"")]
pub struct SelectorError(String);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Selector, SelectorError> {
        let wrong = || SelectorError(text.into());
        let (name, rest) = name(text).ok_or_else(wrong)?;
        let mut labels = Vec::new();
        let rest = read_labels(rest, |key, value| labels.push((key.to_owned(), value.into_owned())))
            .ok_or_else(wrong)?;
        if !rest.trim().is_empty() {
            return Err(wrong());
        }
        Ok(Selector { name: name.into(), labels })
    }
}

/// Why there is no sum.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetricError {
    /// No sample has the name and the labels.
    #[error("no sample of the metric")]
    Missing,
    /// A line of that metric is none, or its value is no finite number.
    #[error("a sample of the metric that cannot be read: \"{0}\"")]
    Sample(String),
}

impl Selector {
    /// Adds up the samples that the selector names. Lines of other metrics are not looked into.
    ///
    /// # Errors
    /// [`MetricError`] if there is none, or one that cannot be read.
    pub fn sum(&self, text: &str) -> Result<f64, MetricError> {
        let mut sum: Option<f64> = None;
        for line in text.lines() {
            let line = line.trim_start();
            let Some((found, rest)) = name(line) else { continue };
            if found != self.name {
                continue;
            }
            let wrong = || MetricError::Sample(line.chars().take(80).collect());
            let mut matched = 0;
            let rest = read_labels(rest, |key, value| {
                matched +=
                    self.labels.iter().filter(|(name, wanted)| name == key && *wanted == value).count();
            });
            let value = rest.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
            let value = value.filter(|value| value.is_finite()).ok_or_else(wrong)?;
            if matched == self.labels.len() {
                sum = Some(sum.unwrap_or(0.0) + value).filter(|sum| sum.is_finite());
                sum.ok_or_else(wrong)?;
            }
        }
        sum.ok_or(MetricError::Missing)
    }
}

/// Splits a metric's name from what follows; `None` if there is no name, as in a comment.
fn name(text: &str) -> Option<(&str, &str)> {
    let is_part = |(index, character): &(usize, char)| {
        matches!(character, 'a'..='z' | 'A'..='Z' | '_' | ':') || (*index > 0 && character.is_ascii_digit())
    };
    let length = text.char_indices().take_while(is_part).count();
    (length > 0).then(|| text.split_at(length))
}

/// Reads labels, if there are any, and gives what follows them; `None` if they are none.
fn read_labels<'a>(text: &'a str, mut take: impl FnMut(&'a str, Cow<'a, str>)) -> Option<&'a str> {
    let Some(mut rest) = text.trim_start().strip_prefix('{') else {
        return Some(text);
    };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (key, after) = name(rest)?;
        let value = after.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
        let (value, after) = quoted(value)?;
        take(key, value);
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

/// Reads up to the closing quote, and gives what follows it.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text[end..].starts_with('"') {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((Cow::Owned(value), &text[index + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                plain => value.push(plain),
            },
            plain => value.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP running Requests that run.
# TYPE running gauge
running{model="a",path="C:\\x \"y\""} 2.0
running{ model = "b", } 3 1395066363000
running_total 17
other{broken
rate NaN
"#;

    fn sum(selector: &str) -> Result<f64, MetricError> {
        selector.parse::<Selector>().expect("a selector").sum(TEXT)
    }

    #[test]
    fn samples_that_match_are_added_up() {
        assert_eq!(sum("running"), Ok(5.0));
        assert_eq!(sum(r#"running{model="b"}"#), Ok(3.0));
        assert_eq!(sum(r#"running{path="C:\\x \"y\"", model="a"}"#), Ok(2.0));
        assert_eq!(sum("running_total"), Ok(17.0));
    }

    #[test]
    fn what_is_missing_or_broken_is_told() {
        assert_eq!(sum(r#"running{model="c"}"#), Err(MetricError::Missing));
        assert_eq!(sum("run"), Err(MetricError::Missing));
        assert!(matches!(sum("other"), Err(MetricError::Sample(_))));
        assert!(matches!(sum("rate"), Err(MetricError::Sample(_))));
    }

    #[test]
    fn a_selector_is_a_name_and_labels() {
        for wrong in
            ["", "{a=\"b\"}", "1a", "a b", "a{b}", "a{b=c}", "a{b=\"c\"", "a{b=\"c\" d=\"e\"}", "a{b=\"\\"]
        {
            assert!(wrong.parse::<Selector>().is_err(), "{wrong:?}");
        }
    }
}
