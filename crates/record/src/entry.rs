//! What a recording says, entry by entry.

use std::time::Duration;

use evener_model::{Event, Health, Job, JobCounts, NodeId, NodeSpec, Outcome, Report, Time};
use evener_scheduler::{PickError, Settings};

use crate::settings;
use crate::wire::{Input, Wrong, nanos, put_node, put_number, put_optional, put_text};

/// What a scheduler was told or asked, when, and what it answered.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The pool's number, the same on all workers.
    pub pool: u32,
    /// When, on the director's clock.
    pub now: Time,
    /// What.
    pub what: What<'a>,
}

/// What happened to the scheduler of a pool on a worker.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// It was made, without nodes.
    Pool {
        /// The pool's name.
        name: &'a str,
        /// Ids of its nodes are below.
        nodes_max: u32,
        /// What its random choices come from.
        seed: u64,
        /// How it works.
        settings: Settings,
    },
    /// What a node is called that is about to join.
    Name {
        /// The node.
        node: NodeId,
        /// Its name.
        name: &'a str,
    },
    /// It got new settings.
    Settings(Settings),
    /// It was told something.
    Event(Event),
    /// It was asked for a node.
    Pick {
        /// Jobs on nodes where others than this scheduler have changed their number since its last pick.
        jobs: &'a [(NodeId, u32)],
        /// The job.
        job: Job<'a>,
        /// Its choice.
        choice: Result<NodeId, PickError>,
    },
}

const POOL: u8 = 0;
const NAME: u8 = 1;
const SETTINGS: u8 = 2;
const JOIN: u8 = 3;
const LEAVE: u8 = 4;
const WEIGHT: u8 = 5;
const DRAINS: u8 = 6;
const READY: u8 = 7;
const UP: u8 = 8;
const DOWN: u8 = 9;
const REPORT: u8 = 10;
const FINISH: u8 = 11;
const PICK: u8 = 12;

const PICK_JOBS: u8 = 1;
const PICK_KEY: u8 = 2;
const PICK_AVOID: u8 = 4;
const PICK_CURRENT: u8 = 8;
const PICK_EXCLUDED: u8 = 16;
/// The choice, written as "no node", is that the job excluded all that there were.
const PICK_NONE_LEFT: u8 = 32;
const PICK_ALL: u8 = PICK_JOBS | PICK_KEY | PICK_AVOID | PICK_CURRENT | PICK_EXCLUDED | PICK_NONE_LEFT;

const REPORT_JOBS: u8 = 1;
const REPORT_LOAD: u8 = 2;
const REPORT_HEALTH: u8 = 4;
const REPORT_CREDITS: u8 = 8;
const REPORT_JOBS_PER_S: u8 = 16;
const REPORT_ERRORS_PER_S: u8 = 32;
const REPORT_LATENCY: u8 = 64;

/// Appends an entry that happened `since_last` nanoseconds after the one before.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, entry: &Entry<'_>, since_last: u64) {
    let mut begin = |kind: u8| {
        out.push(kind);
        put_number(out, u64::from(entry.pool));
        put_number(out, since_last);
    };
    match &entry.what {
        What::Pool { name, nodes_max, seed, settings } => {
            begin(POOL);
            put_text(out, name);
            put_number(out, u64::from(*nodes_max));
            out.extend_from_slice(&seed.to_le_bytes());
            settings::put(out, settings);
        }
        What::Name { node, name } => {
            begin(NAME);
            put_node(out, *node);
            put_text(out, name);
        }
        What::Settings(settings) => {
            begin(SETTINGS);
            settings::put(out, settings);
        }
        What::Pick { jobs, job, choice } => {
            begin(PICK);
            put_pick(out, jobs, job, *choice);
        }
        What::Event(event) => {
            let (kind, node) = match event {
                Event::Join { node, .. } => (JOIN, node),
                Event::Leave { node } => (LEAVE, node),
                Event::Weight { node, .. } => (WEIGHT, node),
                Event::Drain { node, draining } => (if *draining { DRAINS } else { READY }, node),
                Event::Check { node, up } => (if *up { UP } else { DOWN }, node),
                Event::Report { node, .. } => (REPORT, node),
                Event::Finish { node, .. } => (FINISH, node),
            };
            begin(kind);
            put_node(out, *node);
            put_event(out, event);
        }
    }
}

/// What an event says beside its kind and its node.
#[inline]
fn put_event(out: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Join { spec, .. } => {
            put_number(out, u64::from(spec.weight.value()));
            put_optional(out, spec.jobs_max.map(u64::from));
            out.extend_from_slice(&spec.name_hash.to_le_bytes());
        }
        Event::Weight { weight, .. } => put_number(out, u64::from(weight.value())),
        Event::Report { report, .. } => put_report(out, report),
        Event::Finish { outcome, latency, .. } => {
            out.push(outcome.index() as u8);
            put_optional(out, latency.map(nanos));
        }
        Event::Leave { .. } | Event::Drain { .. } | Event::Check { .. } => {}
    }
}

#[inline]
fn put_pick(out: &mut Vec<u8>, jobs: &[(NodeId, u32)], job: &Job<'_>, choice: Result<NodeId, PickError>) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(!jobs.is_empty(), PICK_JOBS)
            | flag(job.key != 0, PICK_KEY)
            | flag(!job.avoid.is_empty(), PICK_AVOID)
            | flag(job.current.is_some(), PICK_CURRENT)
            | flag(!job.excluded.is_empty(), PICK_EXCLUDED)
            | flag(choice == Err(PickError::Excluded), PICK_NONE_LEFT),
    );
    if !jobs.is_empty() {
        put_number(out, jobs.len() as u64);
        for (node, jobs) in jobs {
            put_node(out, *node);
            put_number(out, u64::from(*jobs));
        }
    }
    if job.key != 0 {
        out.extend_from_slice(&job.key.to_le_bytes());
    }
    if !job.avoid.is_empty() {
        put_number(out, job.avoid.len() as u64);
        for node in job.avoid {
            put_node(out, *node);
        }
    }
    if let Some(node) = job.current {
        put_node(out, node);
    }
    if !job.excluded.is_empty() {
        put_number(out, job.excluded.len() as u64);
        for node in job.excluded {
            put_node(out, *node);
        }
    }
    put_number(
        out,
        match choice {
            Err(PickError::NoNode | PickError::Excluded) => 0,
            Err(PickError::Full) => 1,
            Ok(node) => u64::from(node.0) + 2,
        },
    );
}

fn put_report(out: &mut Vec<u8>, report: &Report) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    put_number(out, report.measured_at.as_nanos());
    out.push(
        flag(report.jobs.is_some(), REPORT_JOBS)
            | flag(report.load.is_some(), REPORT_LOAD)
            | flag(report.health.is_some(), REPORT_HEALTH)
            | flag(report.credits.is_some(), REPORT_CREDITS)
            | flag(report.jobs_per_s.is_some(), REPORT_JOBS_PER_S)
            | flag(report.errors_per_s.is_some(), REPORT_ERRORS_PER_S)
            | flag(report.latency.is_some(), REPORT_LATENCY),
    );
    if let Some(jobs) = report.jobs {
        put_number(out, u64::from(jobs));
    }
    if let Some(load) = report.load {
        out.extend_from_slice(&load.to_le_bytes());
    }
    if let Some(health) = report.health {
        out.push(health.value());
    }
    if let Some(credits) = report.credits {
        put_number(out, u64::from(credits));
    }
    if let Some(rate) = report.jobs_per_s {
        out.extend_from_slice(&rate.to_le_bytes());
    }
    if let Some(rate) = report.errors_per_s {
        out.extend_from_slice(&rate.to_le_bytes());
    }
    if let Some(latency) = report.latency {
        put_number(out, nanos(latency));
    }
}

/// Where the lists of an entry lie after it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    jobs: Vec<(NodeId, u32)>,
    avoid: Vec<NodeId>,
    excluded: Vec<NodeId>,
}

/// Reads an entry; `last` is the time of the one before.
pub(crate) fn read<'a, 'b: 'a>(
    input: &mut Input<'b>,
    last: Time,
    lists: &'a mut Lists,
) -> Result<Entry<'a>, Wrong> {
    let kind = input.byte()?;
    let pool = input.small()?;
    let nanos = last.as_nanos().checked_add(input.number()?).ok_or(Wrong("a time is too late"))?;
    let what = match kind {
        POOL => What::Pool {
            name: input.text()?,
            nodes_max: nodes_max(input)?,
            seed: input.fixed()?,
            settings: settings::read(input)?,
        },
        NAME => What::Name { node: input.node()?, name: input.text()? },
        SETTINGS => What::Settings(settings::read(input)?),
        PICK => read_pick(input, lists)?,
        _ => What::Event(read_event(kind, input)?),
    };
    Ok(Entry { pool, now: Time::from_nanos(nanos), what })
}

fn nodes_max(input: &mut Input<'_>) -> Result<u32, Wrong> {
    let nodes: u32 = input.small()?;
    let fits = nodes as usize <= JobCounts::POOL_NODES_MAX;
    if fits { Ok(nodes) } else { Err(Wrong("a pool has more nodes than any director")) }
}

fn read_event(kind: u8, input: &mut Input<'_>) -> Result<Event, Wrong> {
    if !(JOIN..=FINISH).contains(&kind) {
        return Err(Wrong("an entry is of no known kind"));
    }
    let node = input.node()?;
    Ok(match kind {
        JOIN => {
            let weight = input.weight()?;
            let jobs_max = input.optional()?.map(u32::try_from).transpose();
            let jobs_max = jobs_max.map_err(|_| Wrong("a number is too large"))?;
            Event::Join { node, spec: NodeSpec { weight, jobs_max, name_hash: input.fixed()? } }
        }
        LEAVE => Event::Leave { node },
        WEIGHT => Event::Weight { node, weight: input.weight()? },
        DRAINS | READY => Event::Drain { node, draining: kind == DRAINS },
        UP | DOWN => Event::Check { node, up: kind == UP },
        REPORT => Event::Report { node, report: read_report(input)? },
        _ => {
            let outcome = Outcome::ALL.get(usize::from(input.byte()?));
            let outcome = *outcome.ok_or(Wrong("a job ends in no known way"))?;
            Event::Finish { node, outcome, latency: input.optional()?.map(Duration::from_nanos) }
        }
    })
}

fn read_pick<'a>(input: &mut Input<'_>, lists: &'a mut Lists) -> Result<What<'a>, Wrong> {
    let flags = input.byte()?;
    if flags & !PICK_ALL != 0 {
        return Err(Wrong("a pick has unknown parts"));
    }
    let mut job = Job::default();
    lists.jobs.clear();
    lists.avoid.clear();
    lists.excluded.clear();
    if flags & PICK_JOBS != 0 {
        for _ in 0..length(input)? {
            lists.jobs.push((input.node()?, input.small()?));
        }
    }
    if flags & PICK_KEY != 0 {
        job.key = input.fixed()?;
    }
    if flags & PICK_AVOID != 0 {
        for _ in 0..length(input)? {
            lists.avoid.push(input.node()?);
        }
    }
    if flags & PICK_CURRENT != 0 {
        job.current = Some(input.node()?);
    }
    if flags & PICK_EXCLUDED != 0 {
        for _ in 0..length(input)? {
            lists.excluded.push(input.node()?);
        }
    }
    let none_left = flags & PICK_NONE_LEFT != 0;
    let choice = match input.number()? {
        0 if none_left => Err(PickError::Excluded),
        _ if none_left => return Err(Wrong("a pick contradicts itself")),
        0 => Err(PickError::NoNode),
        1 => Err(PickError::Full),
        node => match u32::try_from(node - 2) {
            Ok(node) if (node as usize) < JobCounts::POOL_NODES_MAX => Ok(NodeId(node)),
            _ => return Err(Wrong("a node's id is too large")),
        },
    };
    (job.avoid, job.excluded) = (&lists.avoid, &lists.excluded);
    Ok(What::Pick { jobs: &lists.jobs, job, choice })
}

/// The length of a list of nodes.
fn length(input: &mut Input<'_>) -> Result<usize, Wrong> {
    let length: usize = input.small()?;
    let fits = (1..=JobCounts::POOL_NODES_MAX).contains(&length);
    if fits { Ok(length) } else { Err(Wrong("a list of nodes is too long, or empty")) }
}

fn read_report(input: &mut Input<'_>) -> Result<Report, Wrong> {
    let measured_at = input.time()?;
    let flags = input.byte()?;
    let mut report = Report { measured_at, ..Report::default() };
    if flags & REPORT_JOBS != 0 {
        report.jobs = Some(input.small()?);
    }
    if flags & REPORT_LOAD != 0 {
        report.load = Some(input.float()?);
    }
    if flags & REPORT_HEALTH != 0 {
        let health = input.byte()?;
        if health > Health::FULL.value() {
            return Err(Wrong("a health is above 100"));
        }
        report.health = Some(Health::saturating(health));
    }
    if flags & REPORT_CREDITS != 0 {
        report.credits = Some(input.small()?);
    }
    if flags & REPORT_JOBS_PER_S != 0 {
        report.jobs_per_s = Some(input.float()?);
    }
    if flags & REPORT_ERRORS_PER_S != 0 {
        report.errors_per_s = Some(input.float()?);
    }
    if flags & REPORT_LATENCY != 0 {
        report.latency = Some(Duration::from_nanos(input.number()?));
    }
    if flags & !0x7f != 0 {
        return Err(Wrong("a report has unknown parts"));
    }
    Ok(report)
}
