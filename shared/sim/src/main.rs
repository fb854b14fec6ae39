//! `muster-sim`: many seeds, every fault, and the count of each.

use std::process::ExitCode;

use clap::Parser;
use muster_sim::{DEFECTS, Outcome, Verdict, campaign, run};

/// From so many seeds on, everything that can occur must have occurred.
const COMPLETE_FROM: u64 = 500;

/// Runs the services, desks and agents in a simulated world full of faults, and judges the processes.
///
/// Exits with 1 when a property breaks, or when in 500 seeds or more a fault or a branch never occurred.
/// With --defect: exits with 0 only if the defect was found.
#[derive(Debug, Parser)]
#[command(name = "muster-sim")]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// One of no-fence, late-facts, position-outside-batch, release-at-barrier, no-request-cursor,
    /// start-without-uid, reports-without-echo, or all.
    #[arg(long)]
    defect: Option<String>,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: everything that happens, line by line.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let name = args.defect.as_deref();
    let found = match name {
        Some("all") => return all_defects(&args),
        Some(name) => match DEFECTS.iter().find(|(known, _)| *known == name) {
            Some((_, defect)) => Some(*defect),
            None => {
                let known: Vec<_> = DEFECTS.iter().map(|(known, _)| *known).collect();
                eprintln!("no defect is called {name:?}; known are {}, all", known.join(", "));
                return ExitCode::from(2);
            }
        },
        None => None,
    };
    if let Some(seed) = args.seed {
        let verdict = run(seed, found, args.trace);
        for line in &verdict.lines {
            println!("{line}");
        }
        println!("seed {seed}: {} messages, trace {:016x}", verdict.messages, verdict.trace);
        return judged(verdict.violation.is_none(), Some(&verdict), name);
    }
    let outcome = campaign(args.from, args.seeds, found);
    match name {
        Some(name) => {
            if tell_defect(name, &args, &outcome) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        None => tell(&outcome),
    }
}

fn judged(good: bool, verdict: Option<&Verdict>, defect: Option<&str>) -> ExitCode {
    if let Some(verdict) = verdict {
        tell_failure(verdict, defect);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(outcome: &Outcome) -> ExitCode {
    for (what, count) in outcome.stats.rows() {
        println!("{count:>10}  {what}");
    }
    let seconds = outcome.took.as_secs_f64();
    println!(
        "{} seeds, {} messages in {seconds:.1} s: {:.1} seeds/s",
        outcome.seeds,
        outcome.messages,
        outcome.seeds as f64 / seconds
    );
    if let Some(failure) = &outcome.failure {
        return judged(false, Some(failure), None);
    }
    let missing = outcome.stats.missing();
    if missing.is_empty() {
        println!("0 broken invariants; every fault and branch occurred");
        return ExitCode::SUCCESS;
    }
    println!("0 broken invariants; never occurred: {}", missing.join(", "));
    if outcome.seeds < COMPLETE_FROM {
        println!("(that counts from {COMPLETE_FROM} seeds on)");
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn tell_failure(verdict: &Verdict, defect: Option<&str>) {
    let Some(violation) = &verdict.violation else { return };
    println!("seed {} broke a property", verdict.seed);
    println!("  {violation}");
    println!("the last facts:");
    for fact in &verdict.facts {
        println!("  {fact}");
    }
    let defect = defect.map(|name| format!(" --defect {name}")).unwrap_or_default();
    println!("again: cargo xtask sim --seed {} --trace{defect}", verdict.seed);
}

fn tell_defect(name: &str, args: &Args, outcome: &Outcome) -> bool {
    match &outcome.failure {
        Some(verdict) => {
            let property = verdict.violation.as_ref().map_or("", |violation| violation.property);
            let after = verdict.seed - args.from + 1;
            println!("{name}: found after {after} seeds ({property}; seed {})", verdict.seed);
            true
        }
        None => {
            println!("{name}: NOT found in {} seeds", outcome.seeds);
            false
        }
    }
}

fn all_defects(args: &Args) -> ExitCode {
    let found =
        DEFECTS.map(|(name, defect)| tell_defect(name, args, &campaign(args.from, args.seeds, Some(defect))));
    if found.iter().all(|found| *found) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
