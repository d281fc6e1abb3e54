//! What measuring costs: takes samples as fast as it can, and tells CPU time and memory of this process.
//!
//! ```text
//! cargo run --release -p evener-load --example cost                  the host alone
//! cargo run --release -p evener-load --example cost -- agent.toml    as a file says
//! ```

use std::time::{Duration, Instant};

use evener_load::{Sampler, Settings};
use evener_model::Time;

const SAMPLES: u32 = 1_000;
/// Of the virtual time between samples; the real one is as short as it can be.
const INTERVAL: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let settings = match std::env::args().nth(1) {
        None => Settings::default(),
        Some(path) => {
            toml::from_str(&std::fs::read_to_string(path).expect("a file")).expect("valid settings")
        }
    };
    let mut sampler = Sampler::start(&settings, Time::ZERO);
    sampler.sample_patiently(Time::ZERO + INTERVAL).await;
    let (cpu_before, start) = (cpu_time(), Instant::now());
    for round in 0..SAMPLES {
        let now = Time::ZERO + INTERVAL * (round + 2);
        let sample = sampler.sample_patiently(now).await;
        if round + 1 == SAMPLES {
            for failure in sample.failed {
                println!("{}: {}", failure.source, failure.reason);
            }
        }
    }
    let (cpu, wall) = (cpu_time() - cpu_before, start.elapsed());
    let each = cpu / SAMPLES;
    println!("{SAMPLES} samples in {wall:.2?}, with {cpu:.2?} of CPU time, that of programs included");
    println!("{each:.1?} a sample: {:.3} % of a core at one a second", each.as_secs_f64() * 100.0);
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    for line in status.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("VmRSS")) {
        println!("{line}");
    }
}

/// CPU time of this process and of its children that have ended, from `/proc/self/stat`, in ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("readable");
    let after_name = &stat[stat.rfind(')').expect("a name in brackets") + 2..];
    let ticks =
        after_name.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u32>().ok()).sum::<u32>();
    Duration::from_millis(10) * ticks
}
