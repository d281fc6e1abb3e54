//! One helper through which the tests of policies and of the mechanism touch the scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evener_model::{Event, Health, Job, JobCounts, NodeId, NodeSpec, Outcome, Report, Time, Weight};

use crate::{Order, Outlier, PickError, Scheduler, Settings, hash_bytes};

/// Plays a script and returns the picks: names of nodes, `-` for no node, `full`.
///
/// `settings`: a policy, then `tokens`, `variant=among`, `among=2`, `interval=10`, `choices=3`, `phase=2s`, `dispatchers=2`, `penalty=100`, `bonus=50`, `bound=150`, `slow=10s`, `panic=30`,
/// `eject=off` or `seed=7`. Without `slow` and `panic` there is neither.
///
/// `nodes`: `name=weight` or `name=weight/jobs_max`, a name being one letter.
///
/// `script`: `pick`, `pick*3`, `pick!ab` (avoiding a and b), `pick!a#b` (excluding b), `pick:key`, `pick@a` (for a client that is on a); `ok:a`, `ok:a@20ms`, `fail:a`,
/// `fail:a*5` (jobs end); `join:a=2`, `leave:a`, `weight:a=3`, `drain:a`, `ready:a`, `down:a`, `up:a`; `wait:5s`;
/// `policy:lc`; `report:a,jobs=3,load=0.5,health=0,credits=2,rate=10,errors=1,latency=20ms,age=1s`, any of these.
pub(crate) fn run(settings: &str, nodes: &str, script: &str) -> String {
    let mut stage = Stage::new(settings, nodes);
    script.split_whitespace().for_each(|word| stage.act(word));
    stage.picks.join(" ")
}

/// Which picks of the script went where, as `a5 b1`.
pub(crate) fn tally(settings: &str, nodes: &str, script: &str) -> String {
    let mut tally = BTreeMap::<String, u32>::new();
    for pick in run(settings, nodes, script).split_whitespace() {
        *tally.entry(pick.to_owned()).or_default() += 1;
    }
    tally.iter().map(|(name, picks)| format!("{name}{picks}")).collect::<Vec<_>>().join(" ")
}

/// A scheduler, its clock, and what it picked.
pub(crate) struct Stage {
    pub(crate) scheduler: Scheduler,
    pub(crate) counts: Arc<JobCounts>,
    pub(crate) now: Time,
    pub(crate) picks: Vec<String>,
    settings: Settings,
}

impl Stage {
    pub(crate) fn new(settings: &str, nodes: &str) -> Stage {
        let (settings, seed) = parse_settings(settings);
        let counts = Arc::new(JobCounts::new(26));
        let mut stage = Stage {
            scheduler: Scheduler::new(settings.clone(), counts.clone(), seed),
            counts,
            now: Time::ZERO + Duration::from_secs(1000),
            picks: Vec::new(),
            settings,
        };
        for node in nodes.split_whitespace() {
            stage.act(&format!("join:{node}"));
        }
        stage
    }

    pub(crate) fn act(&mut self, word: &str) {
        let (word, times) =
            word.split_once('*').map_or((word, 1), |(word, times)| (word, times.parse().unwrap()));
        for _ in 0..times {
            self.act_once(word);
        }
    }

    fn act_once(&mut self, word: &str) {
        if let Some(how) = word.strip_prefix("pick") {
            let (how, current) =
                how.split_once('@').map_or((how, None), |(how, on)| (how, on.chars().next()));
            let current = current.map(id);
            let (how, excluded) = how.split_once('#').unwrap_or((how, ""));
            let excluded: Vec<NodeId> = excluded.chars().map(id).collect();
            let (how, avoid) = how.split_once('!').unwrap_or((how, ""));
            let avoid: Vec<NodeId> = avoid.chars().map(id).collect();
            let key = hash_bytes(how.trim_start_matches(':').as_bytes());
            let pick =
                self.scheduler.pick(self.now, &Job { key, avoid: &avoid, excluded: &excluded, current });
            self.picks.push(match pick {
                Ok(node) => name(node).to_string(),
                Err(PickError::NoNode) => "-".to_owned(),
                Err(PickError::Excluded) => "excluded".to_owned(),
                Err(PickError::Full) => "full".to_owned(),
            });
            return;
        }
        let (verb, rest) = word.split_once(':').unwrap();
        if verb == "wait" {
            self.now += duration(rest);
            return;
        }
        if verb == "policy" {
            self.settings.policy = rest.parse().unwrap();
            self.scheduler.reconfigure(self.now, self.settings.clone());
            return;
        }
        let node = id(rest.chars().next().unwrap());
        let value = rest.get(2..).unwrap_or("");
        let latency = rest.contains('@').then(|| duration(value));
        let event = match verb {
            "join" => Event::Join { node, spec: spec(name(node), value) },
            "leave" => Event::Leave { node },
            "weight" => Event::Weight { node, weight: value.parse().unwrap() },
            "drain" | "ready" => Event::Drain { node, draining: verb == "drain" },
            "down" | "up" => Event::Check { node, up: verb == "up" },
            "ok" => Event::Finish { node, outcome: Outcome::Success, latency },
            "report" => Event::Report { node, report: report(self.now, value) },
            "fail" => Event::Finish { node, outcome: Outcome::Refused, latency },
            _ => panic!("no such word: {word}"),
        };
        // An end without a pick: it belongs to a job that another dispatcher placed.
        if let Event::Finish { node, .. } = event
            && self.counts.jobs(node) == 0
        {
            self.counts.reserve(node, None);
        }
        self.scheduler.handle(self.now, event);
    }
}

fn parse_settings(text: &str) -> (Settings, u64) {
    let mut words = text.split_whitespace();
    let mut settings =
        Settings { policy: words.next().unwrap().parse().unwrap(), panic_percent: 0, ..Settings::default() };
    let mut seed = 1;
    for word in words {
        match word.split_once('=') {
            None => settings.order = word.parse().unwrap_or(Order::Smooth),
            Some(("variant", value)) => settings.variant = value.parse().unwrap(),
            Some(("among", value)) => settings.among = value.parse().unwrap(),
            Some(("interval", value)) => settings.interval_percent = value.parse().unwrap(),
            Some(("choices", value)) => settings.choices = value.parse().unwrap(),
            Some(("phase", value)) => settings.phase = duration(value),
            Some(("dispatchers", value)) => settings.dispatchers = value.parse().unwrap(),
            Some(("penalty", value)) => settings.error_penalty_percent = value.parse().unwrap(),
            Some(("bonus", value)) => settings.current_bonus_percent = value.parse().unwrap(),
            Some(("bound", value)) => settings.load_bound_percent = value.parse().unwrap(),
            Some(("slow", value)) => settings.slow_start = duration(value),
            Some(("panic", value)) => settings.panic_percent = value.parse().unwrap(),
            Some(("eject", "off")) => settings.outlier = None,
            Some(("eject", value)) => {
                settings.outlier = Some(Outlier {
                    consecutive: value.parse().unwrap(),
                    error_percent: 0,
                    ..Outlier::default()
                });
            }
            Some(("seed", value)) => seed = value.parse().unwrap(),
            Some(_) => panic!("no such setting: {word}"),
        }
    }
    (settings, seed)
}

fn spec(name: char, text: &str) -> NodeSpec {
    let (weight, jobs_max) = text.split_once('/').map_or((text, None), |(weight, max)| (weight, Some(max)));
    NodeSpec {
        weight: weight.parse::<Weight>().unwrap(),
        jobs_max: jobs_max.map(|max| max.parse().unwrap()),
        name_hash: hash_bytes(name.to_string().as_bytes()),
    }
}

fn report(now: Time, text: &str) -> Report {
    let mut report = Report { measured_at: now, ..Report::default() };
    for (what, value) in text.split(',').filter_map(|part| part.split_once('=')) {
        match what {
            "age" => report.measured_at = now - duration(value),
            "ahead" => report.measured_at = now + duration(value),
            "jobs" => report.jobs = Some(value.parse().unwrap()),
            "load" => report.load = Some(value.parse().unwrap()),
            "health" => report.health = Some(Health::saturating(value.parse().unwrap())),
            "credits" => report.credits = Some(value.parse().unwrap()),
            "rate" => report.jobs_per_s = Some(value.parse().unwrap()),
            "errors" => report.errors_per_s = Some(value.parse().unwrap()),
            "latency" => report.latency = Some(duration(value)),
            _ => panic!("nothing of that name is reported: {what}"),
        }
    }
    report
}

fn duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(ms) => Duration::from_millis(ms.parse().unwrap()),
        None => Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap()),
    }
}

fn id(name: char) -> NodeId {
    NodeId(u32::from(name) - u32::from('a'))
}

fn name(node: NodeId) -> char {
    char::from(b'a' + node.0 as u8)
}
