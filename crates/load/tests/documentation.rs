//! The documentation says what is true: its settings are valid, and its defaults are the defaults.

use evener_load::Settings;

const GUIDE: &str = include_str!("../../../docs/agent.md");

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    agent: Settings,
}

#[test]
fn settings_in_the_guide_are_valid() {
    let blocks: Vec<&str> =
        GUIDE.split("```toml agent\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let file: File = toml::from_str(block).unwrap_or_else(|error| panic!("{error}"));
        assert!(!file.agent.sources.is_empty());
    }
}

#[test]
fn sources_on_the_command_line_are_valid() {
    let sources: Vec<&str> =
        GUIDE.split("--source '").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
    assert!(sources.len() >= 3, "{sources:?}");
    for source in sources {
        toml::from_str::<evener_load::settings::Source>(source)
            .unwrap_or_else(|error| panic!("{source}: {error}"));
    }
}

#[test]
fn defaults_in_the_guide_are_the_defaults() {
    let defaults = Settings::default();
    let mut told = 0;
    for row in GUIDE.lines().filter(|row| row.starts_with("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [key, default, ..] = cells[..] else { continue };
        let (Some(key), Some(default)) = (code(key), code(default)) else { continue };
        // Of the table of the machine: keys that have one plain default.
        if !GUIDE.split("### Sources").next().is_some_and(|part| part.contains(row)) || key == "proc" {
            continue;
        }
        let text = format!("{key} = {default}\n");
        let read: Settings = toml::from_str(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        assert_eq!(read, defaults, "{text}");
        told += 1;
    }
    assert!(told >= 10, "{told} defaults were found");
}

/// What stands between the first two backquotes, where nothing but a bar stands before them.
fn code(cell: &str) -> Option<&str> {
    cell.trim_start_matches(['|', ' ']).strip_prefix('`')?.split('`').next()
}
