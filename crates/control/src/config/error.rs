//! What is wrong with a configuration, where, and what to do.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, GraphicalReportHandler, LabeledSpan, NamedSource, Severity, SourceCode};

/// A file, or another place that a configuration came from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path, or the name of a flag.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// Line and column of a byte, from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..offset.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        (line, column)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub struct ConfigError {
    pub(crate) source: Arc<Source>,
    pub(crate) span: Range<usize>,
    /// Path of the key, such as `pool.web.node[0].weight`; empty for a syntax error.
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.source.position(self.span.start);
        write!(f, "{}", self.source.name)?;
        if !self.source.text.is_empty() {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl ConfigError {
    /// Something wrong with another file that people write: at `span`, in bytes, and with the key of that path.
    pub fn new(
        source: &Arc<Source>,
        span: Range<usize>,
        key: String,
        message: String,
        help: Option<String>,
    ) -> ConfigError {
        ConfigError { source: Arc::clone(source), span, key, message, help }
    }

    /// File, or flag.
    pub fn file(&self) -> &str {
        &self.source.name
    }

    /// Line and column, from 1.
    pub fn position(&self) -> (usize, usize) {
        self.source.position(self.span.start)
    }

    /// Path of the key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What was expected, and what was found.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do, if that is known.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// All that is wrong with a configuration; never empty.
#[derive(Clone, Debug)]
pub struct Errors(pub(crate) Vec<ConfigError>);

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl Errors {
    pub(crate) fn one(source: Source, span: Range<usize>, key: &str, message: String) -> Errors {
        Errors(vec![ConfigError { source: Arc::new(source), span, key: key.into(), message, help: None }])
    }

    /// The errors, in the order of the files and their lines.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Of what was found in one file or several; at least one.
    pub fn new(errors: Vec<ConfigError>) -> Errors {
        Errors(errors)
    }

    /// With the lines that are wrong, for a person at a terminal.
    pub fn render(&self, colour: bool) -> String {
        self.render_as(Severity::Error, colour)
    }

    /// The same of what is allowed, but probably not meant.
    pub fn render_as_warnings(&self, colour: bool) -> String {
        self.render_as(Severity::Warning, colour)
    }

    fn render_as(&self, severity: Severity, colour: bool) -> String {
        let handler = GraphicalReportHandler::new_themed(if colour {
            miette::GraphicalTheme::unicode()
        } else {
            miette::GraphicalTheme::unicode_nocolor()
        });
        let mut out = String::new();
        for error in &self.0 {
            if error.source.text.is_empty() {
                out.push_str(&format!("{error}\n"));
                continue;
            }
            let report = Report {
                error,
                severity,
                text: NamedSource::new(&error.source.name, error.source.text.clone()),
            };
            // Writing to memory does not fail.
            let _ = handler.render_report(&mut out, &report);
        }
        out
    }
}

#[derive(Debug)]
struct Report<'a> {
    error: &'a ConfigError,
    severity: Severity,
    text: NamedSource<String>,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error, f)
    }
}

impl std::error::Error for Report<'_> {}

impl Diagnostic for Report<'_> {
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.text)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.error.span.clone();
        let label = LabeledSpan::new(Some("here".into()), span.start, span.len().max(1));
        Some(Box::new(std::iter::once(label)))
    }
}
