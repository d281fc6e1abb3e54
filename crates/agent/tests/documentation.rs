//! The documentation says what is true: its settings are valid, and its defaults are the defaults.

use evener_agent::Settings;
use evener_agent::settings::{AgentCheck, Director, OWN_KEYS, Service};

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
        assert!(!file.agent.measure.sources.is_empty());
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
    let (who, what) = ("### Who is told", "### What is measured of the machine");
    assert!(hold(who) >= 5 && hold(what) >= 10, "{} {}", hold(who), hold(what));
}

#[test]
fn all_keys_are_in_the_guide() {
    let table = section("### Who is told");
    for key in OWN_KEYS {
        assert!(table.contains(&format!("| `{key}` |")), "{key} is not in the table");
    }
}

#[test]
fn commands_in_the_guide_have_flags_that_there_are() {
    let directors = words("--director ");
    assert!(directors.len() >= 5, "{directors:?}");
    for director in directors.iter().filter(|director| !director.contains("HOST")) {
        director.parse::<Director>().unwrap_or_else(|error| panic!("{error}"));
    }
    for service in words("--service ") {
        service.parse::<Service>().unwrap_or_else(|error| panic!("{error}"));
    }
    for check in words("--agent-check ") {
        check.parse::<AgentCheck>().unwrap_or_else(|error| panic!("{error}"));
    }
}

/// What follows a flag, wherever it stands; not what stands for something, as `ADDR`.
fn words(flag: &str) -> Vec<&'static str> {
    let rest = GUIDE.split(flag).skip(1);
    let words = rest.filter_map(|rest| rest.split([' ', '`', '\n']).next());
    words.filter(|word| !word.starts_with(char::is_uppercase)).collect()
}

fn section(title: &str) -> &'static str {
    let rest = GUIDE.split(title).nth(1).expect("a section of that title");
    rest.split("\n#").next().expect("something")
}

/// How many plain defaults a table says, all of which hold.
fn hold(title: &str) -> usize {
    let defaults = Settings::default();
    let mut told = 0;
    for row in section(title).lines().filter(|row| row.starts_with("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [key, default, ..] = cells[..] else { continue };
        let (Some(key), Some(default)) = (code(key), code(default)) else { continue };
        if key == "proc" {
            continue;
        }
        let text = format!("{key} = {default}\n");
        let read: Settings = toml::from_str(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        assert_eq!(read, defaults, "{text}");
        told += 1;
    }
    told
}

/// What stands between the first two backquotes, where nothing but a bar stands before them.
fn code(cell: &str) -> Option<&str> {
    cell.trim_start_matches(['|', ' ']).strip_prefix('`')?.split('`').next()
}
