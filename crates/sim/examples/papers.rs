//! Prints the papers' results beside ours.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Instant;

use evener_sim::papers::{Done, Effort, Paper};

fn main() {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    for paper in std::env::args().skip(1).filter_map(|name| name.parse::<Paper>().ok()) {
        let begun = Instant::now();
        let last = Mutex::new(0);
        let done = |done: Done| {
            let percent = done.runs * 100 / done.of;
            if std::mem::replace(&mut *last.lock().unwrap(), percent) / 10 != percent / 10 {
                eprintln!("{paper} {percent} % {:.0?}", begun.elapsed());
            }
        };
        for row in paper.reproduce(Effort::Full, threads, &done) {
            let show = |figure: Option<f64>| figure.map_or("-".into(), |figure| format!("{figure:.2}"));
            println!(
                "{:30} {:>9} {:>9} [{:>9},{:>9}] ±{:>8} {:14} {}",
                row.row,
                show(row.paper_value),
                show(row.ours),
                show(row.low),
                show(row.high),
                show(row.tolerance),
                row.verdict.name(),
                row.note
            );
        }
    }
}
