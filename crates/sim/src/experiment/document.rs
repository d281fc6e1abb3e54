use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::check::Finding;

/// A finding, and where it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The place, in bytes.
    pub span: Range<usize>,
    /// What was found there.
    pub finding: Finding,
}

impl Located {
    fn error(span: Range<usize>, key: String, message: String, help: Option<String>) -> Located {
        Located { span, finding: Finding { is_warning: false, key, message, help } }
    }
}

/// A TOML file, of which every value has its place.
pub(super) struct Document<'a> {
    root: DeTable<'a>,
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Document<'a>, Vec<Located>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok(Document { root: root.into_inner() });
        }
        let findings = errors.into_iter().map(|error| {
            let message = error.message().trim_end().replace('\n', ", ");
            Located::error(error.span().unwrap_or(0..0), String::new(), message, None)
        });
        Err(findings.collect())
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.find(path).1
    }

    pub(super) fn value(&self, key: &str) -> Option<&Spanned<DeValue<'a>>> {
        self.root.get(key)
    }

    /// The text of a key in a table of the root.
    pub(super) fn text(&self, table: &str, key: &str) -> Option<&str> {
        self.root.get(table)?.get_ref().as_table()?.get(key)?.get_ref().as_str()
    }

    /// Puts a number into a table of the root.
    pub(super) fn insert(&mut self, table: &str, key: &'static str, number: &'static str) {
        if let Some(DeValue::Table(table)) = self.root.get_mut(table).map(Spanned::get_mut) {
            let value = DeValue::parse(number).expect("it is a number");
            table.insert(Spanned::new(value.span(), key.into()), value);
        }
    }

    /// Puts a value at a key of the root, in the place of what is there.
    pub(super) fn replace(&mut self, key: &'static str, toml: &'static str) {
        let span = self.root.get(key).map_or(0..0, Spanned::span);
        let value = DeValue::parse(toml).expect("it is a value").into_inner();
        self.root.insert(Spanned::new(span.clone(), key.into()), Spanned::new(span, value));
    }

    /// All of it as one value, but for some keys of the root.
    pub(super) fn without(&self, keys: &[&str]) -> Spanned<DeValue<'a>> {
        self.keep(|key| !keys.contains(&key))
    }

    /// Some keys of the root as one value.
    pub(super) fn only(&self, keys: &[&str]) -> Spanned<DeValue<'a>> {
        self.keep(|key| keys.contains(&key))
    }

    fn keep(&self, keep: impl Fn(&str) -> bool) -> Spanned<DeValue<'a>> {
        let kept = self.root.iter().filter(|(key, _)| keep(key.get_ref()));
        let table: DeTable<'a> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        Spanned::new(0..0, DeValue::Table(table))
    }

    /// Where a finding stands: at its key, or what is nearest above it.
    pub(super) fn locate(&self, finding: Finding) -> Located {
        Located { span: self.find(&finding.key).0, finding }
    }

    pub(super) fn error(&self, key: &str, message: impl Into<String>, help: Option<String>) -> Located {
        self.locate(Finding { is_warning: false, key: key.into(), message: message.into(), help })
    }

    /// Where a path stands, and whether all of it is there.
    fn find(&self, path: &str) -> (Range<usize>, bool) {
        let (mut span, mut at) = (0..0, None);
        for step in steps(path) {
            let next = match (at, step) {
                (None, Step::Key(key)) => self.root.get(key),
                (Some(value), step) => enter(value, step),
                (None, Step::Index(_)) => None,
            };
            let Some(value) = next else { return (span, false) };
            (span, at) = (value.span(), Some(value.get_ref()));
        }
        (span, true)
    }
}

fn enter<'t, 'a>(value: &'t DeValue<'a>, step: Step<'_>) -> Option<&'t Spanned<DeValue<'a>>> {
    match step {
        Step::Key(key) => value.as_table()?.get(key),
        Step::Index(index) => value.as_array()?.get(index),
    }
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// `node[0].speed` is a key, an index and a key.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split(['.', '[']).filter(|part| !part.is_empty()).map(|part| {
        match part.strip_suffix(']').and_then(|digits| digits.parse().ok()) {
            Some(index) => Step::Index(index),
            None => Step::Key(part),
        }
    })
}

/// Reads a value; what is wrong with it is told as a person would.
pub(super) fn read<T: DeserializeOwned>(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    more_keys: &[&str],
) -> Result<T, Located> {
    // Reading consumes; the original is what the place of an error is looked up in.
    let mut owned = value.clone();
    owned.get_mut().make_owned();
    T::deserialize(ValueDeserializer::from(owned)).map_err(|error| explain(&error, value, path, more_keys))
}

/// Serde's message in the words of a configuration, at the place that it means: of a table that is read by its
/// kind, serde knows only the table.
fn explain(error: &toml::de::Error, value: &Spanned<DeValue<'_>>, path: &str, more_keys: &[&str]) -> Located {
    let message = error.message().trim_end();
    let span = error.span().filter(|span| !span.is_empty()).unwrap_or(value.span());
    let (table, table_path) = enclosing(value, path, &span);
    let found = |place: Option<(Range<usize>, String)>| place.unwrap_or((span.clone(), table_path.clone()));
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let (true, Some((word, known))) = (message.starts_with("unknown field"), quoted.split_first()) {
        let (span, key) = found(search(table, &table_path, &|key, _| key == Some(*word)));
        let more_keys = if table_path.is_empty() { more_keys } else { &[] };
        // With an underscore, a key is the director's name for one with a dash.
        let known = known.iter().filter(|name| !name.contains('_'));
        let known: Vec<&str> = known.chain(more_keys).copied().collect();
        let help = nearest(word, &known).unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
        return Located::error(span, key, "unknown key".into(), Some(help));
    }
    if let (true, Some((word, known))) = (message.starts_with("unknown variant"), quoted.split_first()) {
        let (span, key) = found(search(table, &table_path, &|key, value| {
            value.as_str() == Some(word) || key == Some(*word)
        }));
        let names = known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let message = format!("expected one of {names}, found \"{word}\"");
        return Located::error(span, key, message, nearest(word, known));
    }
    if let (true, Some(word)) = (message.starts_with("missing field"), quoted.first()) {
        return Located::error(span, table_path, format!("`{word}` is missing"), None);
    }
    let wrong = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "));
    if let Some((what, expected)) = wrong.and_then(|rest| rest.split_once(", expected ")) {
        let (span, key) = found(search(table, &table_path, &|_, value| describe(value) == what));
        let message = format!("expected {}, found {}", expectation(expected), shown(what));
        return Located::error(span, key, message, None);
    }
    Located::error(span, table_path, message.replace('\n', ", "), None)
}

/// The value that stands at a span, or the smallest around it.
fn enclosing<'t, 'a>(
    value: &'t Spanned<DeValue<'a>>,
    path: &str,
    span: &Range<usize>,
) -> (&'t Spanned<DeValue<'a>>, String) {
    if value.span() != *span {
        for (child, path, _) in children(value, path) {
            let inside = contains(&child.span(), span) || deep(child, span);
            if inside {
                return enclosing(child, &path, span);
            }
        }
    }
    (value, path.to_owned())
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Tables under a header have the span of the header alone: what is in them lies outside of it.
fn deep(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    children(value, "").iter().any(|(child, ..)| contains(&child.span(), span) || deep(child, span))
}

type Child<'t, 'a> = (&'t Spanned<DeValue<'a>>, String, Option<(&'t str, Range<usize>)>);

fn children<'t, 'a>(value: &'t Spanned<DeValue<'a>>, path: &str) -> Vec<Child<'t, 'a>> {
    match value.get_ref() {
        DeValue::Table(table) => {
            let dot = if path.is_empty() { "" } else { "." };
            let entry = |(key, child): (&'t Spanned<_>, &'t Spanned<DeValue<'a>>)| {
                let key: &'t Spanned<std::borrow::Cow<'a, str>> = key;
                let name: &'t str = key.get_ref().as_ref();
                (child, format!("{path}{dot}{name}"), Some((name, key.span())))
            };
            table.iter().map(entry).collect()
        }
        DeValue::Array(array) => {
            array.iter().enumerate().map(|(index, child)| (child, format!("{path}[{index}]"), None)).collect()
        }
        _ => Vec::new(),
    }
}

/// The first key or value, depth first, of which `is` says that it is meant. Of a key, the key's place.
fn search(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    is: &dyn Fn(Option<&str>, &DeValue<'_>) -> bool,
) -> Option<(Range<usize>, String)> {
    for (child, path, key) in children(value, path) {
        if let Some((name, span)) = key
            && is(Some(name), &DeValue::Boolean(false))
        {
            return Some((span, path));
        }
        if is(None, child.get_ref()) {
            return Some((child.span(), path));
        }
        if let Some(found) = search(child, &path, is) {
            return Some(found);
        }
    }
    is(None, value.get_ref()).then(|| (value.span(), path.to_owned()))
}

/// What serde calls a value that it did not expect.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("string {text:?}"),
        DeValue::Integer(number) => format!("integer `{}`", number.as_str()),
        DeValue::Float(number) => {
            let number: f64 = number.as_str().parse().unwrap_or(f64::NAN);
            let point = if number.fract() == 0.0 { ".0" } else { "" };
            format!("floating point `{number}{point}`")
        }
        DeValue::Boolean(boolean) => format!("boolean `{boolean}`"),
        DeValue::Array(_) => "sequence".into(),
        DeValue::Table(_) | DeValue::Datetime(_) => "map".into(),
    }
}

fn shown(what: &str) -> String {
    match what {
        "sequence" => "a list".into(),
        "map" => "a table".into(),
        _ => {
            let value = what.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == ' ');
            value.trim_matches('`').to_owned()
        }
    }
}

fn expectation(expected: &str) -> String {
    match expected {
        "f64" => "a number".into(),
        "u8" => "an integer from 0 to 255".into(),
        "u16" => "an integer from 0 to 65535".into(),
        "u32" => "an integer from 0 to 4294967295".into(),
        "u64" => "an integer not below 0".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list".into(),
        "a duration" => "a duration such as \"250ms\", \"2s\" or \"5m\"".into(),
        tables if tables.starts_with("struct ") || tables.starts_with("internally tagged") => {
            "a table".into()
        }
        other => other.into(),
    }
}

/// `did you mean "x"?`, if something is near enough.
pub(super) fn nearest(word: &str, names: &[&str]) -> Option<String> {
    let scored = names.iter().map(|name| (strsim::jaro_winkler(word, name), name));
    let (similarity, name) = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (similarity > 0.75).then(|| format!("did you mean \"{name}\"?"))
}
