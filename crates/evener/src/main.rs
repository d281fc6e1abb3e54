//! The command line of Evener: thin, over the crates that do the work.
//!
//! Exit status: 0 done, 1 the thing asked about failed, 2 wrong usage or configuration.

mod admin;
mod commands;
mod demo;
mod logging;
mod output;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::Status;

/// Balances HTTP and TCP over nodes of unequal and changing speed.
#[derive(Debug, Parser)]
#[command(name = "evener", version, max_term_width = 100, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(commands::run::Run),
    Check(commands::check::Check),
    Agent(commands::agent::Agent),
    Ctl(commands::ctl::Ctl),
    Explain(commands::explain::Explain),
    Load(commands::load::LoadCommand),
    Demo(commands::demo::Demo),
    Plan(commands::plan::PlanCommand),
    Sim(commands::sim::Sim),
    Weigh(commands::weigh::Weigh),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Run(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Agent(command) => command.run(),
        Command::Ctl(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Load(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Sim(command) => command.run(),
        Command::Weigh(command) => command.run(),
    };
    match result {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::Failed) => ExitCode::from(1),
        Ok(Status::Wrong) => ExitCode::from(2),
        Err(error) => {
            let usage = error.downcast_ref::<Wrong>().is_some();
            let label = if output::colour_on_stderr() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
            eprintln!("{label} {error:#}");
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}

/// Wrong usage or configuration: what the caller must mend, with exit status 2.
#[derive(Debug)]
pub(crate) struct Wrong(pub(crate) String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}
