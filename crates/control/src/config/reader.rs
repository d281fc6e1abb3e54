//! Reading tables key by key: every value is checked where it stands, every key must be known.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Source};
use super::units;

/// Collects what is wrong while a configuration is read.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) errors: Vec<ConfigError>,
}

/// A table that is being read.
pub(super) struct Table<'a> {
    pub(super) source: Arc<Source>,
    pub(super) path: String,
    pub(super) span: Range<usize>,
    entries: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Value<'a> {
    pub(super) source: Arc<Source>,
    pub(super) path: String,
    pub(super) span: Range<usize>,
    pub(super) value: &'a DeValue<'a>,
}

impl Problems {
    pub(super) fn add(&mut self, at: &Value<'_>, message: impl Into<String>) {
        self.add_with_help(at, message, None);
    }

    pub(super) fn add_with_help(&mut self, at: &Value<'_>, message: impl Into<String>, help: Option<String>) {
        self.errors.push(ConfigError {
            source: Arc::clone(&at.source),
            span: at.span.clone(),
            key: at.path.clone(),
            message: message.into(),
            help,
        });
    }

    pub(super) fn missing(&mut self, table: &Table<'_>, what: impl Into<String>) {
        self.errors.push(ConfigError {
            source: Arc::clone(&table.source),
            span: table.span.clone(),
            key: table.path.clone(),
            message: what.into(),
            help: None,
        });
    }
}

impl<'a> Value<'a> {
    /// What the value is, for an error.
    pub(super) fn found(&self) -> String {
        match self.value {
            DeValue::String(text) => format!("\"{text}\""),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(boolean) => boolean.to_string(),
            DeValue::Datetime(_) => "a date".into(),
            DeValue::Array(_) => "a list".into(),
            DeValue::Table(_) => "a table".into(),
        }
    }

    fn expected(&self, problems: &mut Problems, what: impl Display) {
        problems.add(self, format!("expected {what}, found {}", self.found()));
    }

    pub(super) fn string(&self, problems: &mut Problems) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => {
                self.expected(problems, "a string");
                None
            }
        }
    }

    pub(super) fn integer(&self, problems: &mut Problems, range: RangeInclusive<u64>) -> Option<u64> {
        if let DeValue::Integer(number) = self.value
            && let Ok(number) = u64::from_str_radix(number.as_str(), number.radix())
            && range.contains(&number)
        {
            return Some(number);
        }
        let what = match (*range.start(), *range.end()) {
            (from, u64::MAX) => format!("an integer not below {from}"),
            (from, to) => format!("an integer from {from} to {to}"),
        };
        self.expected(problems, what);
        None
    }

    pub(super) fn number(&self, problems: &mut Problems, range: RangeInclusive<f64>) -> Option<f64> {
        let number = match self.value {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            self.expected(problems, format!("a number from {} to {}", range.start(), range.end()));
        }
        number
    }

    pub(super) fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        match self.value {
            DeValue::Boolean(boolean) => Some(*boolean),
            _ => {
                self.expected(problems, "true or false");
                None
            }
        }
    }

    pub(super) fn duration(&self, problems: &mut Problems) -> Option<Duration> {
        let duration = match self.value {
            DeValue::String(text) => units::duration(text),
            _ => None,
        };
        if duration.is_none() {
            self.expected(problems, "a duration such as \"250ms\", \"2s\" or \"5m\"");
        }
        duration
    }

    pub(super) fn size(&self, problems: &mut Problems) -> Option<u64> {
        let size = match self.value {
            DeValue::String(text) => units::size(text),
            DeValue::Integer(number) => number.as_str().parse().ok(),
            _ => None,
        };
        if size.is_none() {
            self.expected(problems, "a size such as \"64KiB\" or \"1MB\"");
        }
        size
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&self, problems: &mut Problems, choices: &[(&str, T)]) -> Option<T> {
        if let DeValue::String(text) = self.value
            && let Some((_, choice)) = choices.iter().find(|(name, _)| name == text)
        {
            return Some(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let help = match self.value {
            DeValue::String(text) => nearest(text, names.iter().copied()),
            _ => None,
        };
        let names = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        problems.add_with_help(self, format!("expected one of {names}, found {}", self.found()), help);
        None
    }

    pub(super) fn list(&self, problems: &mut Problems) -> Vec<Value<'a>> {
        match self.value {
            DeValue::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| Value {
                    source: Arc::clone(&self.source),
                    path: format!("{}[{index}]", self.path),
                    span: item.span(),
                    value: item.get_ref(),
                })
                .collect(),
            _ => {
                self.expected(problems, "a list");
                Vec::new()
            }
        }
    }

    /// A list, or the one value of it.
    pub(super) fn one_or_more(&self, problems: &mut Problems) -> Vec<Value<'a>> {
        match self.value {
            DeValue::Array(_) => self.list(problems),
            _ => vec![self.clone()],
        }
    }

    pub(super) fn table(&self, problems: &mut Problems) -> Option<Table<'a>> {
        match self.value {
            DeValue::Table(entries) => Some(Table::new(&self.source, &self.path, self.span.clone(), entries)),
            _ => {
                self.expected(problems, "a table");
                None
            }
        }
    }
}

impl<'a> Table<'a> {
    pub(super) fn new(
        source: &Arc<Source>,
        path: &str,
        span: Range<usize>,
        entries: &'a DeTable<'a>,
    ) -> Table<'a> {
        Table { source: Arc::clone(source), path: path.into(), span, entries, known: Vec::new() }
    }

    /// The value of a key, which thereby is known.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.push(key);
        let (_, value) = self.entries.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(self.value(key, value))
    }

    /// All entries, for tables whose keys are names that the user gives.
    pub(super) fn named(&self) -> Vec<(&'a str, Value<'a>)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.get_ref().as_ref(), self.value(name.get_ref(), value)))
            .collect()
    }

    fn value(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Value { source: Arc::clone(&self.source), path, span: value.span(), value: value.get_ref() }
    }

    /// Reads a key with `read`; `default` if it is not there or wrong.
    pub(super) fn or<T>(
        &mut self,
        problems: &mut Problems,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Value<'a>, &mut Problems) -> Option<T>,
    ) -> T {
        self.take(key).and_then(|value| read(&value, problems)).unwrap_or(default)
    }

    /// Keys that nobody asked for are errors.
    pub(super) fn finish(self, problems: &mut Problems) {
        for (name, _) in self.entries {
            let key = name.get_ref().as_ref();
            if self.known.contains(&key) {
                continue;
            }
            let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
            let help = nearest(key, self.known.iter().copied())
                .unwrap_or_else(|| format!("known keys: {}", self.known.join(", ")));
            problems.errors.push(ConfigError {
                source: Arc::clone(&self.source),
                span: name.span(),
                key: path,
                message: "unknown key".into(),
                help: Some(help),
            });
        }
    }
}

/// `did you mean "x"?`, if something is near enough.
pub(super) fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let (similarity, name) =
        names.map(|name| (strsim::jaro_winkler(word, name), name)).max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (similarity > 0.75).then(|| format!("did you mean \"{name}\"?"))
}
