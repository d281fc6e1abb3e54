//! How commands speak to people and to machines.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// What a command's exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// What was asked for is done.
    Done,
    /// The thing asked about failed.
    Failed,
    /// Usage or configuration is wrong.
    Wrong,
}

/// Whether standard output takes colour: a terminal, and nobody objects.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && allowed()
}

/// The same for standard error.
pub(crate) fn colour_on_stderr() -> bool {
    io::stderr().is_terminal() && allowed()
}

fn allowed() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Prints one value as JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Prints text; a reader that has gone away (`evener … | head`) is not an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// A table without rules; the columns in `numbers` are aligned on the right.
pub(crate) fn table(header: &[&str], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !colour() {
        table.force_no_tty();
    }
    table.set_header(header.iter().map(|name| Cell::new(name.to_uppercase())));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Lines of a table without the spaces that fill up its last column.
pub(crate) fn lines(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Milliseconds with three digits that matter, or `-`.
pub(crate) fn ms(value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(ms) if ms >= 10_000.0 => format!("{:.1} s", ms / 1000.0),
        Some(ms) if ms >= 1_000.0 => format!("{:.2} s", ms / 1000.0),
        Some(ms) if ms >= 100.0 => format!("{ms:.0} ms"),
        Some(ms) if ms >= 10.0 => format!("{ms:.1} ms"),
        Some(ms) => format!("{ms:.2} ms"),
    }
}

/// Columns of a line that is written anew, at the most: it must not break.
const LINE_WIDTH: usize = 78;

/// Writes a line of standard error anew; what does not fit is cut off. Standard error that takes no more is no
/// reason to stop.
pub(crate) fn rewrite_line(line: &str) {
    let line = fitted(line);
    let mut out = io::stderr().lock();
    let _ = write!(out, "\r{line:LINE_WIDTH$}\r{line}").and_then(|()| out.flush());
}

fn fitted(line: &str) -> String {
    line.chars().take(LINE_WIDTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let shown: Vec<_> = [0.1234, 12.34, 123.4, 1_234.5, 12_345.0].map(|value| ms(Some(value))).into();
        assert_eq!(shown, ["0.12 ms", "12.3 ms", "123 ms", "1.23 s", "12.3 s"]);
        assert_eq!(ms(None), "-");
    }

    #[test]
    fn a_long_line_does_not_break() {
        assert_eq!(fitted(&"n".repeat(200)).len(), LINE_WIDTH);
    }
}
